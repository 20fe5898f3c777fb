"""What to measure in, a measurement of an engine or an endpoint out."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.cli.assemble import CONTEXT_STEP
from autotune.cli.measured import INCONCLUSIVE, Measurement
from autotune.cli.storage import STUDIES
from autotune.domain.outcome import Outcome, Saturated
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.timing import LevelResult
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.arguments import check_values, import_vllm
from autotune.engine.capture import captured
from autotune.engine.effective import silent_changes
from autotune.errors import AutotuneError, EngineFailure, HostUnfit, InputError
from autotune.hardware import read_machine
from autotune.hardware.driver import DriverNvml
from autotune.hardware.readings import device_readings
from autotune.launch import Launcher
from autotune.load.checks import Checks
from autotune.load.http_target import Dialect, HttpTarget
from autotune.load.lag import LagBounds
from autotune.load.levels import Caps, Found, Ruler
from autotune.load.served import served_models
from autotune.load.sharded import ShardedTarget
from autotune.models import locate
from autotune.models.fetch import default_cache
from autotune.spec import load_space
from autotune.tune import kind


Say = Callable[[str], None]
# Every model knows more tokens than this; used where a server does not say.
CAUTIOUS_VOCABULARY = 2048
MOST_CONNECTIONS = 512
# Over HTTP the server's work is not in this process: lag is the generator's own.
HTTP_BOUNDS = LagBounds()


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure, checked as far as it can be without an engine.

    Attributes:
        model: As the user gave it; None where the endpoint is to say.
        seed: Decides prompts and arrivals.
    """

    model: str | None
    workload: Workload
    caps: Caps
    seed: int


def measure_here(asked: Asked, fixes: Mapping[str, Value], say: Say) -> Measurement:
    """Start vLLM with the machine's own settings and ``fixes``, and measure it."""
    model_path = locate(str(asked.model), cache=default_cache())
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    log_path = STUDIES / "logs" / "bench" / f"{now}-{os.getpid()}.log"
    say("loading vLLM …")
    with captured(log_path):
        version = import_vllm()
        # vLLM is imported by now; these need it.
        from autotune.engine.local import VllmEngine
        from autotune.engine.shape import vocabulary_size

        settings = _settings(asked, model_path, fixes, version)
        launcher = Launcher(
            engine=VllmEngine(),
            workloads=(asked.workload,),
            vocabulary=vocabulary_size(model_path),
            capture=captured,
            caps=asked.caps,
            conditions=device_readings(DriverNvml(), environment=os.environ),
        )
        launched = launcher.launch(
            settings,
            log_path=log_path,
            keep=lambda _: None,
            progress=lambda phase: say(f"[dim]{phase}[/dim]"),
        )
    subject = {
        "model": asked.model,
        "vllm": version,
        "settings": settings.to_json(),
        "effective": dict(launched.effective),
        "changed_silently": silent_changes(settings.arguments, launched.effective),
        "phases_s": dict(launched.phases_s),
        "capacities_rps": dict(launched.capacities_rps),
        "log": str(log_path),
    }
    return measurement("direct", _described(asked) | subject, launched.outcome)


def _settings(
    asked: Asked, model_path: str, fixes: Mapping[str, Value], version: str
) -> EngineSettings:
    """What the search space holds fixed on this machine, and what the user fixes."""
    from autotune.engine.local import on_cpu

    machine = read_machine({"vllm": version})
    cpu = on_cpu()
    if not cpu and machine.device_count == 0:
        raise HostUnfit("the installed vLLM needs a GPU and no NVIDIA device answers")
    space = load_space("cpu" if cpu else "default", device_count=machine.device_count)
    check_values(fixes, where="--fix")
    context = -(-asked.workload.context_tokens // CONTEXT_STEP) * CONTEXT_STEP
    arguments = {**space.fixed, "max_model_len": context, **fixes}
    return EngineSettings(model_path, arguments, space.environment)


def measure_endpoint(
    asked: Asked,
    endpoint: str,
    say: Say,
    *,
    dialect: Dialect,
    processes: int,
) -> Measurement:
    """Measure a running server by its own name for the model."""
    if processes < 1:
        raise InputError(f"--processes {processes}: give at least 1")
    served = _served_name(asked.model, endpoint)
    found = Found({})
    line = ""
    try:
        asyncio.run(
            _measure_over_http(
                asked,
                endpoint,
                served,
                found,
                dialect=dialect,
                processes=processes,
                say=say,
            )
        )
    except EngineFailure as error:
        line = str(error)
    subject = {
        "model": served,
        "endpoint": endpoint,
        "dialect": dialect,
        "processes": processes,
        "capacities_rps": dict(found.capacities_rps),
    }
    outcome = "saturated" if found.sustained_rps is not None else "measured"
    return _judged(
        "http",
        _described(asked) | subject,
        found.levels,
        "engine_dead" if line else outcome,
        line or _sustains(found.sustained_rps),
        failed=HostUnfit.exit_code if line else 0,
    )


async def _measure_over_http(
    asked: Asked,
    endpoint: str,
    served: str,
    found: Found,
    *,
    dialect: Dialect,
    processes: int,
    say: Say,
) -> None:
    connections = min(_most_in_flight(asked.workload), MOST_CONNECTIONS)
    target: AbstractAsyncContextManager[HttpTarget | ShardedTarget]
    if processes == 1:
        target = HttpTarget(
            endpoint, model=served, dialect=dialect, connections=connections
        )
    else:
        target = ShardedTarget(
            endpoint,
            model=served,
            dialect=dialect,
            connections=connections,
            shards=processes,
        )
    async with target as entered:
        ruler = Ruler(
            target=entered,
            vocabulary=_vocabulary(asked.model or served),
            keep=lambda _: None,
            enter=lambda phase: say(f"[dim]{phase}[/dim]"),
            bounds=HTTP_BOUNDS,
            caps=asked.caps,
            checks=Checks(output_tokens=dialect == "vllm"),
            must_reset=False,
        )
        await ruler.measure_all((asked.workload,), found)


def _most_in_flight(workload: Workload) -> int:
    sizes = [
        v.concurrency if isinstance(v, ClosedLoop) else workload.requests_at(v)
        for v in workload.levels
    ]
    return max(sizes)


def _served_name(model: str | None, endpoint: str) -> str:
    """The server's name for ``model``; its only one when none was given."""
    served = served_models(endpoint)
    names = [model, _directory(model)] if model is not None else []
    for name in names:
        if name in served:
            return str(name)
    if model is None and len(served) == 1:
        return served[0]
    raise InputError(
        f"endpoint {endpoint} serves {', '.join(served) or 'nothing'}"
        + (f", not {model!r}" if model else "")
        + "; give one of them with --model"
    )


def _directory(model: str | None) -> str | None:
    """Where ``model`` lies here, if it does: servers name models by their path."""
    try:
        return locate(str(model), cache=default_cache())
    except InputError:
        return None


def _vocabulary(model: str) -> int:
    """From the model's own configuration where it is here; cautious otherwise."""
    path = Path(_directory(model) or model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        text = config.get("text_config") or config
        return int(text["vocab_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return CAUTIOUS_VOCABULARY


def _described(asked: Asked) -> dict[str, Any]:
    return {
        "workload": asked.workload.name,
        "prompt_tokens": asked.workload.prompt_tokens,
        "output_tokens": asked.workload.output_tokens,
        "seed": asked.seed,
        "caps": asdict(asked.caps),
    }


def measurement(
    driven: str, subject: Mapping[str, Any], outcome: Outcome
) -> Measurement:
    """What a launch's outcome amounts to, with the exit code it deserves."""
    evidence = getattr(outcome, "evidence", None)
    if isinstance(outcome, Saturated):
        line = _sustains(outcome.sustained_rps)
    else:
        line = f"{evidence.line} {evidence.advice}".strip() if evidence else ""
    failed = 0
    if evidence is not None:
        environment = evidence.blames == "environment"
        failed = HostUnfit.exit_code if environment else AutotuneError.exit_code
    return _judged(driven, subject, outcome.levels, kind(outcome), line, failed=failed)


def _judged(
    driven: str,
    subject: Mapping[str, Any],
    levels: Sequence[LevelResult],
    outcome: str,
    line: str,
    *,
    failed: int,
) -> Measurement:
    """The exit code: unbelievable is not the same as unmeasured."""
    blocks = [b for level in levels for b in level.blocks]
    void = any(r.blocks and all(b.void for b in r.blocks) for r in levels)
    if outcome == "engine_dead" or not blocks:
        code = failed or AutotuneError.exit_code
    elif void:
        code, line = INCONCLUSIVE, next(b.void for b in blocks if b.void) or line
        outcome = "void"
    elif not any(level.timings for level in levels):
        code = AutotuneError.exit_code
        line = line or next(f.reason for b in blocks for f in b.failures)
        outcome = "all_requests_failed"
    else:
        code = failed
    return Measurement(driven, subject, levels, outcome, line, code)


def _sustains(rate_rps: float | None) -> str:
    if rate_rps is None:
        return ""
    return f"more is offered than is sustained, which is {rate_rps:.2f} requests/s"

"""A checked request in, a tuner ready to run out; refuses what it can first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from autotune.cli.request import Request
from autotune.cli.storage import prepare_folder
from autotune.cli.terminal import Terminal
from autotune.domain.layout import LAYOUT, layouts
from autotune.domain.machine import Machine
from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace
from autotune.engine import Engine
from autotune.engine.arguments import check_names, check_values, import_vllm
from autotune.engine.capture import captured
from autotune.engine.catalog.installed import installed_catalog
from autotune.engine.catalog.intersection import Skipped, intersect
from autotune.errors import HostUnfit, InputError, StartFailed
from autotune.guard import MemoryGuard, memory_model
from autotune.hardware import read_machine
from autotune.hardware.driver import DriverNvml
from autotune.hardware.readings import device_readings
from autotune.launch import Launcher
from autotune.models import known
from autotune.models.recipes import first_trials
from autotune.spec import load_space, lossless, with_fixes
from autotune.store.facts import FactStore
from autotune.strategy.shadow import ShadowSampler
from autotune.strategy.study import OptunaStudy
from autotune.tune import StudyPlan, Tuner


# The context a workload needs is rounded up to a multiple of this many tokens.
CONTEXT_STEP = 128


def assemble(
    request: Request, model_path: str, logs: Path, terminal: Terminal
) -> Tuner:
    """Everything a study runs on; refuses what it can before anything is made."""
    terminal.say("loading vLLM …")
    vllm_version = import_vllm()
    # vLLM is imported by now; these need it.
    from autotune.engine.local import VllmEngine, on_cpu
    from autotune.engine.shape import model_configuration, vocabulary_size

    machine = read_machine({"vllm": vllm_version})
    cpu = _device_is_cpu(on_cpu=on_cpu(), machine=machine)
    config = model_configuration(model_path)
    space, skipped = _space(request, config, cpu=cpu, machine=machine)
    for left_out in skipped:
        terminal.say(f"[dim]left out {escape(str(left_out))}[/dim]")
    vocabulary = vocabulary_size(model_path)
    plan = StudyPlan(request.study, model_path, space, request.trials, logs)
    prepare_folder(request.url)
    store = FactStore(request.url)
    _agree(store, request, _study_spec(request, plan, vllm_version))
    engine = VllmEngine()
    guard = MemoryGuard(
        memory_model(
            config,
            kind="cpu" if cpu else "cuda",
            memory_bytes=machine.device_memory_bytes,
        ),
        plan.settings,
        _defaults(engine, plan),
    )
    return Tuner(
        plan=plan,
        launcher=Launcher(
            engine,
            request.workloads,
            vocabulary,
            captured,
            conditions=device_readings(DriverNvml(), environment=os.environ),
        ),
        study=OptunaStudy(request.url, name=request.study, space=space),
        store=store,
        strategy=ShadowSampler(space, seed=request.seed, guard=guard),
        machine=asdict(machine),
        progress=terminal.phase,
        learn=guard.learn,
        foresee=guard.missing_share,
        first=_recipes(request, space),
    )


def _device_is_cpu(*, on_cpu: bool, machine: Machine) -> bool:
    if not on_cpu and machine.device_count == 0:
        raise HostUnfit(
            "the installed vLLM needs a GPU and no NVIDIA device answers. "
            "Install the driver, or vLLM's CPU build: make install VARIANT=cpu"
        )
    return on_cpu


def _defaults(engine: Engine, plan: StudyPlan) -> Mapping[str, Value]:
    """What the engine uses where settings say nothing; unknown if they do not fit."""
    try:
        return engine.resolve(plan.settings({}))
    except StartFailed:
        return {}


def _recipes(request: Request, space: SearchSpace) -> tuple[Mapping[str, Value], ...]:
    """Settings people publish for this model, tried first."""
    model = known(request.model)
    names = model.recipes if model else ()
    trials = first_trials(names, space, allow_lossy=request.allow_lossy)
    return tuple(t.values for t in trials)


def _space(
    request: Request, config: Mapping[str, Any], *, cpu: bool, machine: Machine
) -> tuple[SearchSpace, tuple[Skipped, ...]]:
    """The space as far as the installed vLLM takes it, and what it does not."""
    name = request.space or ("cpu" if cpu else _space_for(request.model))
    space = load_space(
        name,
        device_count=machine.device_count,
        splits=_splits(config, machine.device_count),
    )
    if request.space is not None and Path(request.space).is_file():
        own = [k.name for k in space.knobs if k.name != LAYOUT]
        check_names([*own, *space.fixed], where=request.space)
    typed = {k: v for k, v in request.fixes.items() if k != LAYOUT}
    check_values(typed, where="--fix")
    longest = max(w.context_tokens for w in request.workloads)
    context = -(-longest // CONTEXT_STEP) * CONTEXT_STEP
    held = with_fixes(space, {"max_model_len": context, **request.fixes})
    here, skipped = intersect(held, installed_catalog())
    here = here if request.allow_lossy else lossless(here)
    if not here.knobs:
        raise InputError(
            f"search space {space.name}: no knob is left to turn here; "
            "fix less, or give another --space"
        )
    return here, skipped


def _splits(config: Mapping[str, Any], device_count: int) -> tuple[str, ...]:
    """The layouts this model can take on the study's devices."""
    text = config.get("text_config") or config
    heads = text.get("num_attention_heads")
    return layouts(
        max(device_count, 1),
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        layers=text.get("num_hidden_layers"),
    )


def _space_for(model: str) -> str:
    return model if model == "glm-4-9b-chat" else "default"


def _study_spec(request: Request, plan: StudyPlan, vllm: str) -> dict[str, Any]:
    """What must be equal for a study to be continued."""
    spec = {
        "model": request.model,
        "vllm": vllm,
        "catalog": installed_catalog().key,
        "space": [asdict(k) | {"kind": type(k).__name__} for k in plan.space.knobs],
        "fixed": dict(plan.space.fixed),
        "environment": dict(plan.space.environment),
        "workloads": [
            asdict(w) | {"levels": [v.label for v in w.levels]}
            for w in request.workloads
        ],
        "seed": request.seed,
    }
    return dict(json.loads(json.dumps(spec)))


def _agree(store: FactStore, request: Request, spec: Mapping[str, Any]) -> None:
    """Create the study, or refuse to continue one that was begun differently."""
    stored = store.spec(request.study)
    if stored is None:
        store.create_study(request.study, spec)
        return
    changed = [k for k in spec if spec[k] != stored.get(k)]
    if changed:
        raise InputError(
            f"study {request.study!r} was begun with another {', '.join(changed)}; "
            "its trials could not be compared. Give another --study, or the same "
            "options as before"
        )

"""``autotune bench``: one measurement without a study, or of the ruler itself."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from autotune.cli.measured import Measurement, say, say_self_test
from autotune.cli.measuring import Asked, Say, measure_endpoint, measure_here
from autotune.cli.request import DUMMY, Weights
from autotune.cli.terminal import open_terminal
from autotune.domain.workload import ClosedLoop, Level, OpenLoop, Workload
from autotune.errors import InputError
from autotune.load.http_target import Dialect
from autotune.load.levels import Caps
from autotune.load.self_test import self_test
from autotune.load.workloads import WORKLOADS
from autotune.spec import parse_fixes


INTERRUPTED = 130
SELF_TEST_STREAMS = (8, 32, 64, 128, 256)


def bench(
    *,
    model: Annotated[
        str | None,
        typer.Option(help="As for tuning; with --endpoint, the served model's name."),
    ] = None,
    workload: Annotated[
        str, typer.Option(help="smoke, chat, content or code.")
    ] = "smoke",
    rate: Annotated[
        float | None, typer.Option(help="Requests per second, Poisson.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests always in flight, instead of --rate.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="Requests in a block; default the workload's.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="URL of a running OpenAI server, measured over HTTP."),
    ] = None,
    dialect: Annotated[
        str,
        typer.Option(help="openai: send no fields of vLLM's own; lengths may differ."),
    ] = "vllm",
    processes: Annotated[
        int, typer.Option(help="Load processes, with --endpoint.")
    ] = 1,
    precision: Annotated[
        float,
        typer.Option(help="Stop when p95 TTFT and TPOT are known to this share."),
    ] = 0.05,
    most_blocks: Annotated[
        int | None, typer.Option(help="No more blocks than this for a level.")
    ] = None,
    most_seconds: Annotated[
        float, typer.Option(help="No block of a level begins later than this.")
    ] = 120.0,
    fix: Annotated[
        list[str] | None, typer.Option(help="knob=value the engine is started with.")
    ] = None,
    weights: Annotated[
        Weights, typer.Option(help="dummy: random weights from the configuration.")
    ] = Weights.AUTO,
    seed: Annotated[
        int | None,
        typer.Option(help="Decides prompts; default 0, with --endpoint random."),
    ] = None,
    measure_ruler: Annotated[
        bool,
        typer.Option("--self-test", help="How many streams this machine measures."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
) -> None:
    """Measure once, without a study: an engine started here, or an endpoint.

    Exit codes: 0 measured, 1 the settings do not run or no request was answered,
    2 bad input, 3 the machine or the server lacks something, 4 no block could be
    believed.
    """
    if measure_ruler:
        _end(say_self_test(self_test(SELF_TEST_STREAMS), as_json=as_json))
    if endpoint is None and model is None:
        raise InputError("give --model to start an engine, or --endpoint URL")
    asked = Asked(
        model=model,
        workload=_workload(
            workload, _level(rate, concurrency), requests=requests, blocks=most_blocks
        ),
        caps=_caps(precision, most_seconds),
        seed=_seed(seed, endpoint),
    )
    asked = replace(asked, workload=replace(asked.workload, seed=asked.seed))
    measure = _here_or_there(
        asked,
        endpoint,
        dialect=_dialect(dialect),
        processes=processes,
        fix=fix,
        weights=weights,
    )
    try:
        measured = measure(_teller(endpoint, quiet=as_json))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    say(measured, as_json=as_json)
    _end(measured.exit_code)


def _here_or_there(
    asked: Asked,
    endpoint: str | None,
    *,
    dialect: Dialect,
    processes: int,
    fix: list[str] | None,
    weights: Weights,
) -> Callable[[Say], Measurement]:
    """How it will be measured; options that fit only the other way are refused."""
    if endpoint is None:
        if processes != 1 or dialect != "vllm":
            raise InputError("--processes and --dialect go with --endpoint")
        fixes: dict[str, Any] = {**DUMMY.get(weights, {})}
        fixes |= parse_fixes(tuple(fix or ()))
        return partial(measure_here, asked, fixes)
    if fix or weights is not Weights.AUTO:
        raise InputError("--fix and --weights start an engine; --endpoint runs already")
    return partial(
        measure_endpoint, asked, endpoint, dialect=dialect, processes=processes
    )


def _teller(endpoint: str | None, *, quiet: bool) -> Say:
    """Who says what is going on; past the capture where an engine writes its log."""
    if quiet:
        return lambda _: None
    if endpoint is None:
        return open_terminal().say
    return partial(Console(soft_wrap=True).print, highlight=False)


def _end(exit_code: int) -> NoReturn:
    raise typer.Exit(exit_code)


def _level(rate: float | None, concurrency: int | None) -> Level | None:
    if rate is not None and concurrency is not None:
        raise InputError("--rate and --concurrency both say how much is sent; give one")
    if rate is not None:
        if not 0 < rate < math.inf:
            raise InputError(f"--rate {rate:g}: give requests per second above 0")
        return OpenLoop(rate)
    if concurrency is None:
        return None
    if concurrency < 1:
        raise InputError(f"--concurrency {concurrency}: give at least 1")
    return ClosedLoop(concurrency)


def _workload(
    name: str, level: Level | None, *, requests: int | None, blocks: int | None
) -> Workload:
    if name not in WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise InputError(f"unknown workload {name!r}; there are: {known}")
    workload = WORKLOADS[name]
    if level is not None:
        workload = replace(workload, levels=(level,))
    if requests is not None:
        if requests < 1:
            raise InputError(f"--requests {requests}: give at least 1")
        workload = replace(workload, requests=requests, block_s=0.0)
    if blocks is not None:
        if blocks < 1:
            raise InputError(f"--most-blocks {blocks}: give at least 1")
        least = min(workload.blocks, blocks)
        workload = replace(workload, blocks=least, most_blocks=blocks)
    return workload


def _caps(precision: float, most_seconds: float) -> Caps:
    if not 0 < precision < math.inf:
        raise InputError(f"--precision {precision:g}: give a share above 0, as 0.05")
    if not most_seconds > 0:
        raise InputError(f"--most-seconds {most_seconds:g}: give seconds above 0")
    return Caps(half_width=precision, most_s=most_seconds)


def _seed(seed: int | None, endpoint: str | None) -> int:
    """A server may remember the prompts of an earlier run: draw others each time."""
    if seed is not None:
        return seed
    return 0 if endpoint is None else secrets.randbelow(2**31)


def _dialect(name: str) -> Dialect:
    if name == "vllm":
        return "vllm"
    if name == "openai":
        return "openai"
    raise InputError(f"--dialect {name!r}: give vllm or openai")

"""The root command: tune a model's serving settings, print and export the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from autotune import __version__
from autotune.cli.assemble import assemble
from autotune.cli.clean import retain_logs
from autotune.cli.export import write_script
from autotune.cli.narration import say_result, say_start, say_trial
from autotune.cli.request import (
    DUMMY,
    Request,
    Weights,
    defaults_from_file,
    levels_of,
    positive,
    study_name,
    workloads_of,
)
from autotune.cli.storage import STUDIES, storage_url
from autotune.cli.terminal import Terminal, open_terminal
from autotune.engine.arguments import import_vllm
from autotune.engine.capture import captured
from autotune.errors import InputError
from autotune.models import locate
from autotune.models.fetch import default_cache
from autotune.spec import parse_fixes
from autotune.store.holding import held


def tune(
    context: typer.Context,
    *,
    config: Annotated[  # noqa: ARG001 - its callback fills the other options
        Path | None,
        typer.Option(
            help="A study file; options given beside it win.",
            is_eager=True,
            callback=defaults_from_file,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Alias, Hugging Face id, or directory of the model."),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Finished trials the study should have in all.")
    ] = 20,
    study: Annotated[
        str | None, typer.Option(help="The study's name; default MODEL-WORKLOAD.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(help="Name or file of the search space; default by machine."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help="smoke, chat, content, code or a YAML file; repeatable."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second, Poisson, instead of --load."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(help="Shares of the baseline's burst capacity, as 0.5,0.85."),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(help="knob=value held in all trials and the baseline."),
    ] = None,
    allow_lossy: Annotated[
        bool,
        typer.Option("--allow-lossy", help="Also turn knobs that can change outputs."),
    ] = False,
    weights: Annotated[
        Weights,
        typer.Option(help="dummy: random weights from the configuration alone."),
    ] = Weights.AUTO,
    seed: Annotated[int, typer.Option(help="Decides prompts and proposals.")] = 0,
    version: Annotated[
        bool, typer.Option("--version", help="Print versions and exit.")
    ] = False,
) -> None:
    """Find vLLM settings with the best latency for a model on this machine.

    Exit codes: 0 done, 1 nothing feasible, 2 bad input, 3 the machine lacks
    something, 130 interrupted with everything saved.
    """
    if version:
        print(f"autotune {__version__}, vLLM {import_vllm()}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        return
    if model is None:
        raise InputError("--model is missing; see: autotune --help")
    request = Request(
        model=model,
        trials=positive(trials),
        study=study or study_name(model, workload or ["smoke"]),
        url="",
        workloads=workloads_of(workload or ["smoke"], levels_of(rate, load), seed),
        space=space,
        fixes={**DUMMY.get(weights, {}), **parse_fixes(tuple(fix or ()))},
        allow_lossy=allow_lossy,
        seed=seed,
    )
    request = replace(request, url=storage_url(storage, request.study))
    run(request, open_terminal())


def run(request: Request, terminal: Terminal) -> None:
    """Carry out a checked request; the exit code is an exception's."""
    model_path = locate(request.model, cache=default_cache())
    logs = STUDIES / "logs" / request.study
    with TemporaryDirectory() as scratch, captured(Path(scratch) / "start.log"):
        tuner = assemble(request, model_path, logs, terminal)
    retain_logs(logs)
    with held(request.url, request.study), captured(logs / "autotune.log"):
        say_start(tuner, terminal)
        try:
            for trial in tuner.run():
                say_trial(trial, terminal)
        except KeyboardInterrupt:
            terminal.say("interrupted; everything finished so far is saved")
            raise typer.Exit(130) from None
        finally:
            tuner.store.release()
            tuner.study.release()
    say_result(request, terminal)
    path = STUDIES / f"{request.study}-serve.sh"
    terminal.say(f"serve script: {write_script(request.study, request.url, path)}")

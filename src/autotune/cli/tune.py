"""The root command: tune a model's serving settings, print and export the best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from autotune import __version__
from autotune.cli.export import DUMMY_NOTE, best_trial, is_dummy, write_script
from autotune.cli.storage import STUDIES, existing_trials, storage_url
from autotune.cli.table import describe, differences, reference_of, trial_table
from autotune.cli.terminal import Terminal, open_terminal
from autotune.domain.layout import LAYOUT
from autotune.domain.machine import Machine
from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace
from autotune.domain.trial import Trial
from autotune.domain.workload import Level, LoadShare, OpenLoop, Workload
from autotune.engine import Engine
from autotune.engine.arguments import check_values, import_vllm
from autotune.engine.capture import captured
from autotune.engine.catalog.installed import installed_catalog
from autotune.engine.catalog.intersection import Skipped, intersect
from autotune.errors import AutotuneError, HostUnfit, InputError, StartFailed
from autotune.guard import MemoryGuard, memory_model
from autotune.hardware import read_machine
from autotune.launch import Launcher
from autotune.load.workloads import WORKLOADS
from autotune.models import known, locate
from autotune.models.fetch import default_cache
from autotune.models.recipes import first_trials
from autotune.spec import load_space, lossless, parse_fixes, with_fixes
from autotune.store.facts import FactStore
from autotune.strategy.shadow import ShadowSampler
from autotune.strategy.study import OptunaStudy
from autotune.tune import StudyPlan, Tuner, kind


# The context a workload needs is rounded up to a multiple of this many tokens.
CONTEXT_STEP = 128


class Weights(StrEnum):
    """Where the weights come from."""

    AUTO = "auto"
    DUMMY = "dummy"


# Prompts are sent as token ids, so dummy weights need no tokenizer either.
DUMMY = {Weights.DUMMY: {"load_format": "dummy", "skip_tokenizer_init": True}}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for, checked as far as it can be without vLLM."""

    model: str
    trials: int
    study: str
    url: str
    workloads: tuple[Workload, ...]
    space: str | None
    fixes: Mapping[str, Any]
    allow_lossy: bool
    seed: int


def tune(
    context: typer.Context,
    *,
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
        typer.Option(help="smoke, chat, content or code; repeatable."),
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
        trials=_positive(trials),
        study=study or f"{Path(model).name}-{'-'.join(workload or ['smoke'])}",
        url="",
        workloads=_workloads(workload or ["smoke"], _levels(rate, load), seed),
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
        tuner = _prepare(request, model_path, logs, terminal)
    with captured(logs / "autotune.log"):
        _say_start(tuner, terminal)
        try:
            for trial in tuner.run():
                _say_trial(trial, terminal)
        except KeyboardInterrupt:
            terminal.say("interrupted; everything finished so far is saved")
            raise typer.Exit(130) from None
        finally:
            tuner.store.release()
            tuner.study.release()
    _say_result(request, terminal)


def _positive(trials: int) -> int:
    if trials < 1:
        raise InputError(f"--trials {trials}: give at least 1")
    return trials


def _levels(rate: float | None, load: str | None) -> tuple[Level, ...]:
    """The levels asked for; none keeps each workload's own."""
    if rate is not None and load is not None:
        raise InputError("--rate and --load both say how much is sent; give one")
    if rate is not None:
        if not rate > 0:
            raise InputError(f"--rate {rate:g}: give requests per second above 0")
        return (OpenLoop(rate),)
    if load is None:
        return ()
    return tuple(LoadShare(_share(text)) for text in load.split(","))


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 2:  # noqa: PLR2004 - twice the capacity saturates anything
        raise InputError(
            f"--load {text!r}: give shares of capacity above 0, such as 0.5,0.85"
        )
    return share


def _workloads(
    names: list[str], levels: tuple[Level, ...], seed: int
) -> tuple[Workload, ...]:
    if len(set(names)) != len(names):
        raise InputError(f"--workload is given twice: {', '.join(names)}")
    chosen = []
    for name in names:
        if name not in WORKLOADS:
            known = ", ".join(WORKLOADS)
            raise InputError(f"unknown workload {name!r}; there are: {known}")
        workload = replace(WORKLOADS[name], seed=seed)
        chosen.append(replace(workload, levels=levels or workload.levels))
    return tuple(chosen)


def _prepare(
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
    space, skipped = _space(request, cpu=cpu, machine=machine)
    for left_out in skipped:
        terminal.say(f"[dim]left out {left_out}[/dim]")
    vocabulary = vocabulary_size(model_path)
    config = model_configuration(model_path)
    STUDIES.mkdir(exist_ok=True)
    plan = StudyPlan(request.study, model_path, space, request.trials, logs)
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
        launcher=Launcher(engine, request.workloads, vocabulary, captured),
        study=OptunaStudy(request.url, name=request.study, space=space),
        store=store,
        strategy=ShadowSampler(space, seed=request.seed, guard=guard),
        machine=asdict(machine),
        progress=terminal.phase,
        learn=guard.learn,
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
    request: Request, *, cpu: bool, machine: Machine
) -> tuple[SearchSpace, tuple[Skipped, ...]]:
    """The space as far as the installed vLLM takes it, and what it does not."""
    name = request.space or ("cpu" if cpu else _space_for(request.model))
    space = load_space(name, device_count=machine.device_count)
    typed = {k: v for k, v in request.fixes.items() if k != LAYOUT}
    check_values(typed, where="--fix")
    longest = max(w.context_tokens for w in request.workloads)
    context = -(-longest // CONTEXT_STEP) * CONTEXT_STEP
    held = with_fixes(space, {"max_model_len": context, **request.fixes})
    here, skipped = intersect(held, installed_catalog())
    return here if request.allow_lossy else lossless(here), skipped


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


def _say_start(tuner: Tuner, terminal: Terminal) -> None:
    plan = tuner.plan
    fixed = describe(dict(plan.space.fixed))
    knobs = ", ".join(k.name for k in plan.space.knobs)
    terminal.say(f"study [bold]{plan.name}[/bold]: {plan.model}")
    terminal.say(f"held in all trials and the baseline: {fixed}")
    terminal.say(f"turned: {knobs}")
    done = tuner.study.finished_count()
    if done:
        terminal.say(f"continuing: {done} of {plan.trials} trials are done")


def _say_trial(trial: Trial, terminal: Terminal) -> None:
    name = "baseline" if trial.role == "baseline" else f"trial {trial.number}"
    spent = ", ".join(f"{k} {v:.1f} s" for k, v in trial.phases_s.items())
    changes = describe(dict(trial.changes)) if trial.changes else "vLLM's defaults"
    if kind(trial.outcome) == "measured" and trial.score:
        verdict = f"score {trial.score.value:.3f}"
    else:
        evidence = getattr(trial.outcome, "evidence", None)
        line = evidence.line[:120] if evidence else ""
        verdict = f"[red]{kind(trial.outcome)}[/red] {line}"
    terminal.say(f"[bold]{name}[/bold]: {verdict} ({spent}) {changes}")


def _say_result(request: Request, terminal: Terminal) -> None:
    """Print the table and export the best trial."""
    found = existing_trials(request.url, request.study)
    terminal.console.print(trial_table(found))
    if is_dummy(found):
        terminal.say(DUMMY_NOTE)
    best = best_trial(found)
    if best is None:
        raise AutotuneError("no trial is feasible; see the failures above")
    if not any(t.role == "baseline" and kind(t.outcome) == "measured" for t in found):
        terminal.say(
            "vLLM's defaults do not start here; the first feasible trial is the "
            "reference (score 1)"
        )
    changed = describe(differences(best, reference_of(best, found)))
    value = best.score.value if best.score else 1.0
    terminal.say(
        f"best: trial {best.number}, score {value:.3f} (1 = the baseline, lower is "
        f"better; one measurement, not yet confirmed): {changed}"
    )
    path = write_script(
        request.study, request.url, STUDIES / f"{request.study}-serve.sh"
    )
    terminal.say(f"serve script: {path}")

"""The loop on a scripted engine and a real SQLite file, from baseline to resume."""

import contextlib
import gc
import itertools
from dataclasses import replace

import optuna
import pytest
import sqlalchemy as sa

from autotune.cli.export import best_trial
from autotune.domain.outcome import (
    EnvironmentFault,
    Infeasible,
    Measured,
    OutOfMemory,
)
from autotune.domain.space import IntKnob, SearchSpace
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.scripted import (
    Answers,
    DiesUnderLoad,
    FailsAtStart,
    Scene,
    ScriptedEngine,
)
from autotune.errors import HostUnfit, InputError
from autotune.launch import Launcher
from autotune.load.lag import LagBounds
from autotune.store.facts import FactStore
from autotune.strategy.shadow import Exhausted, values_key
from autotune.strategy.study import OptunaStudy
from autotune.tune import StudyPlan, Tuner, kind


NO_KV = (
    "ValueError: No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization` when initializing the engine."
)
INVALID = (
    "ValueError: max_num_batched_tokens (1) must be greater than or equal to "
    "max_num_seqs (4)."
)
DEAD = "EngineDeadError: EngineCore encountered an issue."
NOT_FREE = (
    "ValueError: Free memory on device cuda:0 (3.0/139.8 GiB) on startup is less than "
    "desired GPU memory utilization (0.9, 125.8 GiB). Decrease GPU memory utilization "
    "or reduce GPU memory used by other processes."
)
SLOW = Answers(ttft_s=0.030, itl_s=0.010)
FAST = Answers(ttft_s=0.006, itl_s=0.001)
SPACE = SearchSpace("s", {"held": 1}, {"E": "0"}, (IntKnob("knob", 1, 64),))
WORKLOAD = Workload(
    "w", prompt_tokens=4, output_tokens=3, requests=4, blocks=1, levels=(ClosedLoop(2),)
)


class InOrder:
    """Proposes the values it was given, in order, leaving out what is avoided."""

    def __init__(self, *knobs):
        self.knobs = knobs

    def propose(self, facts, *, number, avoid=()):
        known = {values_key(f.values) for f in facts} | set(avoid)
        for knob in self.knobs:
            if values_key({"knob": knob}) not in known:
                return {"knob": knob}
        raise Exhausted("all were tried")


def make_tuner(folder, scenes=(), *, trials=4, knobs=(2, 3, 4, 5, 6), name="s"):
    url = f"sqlite:///{folder / 'study.db'}"
    store = FactStore(url)
    if store.spec(name) is None:
        store.create_study(name, {})
    engine = ScriptedEngine(scenes, defaults={"knob": 1})
    return Tuner(
        plan=StudyPlan(name, "model", SPACE, trials, folder / "logs"),
        launcher=Launcher(
            engine, (WORKLOAD,), 1000, lambda _: contextlib.nullcontext()
        ),
        study=OptunaStudy(url, name=name, space=SPACE),
        store=store,
        strategy=InOrder(*knobs),
        machine={"host": "here"},
        progress=lambda *_: None,
    )


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Believe every block, and spare it what other tests left to collect."""
    gc.freeze()
    monkeypatch.setattr("autotune.launch.DIRECT_BOUNDS", LagBounds(1e9, 1e9))


@pytest.fixture
def tuner_in(tmp_path):
    """Tuners on one file, each released at the end."""
    made = []

    def make(*args, **options):
        made.append(make_tuner(tmp_path, *args, **options))
        return made[-1]

    yield make
    for tuner in made:
        tuner.store.release()
        tuner.study.release()


def optuna_trials(folder, name="s"):
    storage = optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}")
    try:
        return optuna.load_study(study_name=name, storage=storage).get_trials()
    finally:
        storage.remove_session()
        storage.engine.dispose()


def launch_rows(folder):
    engine = sa.create_engine(f"sqlite:///{folder / 'study.db'}")
    try:
        with engine.connect() as connection:
            query = sa.text(
                "select id, number, state, role from autotune_launches order by id"
            )
            return [tuple(r) for r in connection.execute(query)]
    finally:
        engine.dispose()


def kill_owner(folder):
    """Make every launch look as if its process had started at another time."""
    engine = sa.create_engine(f"sqlite:///{folder / 'study.db'}")
    with engine.begin() as connection:
        connection.execute(
            sa.text("update autotune_launches set process_started_s = 1.0")
        )
    engine.dispose()


WHOLE_SCRIPT = (
    Scene(SLOW, {"knob": 1}),
    Scene(FAST, {"knob": 2}),
    Scene(FailsAtStart(NO_KV), {"knob": 3}),
    Scene(FailsAtStart(INVALID, when_resolved=True), {"knob": 4}),
    Scene(DiesUnderLoad(26, DEAD, FAST), {"knob": 5}),
    Scene(SLOW),
)


def test_a_whole_study_names_every_outcome_and_tells_optuna_all_of_them(
    tuner_in, tmp_path
):
    tuner = tuner_in(WHOLE_SCRIPT, trials=6)

    done = list(tuner.run())

    outcomes = [type(t.outcome) for t in done]
    assert outcomes == [
        Measured,
        Measured,
        OutOfMemory,
        Infeasible,
        Infeasible,
        Measured,
    ]
    assert [kind(t.outcome) for t in done[2:5]] == [
        "oom_kv_cache",
        "invalid_config",
        "engine_dead",
    ]
    assert [t.role for t in done] == ["baseline"] + ["trial"] * 5
    assert done[0].score.value == 1.0
    assert done[1].score.value < 0.8
    assert all(t.score.value >= 1000 and not t.score.feasible for t in done[2:5])
    told = optuna_trials(tmp_path)
    assert [t.state.name for t in told] == ["COMPLETE"] * 6
    assert [t.number for t in told] == [t.number for t in done] == list(range(6))
    assert [t.value for t in told] == [t.score.value for t in done]
    assert [t.params for t in told] == [{"knob": n} for n in range(1, 7)]
    keys = {frozenset(t.constraints) for t in told}
    assert keys == {frozenset({"memory", "settings", "failed_requests"})}
    assert told[1].user_attrs["outcome"] == "measured"
    assert best_trial(done).number == tuner.study.best_number() == 1
    assert best_trial(tuner.store.trials("s")).number == 1


def test_what_was_yielded_is_what_the_store_gives_back(tuner_in):
    tuner = tuner_in(WHOLE_SCRIPT[:4], trials=4)

    done = list(tuner.run())

    for mine, stored in zip(done, tuner.store.trials("s"), strict=True):
        assert replace(stored, started_at=mine.started_at) == mine
        assert mine.started_at >= stored.started_at


def test_an_engine_that_dies_is_started_once_more_and_no_more(tuner_in, tmp_path):
    tuner = tuner_in([Scene(DiesUnderLoad(26, DEAD), {"knob": 2})], trials=2)

    list(tuner.run())

    knobs = [dict(s.arguments).get("knob") for s in tuner.launcher.engine.started]
    assert knobs == [None, 2, 2]
    states = [state for _, _, state, _ in launch_rows(tmp_path)]
    assert states == ["finished", "retried", "finished"]


def test_an_engine_that_dies_once_is_judged_by_its_second_run(tuner_in):
    scene = Scene(DiesUnderLoad(26, DEAD), {"knob": 2}, starts=1)
    tuner = tuner_in([scene], trials=2)

    done = list(tuner.run())

    assert isinstance(done[1].outcome, Measured)
    assert len(tuner.store.trials("s")) == 2
    assert tuner.study.finished_count() == 2


def test_blocks_measured_before_a_death_are_kept(tuner_in, tmp_path):
    tuner = tuner_in([Scene(DiesUnderLoad(26, DEAD), {"knob": 2})], trials=2)

    list(tuner.run())

    dead = tuner.store.trials("s")[1]
    (level,) = dead.outcome.levels
    assert level.blocks[0].void.startswith("EngineDied")
    assert level.timings == ()
    assert dead.outcome.evidence.failure_class == "engine_dead"


def test_the_same_command_continues_to_its_number_in_total(tuner_in, tmp_path):
    list(tuner_in(trials=2).run())

    again = list(tuner_in(trials=4).run())

    assert [(t.number, t.role) for t in again] == [
        (None, "baseline"),
        (2, "trial"),
        (3, "trial"),
    ]
    assert {t.epoch for t in again} == {2}
    assert [t.params["knob"] for t in optuna_trials(tmp_path)] == [1, 2, 3, 4]


def test_a_study_that_has_its_number_of_trials_starts_nothing(tuner_in):
    list(tuner_in(trials=2).run())
    tuner = tuner_in(trials=2)

    assert list(tuner.run()) == []
    assert tuner.launcher.engine.started == []


def test_a_configuration_that_ran_is_not_launched_again(tuner_in):
    tuner = tuner_in(trials=3, knobs=(1, 2, 2, 3))

    done = list(tuner.run())

    assert [t.effective["knob"] for t in done] == [1, 2, 3]


def test_an_exhausted_space_ends_the_study(tuner_in):
    tuner = tuner_in(trials=9, knobs=(2, 3))

    assert len(list(tuner.run())) == 3


def test_defaults_that_do_not_start_leave_the_first_feasible_trial_as_reference(
    tuner_in,
):
    scenes = [
        Scene(FailsAtStart(NO_KV), {"knob": 1}),
        Scene(FailsAtStart(INVALID), {"knob": 2}),
        Scene(SLOW, {"knob": 3}),
        Scene(FAST),
    ]
    tuner = tuner_in(scenes, trials=4)

    done = list(tuner.run())

    assert [t.score.feasible for t in done] == [False, False, True, True]
    assert done[2].score.value == 1.0
    assert done[3].score.value < 0.8
    assert best_trial(done).number == tuner.study.best_number() == 3


def test_a_trial_whose_requests_fail_is_never_the_reference_nor_the_best(tuner_in):
    scenes = [
        Scene(FailsAtStart(NO_KV), {"knob": 1}),
        Scene(Answers(refuses="too long"), {"knob": 2}),
        Scene(FAST, {"knob": 3}),
        Scene(SLOW),
    ]
    tuner = tuner_in(scenes, trials=4)

    done = list(tuner.run())

    assert done[1].score.constraints["failed_requests"] == 1.0
    assert done[2].score.value == 1.0
    assert best_trial(done).number == tuner.study.best_number() == 2


def test_the_same_fault_of_the_environment_twice_stops_the_study_saved(
    tuner_in, tmp_path
):
    tuner = tuner_in([Scene(FailsAtStart(NOT_FREE), {"knob": 3})], trials=4)

    with pytest.raises(HostUnfit, match="same fault twice, memory_not_free"):
        list(tuner.run())

    told = optuna_trials(tmp_path)
    assert [t.state.name for t in told] == ["COMPLETE", "COMPLETE", "FAIL"]
    states = [state for _, _, state, _ in launch_rows(tmp_path)]
    assert states == ["finished", "finished", "retried", "finished"]


def test_a_baseline_lost_to_the_environment_is_trial_zero_of_the_next_run(tuner_in):
    broken = tuner_in([Scene(FailsAtStart(NOT_FREE))], trials=2)
    with pytest.raises(HostUnfit):
        list(broken.run())

    done = list(tuner_in(trials=2).run())

    assert [t.role for t in done] == ["baseline", "trial"]
    assert done[0].number is not None
    assert tuner_in(trials=2).study.finished_count() == 2


def test_one_fault_of_the_environment_is_retried_and_forgotten(tuner_in):
    tuner = tuner_in([Scene(FailsAtStart(NOT_FREE), {"knob": 2}, starts=1)], trials=2)

    done = list(tuner.run())

    assert isinstance(done[1].outcome, Measured)
    assert not any(isinstance(t.outcome, EnvironmentFault) for t in done)


def test_facts_stored_by_a_dead_run_but_not_told_are_told(
    tuner_in, tmp_path, monkeypatch
):
    tuner = tuner_in(trials=3)
    with monkeypatch.context() as patched:
        patched.setattr(OptunaStudy, "tell", _die)
        with pytest.raises(_Killed):
            list(tuner.run())
    assert [t.state.name for t in optuna_trials(tmp_path)] == ["RUNNING"]

    done = list(tuner_in(trials=3).run())

    told = optuna_trials(tmp_path)
    assert [t.state.name for t in told] == ["COMPLETE"] * 3
    assert told[0].value == 1.0
    assert [t.number for t in done] == [None, 1, 2]


def test_a_launch_that_a_dead_run_cut_off_is_abandoned(tuner_in, tmp_path, monkeypatch):
    tuner = tuner_in(trials=3)
    running = tuner.run()
    next(running)
    with monkeypatch.context() as patched:
        patched.setattr(Launcher, "launch", _die)
        with pytest.raises(_Killed):
            next(running)
    kill_owner(tmp_path)

    done = list(tuner_in(trials=3).run())

    states = [t.state.name for t in optuna_trials(tmp_path)]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert [t.number for t in done] == [None, 2, 3]
    assert launch_rows(tmp_path)[1][2] == "abandoned"


def test_a_study_another_process_works_on_is_left_alone(
    tuner_in, tmp_path, monkeypatch
):
    tuner = tuner_in(trials=3)
    with monkeypatch.context() as patched:
        patched.setattr(Launcher, "launch", _die)
        with pytest.raises(_Killed):
            list(tuner.run())
    other = tuner_in(trials=3)

    with pytest.raises(InputError, match="by another process"):
        list(other.run())

    assert launch_rows(tmp_path)[0][2] == "running"
    assert other.launcher.engine.started == []


def test_a_proposal_queued_by_a_dead_run_does_not_lend_its_values(tuner_in, tmp_path):
    tuner = tuner_in(trials=3)
    tuner.study._study.enqueue_trial({"knob": 60})

    list(tuner.run())

    told = [t for t in optuna_trials(tmp_path) if t.state.name == "COMPLETE"]
    assert [t.params["knob"] for t in told] == [1, 2, 3]


def test_every_trial_of_a_study_is_sent_the_same_requests(tuner_in):
    tuner = tuner_in(trials=3)

    done = list(tuner.run())

    sent = [[t.request_id for t in d.outcome.levels[0].timings] for d in done]
    assert sent[0] == sent[1] == sent[2]
    assert len(set(sent[0])) == WORKLOAD.requests


def test_two_studies_in_one_file_do_not_meet(tuner_in, tmp_path):
    for name in ("one", "two"):
        list(tuner_in(trials=2, name=name).run())

    for name in ("one", "two"):
        assert [t.number for t in optuna_trials(tmp_path, name)] == [0, 1]
    assert len({i for i, *_ in launch_rows(tmp_path)}) == 4
    assert list(itertools.chain(tuner_in(trials=2, name="one").run())) == []


class _Killed(Exception):
    """Stands for the end of the process."""


def _die(*_args, **_options):
    raise _Killed

"""A study on real vLLM: good, starved, invalid and killed launches, then more."""

import signal
import threading
import time

import psutil
import pytest

from autotune.domain.outcome import Infeasible, Measured, OutOfMemory
from autotune.domain.space import ChoiceKnob, IntKnob, SearchSpace
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.capture import captured
from autotune.engine.local import VllmEngine
from autotune.engine.processes import descendants
from autotune.engine.shape import vocabulary_size
from autotune.launch import Launcher
from autotune.store.facts import FactStore
from autotune.strategy.shadow import Exhausted
from autotune.strategy.study import OptunaStudy
from autotune.tune import StudyPlan, Tuner


pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]

MIB = 2**20
WORKLOAD = Workload(
    "w",
    prompt_tokens=48,
    output_tokens=200,
    requests=8,
    blocks=1,
    levels=(ClosedLoop(8),),
)
SPACE = SearchSpace(
    "engine-test",
    {"enforce_eager": True, "max_model_len": 256, "gpu_memory_utilization": 0.3},
    {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    (
        ChoiceKnob("kv_cache_memory_bytes", (64 * MIB, MIB // 32)),
        ChoiceKnob("block_size", (128, 17)),
        IntKnob("max_num_seqs", 1, 256, log=True),
    ),
)
FITS = {"kv_cache_memory_bytes": 64 * MIB, "block_size": 128}
GOOD = {**FITS, "max_num_seqs": 16}
STARVED = {**GOOD, "kv_cache_memory_bytes": MIB // 32}
INVALID = {**GOOD, "block_size": 17}
KILLED = {**FITS, "max_num_seqs": 12}
LATER = {**FITS, "max_num_seqs": 2}


class InOrder:
    """Proposes what it was given."""

    def __init__(self, *proposals):
        self._proposals = list(proposals)

    def propose(self, facts, *, number, avoid=()):
        if not self._proposals:
            raise Exhausted("nothing is left")
        return self._proposals.pop(0)


class Killer:
    """Kills the engine core with SIGKILL, once, while a trial is measured."""

    def __init__(self, number):
        self._number = number

    def __call__(self, number, phase):
        if (number, phase) == (self._number, "measure"):
            self._number = None
            threading.Thread(target=self._kill, args=(descendants(),)).start()

    def _kill(self, pids):
        time.sleep(0.3)
        for pid in pids:
            if psutil.pid_exists(pid):
                psutil.Process(pid).send_signal(signal.SIGKILL)


def tuner(folder, model, *, trials, proposals, progress=lambda *_: None):
    url = f"sqlite:///{folder}/study.db"
    store = FactStore(url)
    if store.spec("s") is None:
        store.create_study("s", {})
    return Tuner(
        plan=StudyPlan("s", model, SPACE, trials, folder / "logs"),
        launcher=Launcher(VllmEngine(), (WORKLOAD,), vocabulary_size(model), captured),
        study=OptunaStudy(url, name="s", space=SPACE),
        store=store,
        strategy=InOrder(*proposals),
        machine={"host": "here", "device": "cpu", "device_count": 0, "versions": {}},
        progress=progress,
    )


def test_every_launch_is_classified_kept_and_the_study_goes_on(tiny, workplace):
    first = tuner(
        workplace,
        tiny,
        trials=5,
        proposals=(GOOD, STARVED, INVALID, KILLED),
        progress=Killer(4),
    )

    trials = list(first.run())

    baseline, good, starved, invalid, killed = trials
    assert [t.number for t in trials] == [0, 1, 2, 3, 4]
    assert baseline.role == "baseline"
    assert baseline.score.value == 1.0
    assert isinstance(good.outcome, Measured)
    assert good.effective["max_num_seqs"] == 16
    assert isinstance(starved.outcome, OutOfMemory)
    assert starved.outcome.phase == "oom_kv_cache"
    assert starved.score.value >= 1000
    assert isinstance(invalid.outcome, Infeasible)
    assert invalid.score.constraints["settings"] > 0
    assert isinstance(killed.outcome, Measured), "killed once, so it ran again"
    assert descendants() == frozenset()

    kept = first.store.trials("s")
    assert [t.number for t in kept] == [0, 1, 2, 3, 4]
    assert len(kept[1].outcome.levels[0].timings) == WORKLOAD.requests
    assert all(t.output_tokens == 200 for t in kept[1].outcome.levels[0].timings)
    retried = first.store.retried("s")
    assert [r.outcome.evidence.failure_class for r in retried] == ["engine_dead"]
    assert retried[0].number == 4

    again = tuner(workplace, tiny, trials=6, proposals=(LATER,))
    more = list(again.run())

    assert [(t.role, t.number) for t in more] == [("baseline", None), ("trial", 5)]
    assert again.study.finished_count() == 6
    told = {t.number: t.score.value for t in again.store.trials("s") if t.number}
    assert again.study.best_number() in told or again.study.best_number() == 0


def test_restarts_leave_nothing_behind(tiny, workplace):
    engine = VllmEngine()
    settings = tuner(workplace, tiny, trials=1, proposals=()).plan.settings(FITS)
    me = psutil.Process()
    readings = []

    for index in range(5):
        with captured(workplace / f"{index}.log"), engine.start(settings):
            pass
        readings.append((me.num_threads(), me.num_fds(), me.memory_info().rss))

    assert descendants() == frozenset()
    assert readings[-1][0] <= readings[1][0]
    assert readings[-1][1] <= readings[1][1]
    assert readings[-1][2] <= readings[1][2] + 32 * MIB

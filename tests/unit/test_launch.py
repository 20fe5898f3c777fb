"""One launch goes from settings to an outcome and hands over every block at once."""

import contextlib
import gc

import pytest

from autotune.domain.outcome import EnvironmentFault, Infeasible, Measured, OutOfMemory
from autotune.domain.settings import EngineSettings
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.scripted import (
    Answers,
    DiesUnderLoad,
    FailsAtStart,
    Scene,
    ScriptedEngine,
)
from autotune.launch import Launcher
from autotune.load.lag import LagBounds
from autotune.load.levels import Caps


SETTINGS = EngineSettings("m", {"knob": 3})
WORKLOADS = tuple(
    Workload(name, 4, 3, requests=4, blocks=2, levels=(ClosedLoop(2),)) for name in "ab"
)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Believe every block, and spare it what other tests left to collect."""
    gc.freeze()
    monkeypatch.setattr("autotune.launch.DIRECT_BOUNDS", LagBounds(1e9, 1e9))


@pytest.fixture
def launch(tmp_path):
    def run(*scenes, engine=None, **options):
        kept, phases, logs = [], [], []

        def capture(path):
            logs.append(path)
            return contextlib.nullcontext()

        launcher = Launcher(
            engine or ScriptedEngine(scenes, defaults={"other": 1}),
            WORKLOADS,
            1000,
            capture,
            **options,
        )
        launched = launcher.launch(
            SETTINGS,
            log_path=tmp_path / "launch.log",
            keep=kept.append,
            progress=phases.append,
        )
        assert logs == [tmp_path / "launch.log"]
        return launched, kept, phases

    return run


def test_a_launch_measures_every_level_of_every_workload_on_one_start(launch):
    engine = ScriptedEngine(defaults={"other": 1})

    launched, _, _ = launch(engine=engine)

    assert isinstance(launched.outcome, Measured)
    names = [(r.workload, len(r.blocks)) for r in launched.outcome.levels]
    assert names == [("a", 2), ("b", 2)]
    assert engine.started == [SETTINGS]
    assert launched.effective == {"knob": 3, "other": 1}


def test_every_block_is_kept_at_once_the_warm_up_too_and_counted_in_no_level(launch):
    launched, kept, _ = launch()

    indices = [(b.workload, b.index) for b in kept]
    assert indices == [(w, i) for w in "ab" for i in (-1, 0, 1)]
    levels = [b for r in launched.outcome.levels for b in r.blocks]
    assert levels == [b for b in kept if b.index >= 0]
    assert all(b.counters["generation_tokens"] == 12 for b in levels)


def test_progress_and_times_are_told_by_phase(launch):
    launched, _, phases = launch()

    assert phases == ["start", "warm_up", "measure", "warm_up", "measure", "stop"]
    assert {"start", "warm_up", "measure", "stop"} <= set(launched.phases_s)
    assert launched.phases_s["measure"] > 0


def test_a_configuration_that_is_refused_has_no_effective_values(launch):
    text = "ValueError: max_num_batched_tokens (1) must be greater than max_num_seqs"

    launched, kept, _ = launch(Scene(FailsAtStart(text, when_resolved=True)))

    assert isinstance(launched.outcome, Infeasible)
    assert launched.outcome.evidence.exception == text
    assert launched.effective == {}
    assert kept == []


def test_a_start_without_memory_says_what_it_would_have_used(launch):
    text = "ValueError: No available memory for the cache blocks."

    launched, _, _ = launch(Scene(FailsAtStart(text)))

    assert isinstance(launched.outcome, OutOfMemory)
    assert launched.outcome.phase == "oom_kv_cache"
    assert launched.effective == {"knob": 3, "other": 1}


def test_a_death_under_load_keeps_what_was_measured_before_it(launch):
    # 24 tokens of warm-up, 12 of the first block, 5 of the second.
    death = DiesUnderLoad(41, "EngineDeadError: EngineCore encountered an issue.")

    launched, kept, _ = launch(Scene(death))

    assert launched.outcome.evidence.failure_class == "engine_dead"
    (level,) = launched.outcome.levels
    assert len(level.timings) == 4
    assert [b.void is None for b in kept] == [True, True, False]
    assert launched.phases_s["measure"] > 0
    assert "stop" in launched.phases_s


def test_requests_that_are_all_refused_blame_the_settings_not_the_machine(launch):
    launched, _, _ = launch(Scene(Answers(refuses="too long")))

    assert not isinstance(launched.outcome, EnvironmentFault)
    failures = [
        f for r in launched.outcome.levels for b in r.blocks for f in b.failures
    ]
    assert {f.reason for f in failures} == {"too long"}


def test_what_could_not_be_read_is_none_and_never_zero(launch):
    _, kept, _ = launch()

    for block in kept:
        assert block.counters["engine_cpu_s"] is None
        assert block.counters["prefix_hit_share"] is None
        assert block.counters["queue_mean_s"] is None
        assert block.counters["tuner_cpu_s"] > 0


def test_device_conditions_are_read_before_and_after_each_block(launch):
    readings = iter(range(1000))

    _, kept, _ = launch(conditions=lambda: {"gpu0_power_w": float(next(readings))})

    powers = [b.counters["gpu0_power_w"] for b in kept]
    assert powers == [1, 3, 5, 7, 9, 11]


def test_a_process_that_comes_to_the_device_in_a_block_voids_it(launch):
    holders = iter([1, 1, 1, 2] + [2] * 100)

    launched, kept, _ = launch(
        conditions=lambda: {"gpu0_holders": float(next(holders))}
    )

    assert "another process came to the device" in kept[1].void
    assert [b.index for b in kept if b.workload == "a"] == [-1, 0, 0, 1]
    assert isinstance(launched.outcome, Measured)


def test_a_device_that_stops_answering_voids_nothing(launch):
    readings = iter([{"gpu0_holders": 1.0}, {"gpu0_holders": None}, {}] * 100)

    _, kept, _ = launch(conditions=lambda: next(readings))

    assert all(b.void is None for b in kept)


class Compiling(ScriptedEngine):
    """Says in its log that it compiles, while it answers some requests."""

    def __init__(self, log, requests):
        super().__init__()
        self.log, self.requests = log, requests

    @contextlib.contextmanager
    def start(self, settings):
        self.log.write_text(f"{WARNING} (before any block)\n")
        with super().start(settings) as running:
            answered = iter(range(10_000))
            stream = running.stream

            async def compile_and_stream(request):
                if next(answered) in self.requests:
                    with self.log.open("a") as log:
                        log.write(WARNING + "\n")
                async for chunk in stream(request):
                    yield chunk

            running.stream = compile_and_stream
            yield running


WARNING = (
    "WARNING 11-30 22:00:00 [jit_monitor.py:97] Triton JIT compilation during "
    "inference: _fwd_kernel. This causes a latency spike; consider extending warmup "
    "to cover this shape/config."
)


def test_a_block_in_which_the_engine_compiles_is_void_and_measured_again(
    launch, tmp_path
):
    # Eight requests of warm-up, then blocks of four.
    engine = Compiling(tmp_path / "launch.log", {2, 9})

    _, kept, _ = launch(engine=engine)

    voids = [(b.index, b.void is not None) for b in kept if b.workload == "a"]
    assert voids == [(-1, True), (0, True), (0, False), (1, False)]
    assert "compiled during the block" in kept[1].void
    assert "_fwd_kernel" in kept[1].void


def test_a_level_of_void_blocks_blames_the_machine_and_says_why(launch):
    holders = iter(range(1000))

    launched, _, _ = launch(conditions=lambda: {"gpu0_holders": float(next(holders))})

    assert isinstance(launched.outcome, EnvironmentFault)
    assert "another process came" in launched.outcome.evidence.line
    assert "run again" in launched.outcome.evidence.advice


def test_the_caps_of_a_launcher_hold_and_the_level_says_how_it_ended(launch):
    launched, _, _ = launch(caps=Caps(most_requests=1))

    assert [r.ended for r in launched.outcome.levels] == ["most_requests"] * 2
    assert [len(r.blocks) for r in launched.outcome.levels] == [1, 1]

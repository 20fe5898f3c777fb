"""One launch: settings in, what became of them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from autotune.domain.outcome import (
    EnvironmentFault,
    Evidence,
    Measured,
    Outcome,
    Saturated,
)
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.timing import Block, LevelResult
from autotune.domain.workload import (
    ClosedLoop,
    Level,
    LoadShare,
    OpenLoop,
    Workload,
)
from autotune.engine import Engine, RunningEngine
from autotune.engine.counters import difference
from autotune.engine.diagnosis import outcome_of
from autotune.errors import AutotuneError, EngineFailure
from autotune.load.generator import run_block
from autotune.load.lag import LagBounds
from autotune.load.plan import WARM_UP, plan_block
from autotune.load.saturation import sustained_rps


# Driven directly, the engine's front end runs in the load's own event loop, as it
# does in vLLM's server: most of the lag is the engine's, and belongs in the result.
# Only a block that lag dominates is void.
DIRECT_BOUNDS = LagBounds(ttft_fraction=0.25, tpot_fraction=0.10)
QUIET = "Other work disturbs the load generator: quieten the machine and run again."
# A void block is measured again so many times before its level gives up.
MOST_REPEATS = 2


Capture = Callable[[Path], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Launched:
    """What a launch came to.

    Attributes:
        effective: What the engine used; what it would have used if it failed
            after its configuration was made; empty if it never got there.
        outcome: What became of it.
        phases_s: Seconds by phase.
        started_at: Wall clock.
        capacities_rps: Burst capacity by workload, given or found.
    """

    effective: Mapping[str, Value]
    outcome: Outcome
    phases_s: Mapping[str, float]
    started_at: datetime
    capacities_rps: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts an engine, sends it the workloads, stops it, names what went wrong.

    Attributes:
        engine: What is started.
        workloads: What is sent, one after the other, to one start.
        vocabulary: Token ids of prompts stay below it.
        capture: Sends all output of a start to a log file.
    """

    engine: Engine
    workloads: Sequence[Workload]
    vocabulary: int
    capture: Capture

    def launch(
        self,
        settings: EngineSettings,
        *,
        log_path: Path,
        keep: Callable[[Block], None],
        progress: Callable[[str], None],
        capacities_rps: Mapping[str, float] = MappingProxyType({}),
    ) -> Launched:
        """Run one launch to its outcome; every block is handed to ``keep`` at once.

        Levels given as a share of capacity use ``capacities_rps``; a capacity that
        is not known yet is measured by a burst first.
        """
        course = _Course(keep, progress, dict(capacities_rps))
        failure: EngineFailure | None = None
        with self.capture(log_path):
            try:
                asyncio.run(self._drive(settings, course))
            except EngineFailure as error:
                failure = error
        return Launched(
            course.effective,
            _outcome(course, failure, log_path),
            dict(course.phases_s),
            course.started_at,
            course.capacities_rps,
        )

    async def _drive(self, settings: EngineSettings, course: _Course) -> None:
        course.enter("start")
        running: RunningEngine | None = None
        try:
            course.effective = dict(self.engine.resolve(settings))
            with self.engine.start(settings) as running:
                course.effective = dict(running.effective)
                await self._measure_all(running, course)
                course.enter("stop")
        finally:
            if running is not None:
                course.phases_s |= running.phases_s

    async def _measure_all(self, running: RunningEngine, course: _Course) -> None:
        for workload in self.workloads:
            for level in workload.levels:
                rate = await self._resolved(running, workload, level, course)
                await self._measure(running, workload, rate, course)
                if course.sustained_rps is not None:
                    return

    async def _resolved(
        self, running: RunningEngine, workload: Workload, level: Level, course: _Course
    ) -> Level:
        """The level as a rate; a share needs the workload's burst capacity."""
        if not isinstance(level, LoadShare):
            return level
        if workload.name not in course.capacities_rps:
            course.enter("warm_up")
            few = replace(workload, requests=workload.least_requests)
            await self._block(running, few, ClosedLoop(8), WARM_UP, course)
            course.enter("capacity")
            burst = ClosedLoop(workload.requests)
            block = await self._block(running, workload, burst, WARM_UP, course)
            course.capacities_rps[workload.name] = len(block.timings) / block.duration_s
        rate = round(level.share * course.capacities_rps[workload.name], 3)
        return OpenLoop(rate)

    async def _measure(
        self, running: RunningEngine, workload: Workload, level: Level, course: _Course
    ) -> None:
        """Warm up, then measure every block; the level is kept even if cut short."""
        sized = replace(workload, requests=workload.requests_at(level))
        blocks: list[Block] = []
        try:
            course.enter("warm_up")
            few = replace(sized, requests=max(sized.requests // 4, 8))
            await self._block(running, few, level, WARM_UP, course)
            for index in range(workload.blocks):
                course.enter("measure")
                for _ in range(1 + MOST_REPEATS):
                    block = await self._block(running, sized, level, index, course)
                    blocks.append(block)
                    if block.void is None:
                        break
                course.sustained_rps = _sustained(block, level)
                if course.sustained_rps is not None:
                    return
        finally:
            course.levels.append(LevelResult(workload.name, level.label, tuple(blocks)))
            course.leave()

    async def _block(
        self,
        running: RunningEngine,
        workload: Workload,
        level: Level,
        index: int,
        course: _Course,
    ) -> Block:
        requests = plan_block(workload, level, block=index, vocabulary=self.vocabulary)
        if not await running.reset_caches():
            raise AutotuneError("the engine could not forget cached prefixes")
        before = running.counters()
        run = await run_block(
            running,
            requests,
            workload=workload.name,
            level=level,
            block=index,
            bounds=DIRECT_BOUNDS,
        )
        counted = difference(before, running.counters())
        block = replace(run.block, counters={**counted, **run.block.counters})
        course.keep(block)
        if run.fault is not None:
            raise run.fault
        return block


@dataclass(slots=True)
class _Course:
    """Where a launch has got to."""

    keep: Callable[[Block], None]
    progress: Callable[[str], None]
    capacities_rps: dict[str, float]
    phase: str = ""
    effective: dict[str, Value] = field(default_factory=dict)
    levels: list[LevelResult] = field(default_factory=list)
    sustained_rps: float | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    _since_s: float = 0.0

    def enter(self, phase: str) -> None:
        """Begin a phase; time spent in measuring phases adds up under their names."""
        self.leave()
        if phase != self.phase:
            self.progress(phase)
        self.phase, self._since_s = phase, time.perf_counter()

    def leave(self) -> None:
        """End the running phase; the engine itself times its start and stop."""
        if self.phase not in ("start", "stop") and self._since_s:
            spent = time.perf_counter() - self._since_s
            self.phases_s[self.phase] = self.phases_s.get(self.phase, 0.0) + spent
        self._since_s = 0.0


def _outcome(course: _Course, failure: EngineFailure | None, log_path: Path) -> Outcome:
    levels = tuple(course.levels)
    if failure is not None:
        return outcome_of(failure, log_path=log_path, phase=course.phase, levels=levels)
    if course.sustained_rps is not None:
        return Saturated(course.sustained_rps, levels)
    for level in levels:
        voids = [b.void for b in level.blocks if b.void is not None]
        if voids and len(voids) == len(level.blocks):
            evidence = Evidence("other", "environment", voids[-1], QUIET)
            return EnvironmentFault(evidence, levels)
    return Measured(levels)


def _sustained(block: Block, level: Level) -> float | None:
    if not isinstance(level, OpenLoop):
        return None
    return sustained_rps(block, offered_rps=level.rate_rps)

"""One launch: settings in, what became of them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.domain.outcome import Measured, Outcome
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.timing import Block, LevelResult
from autotune.domain.workload import Level, Workload
from autotune.engine import Engine, RunningEngine
from autotune.engine.counters import difference
from autotune.engine.diagnosis import outcome_of
from autotune.errors import AutotuneError, EngineFailure
from autotune.load.generator import run_block
from autotune.load.plan import WARM_UP, plan_block


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
    """

    effective: Mapping[str, Value]
    outcome: Outcome
    phases_s: Mapping[str, float]
    started_at: datetime


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
    ) -> Launched:
        """Run one launch to its outcome; every block is handed to ``keep`` at once."""
        course = _Course(keep=keep, progress=progress)
        failure: EngineFailure | None = None
        with self.capture(log_path):
            try:
                asyncio.run(self._drive(settings, course))
            except EngineFailure as error:
                failure = error
        outcome: Outcome = Measured(tuple(course.levels))
        if failure is not None:
            outcome = outcome_of(
                failure,
                log_path=log_path,
                phase=course.phase,
                levels=tuple(course.levels),
            )
        return Launched(
            course.effective, outcome, dict(course.phases_s), course.started_at
        )

    async def _drive(self, settings: EngineSettings, course: _Course) -> None:
        course.enter("start")
        running: RunningEngine | None = None
        try:
            course.effective = dict(self.engine.resolve(settings))
            with self.engine.start(settings) as running:
                course.effective = dict(running.effective)
                for workload in self.workloads:
                    for level in workload.levels:
                        await self._measure(running, workload, level, course)
                course.enter("stop")
        finally:
            if running is not None:
                course.phases_s |= running.phases_s

    async def _measure(
        self, running: RunningEngine, workload: Workload, level: Level, course: _Course
    ) -> None:
        """Warm up, then measure every block; the level is kept even if cut short."""
        blocks: list[Block] = []
        try:
            for index in range(WARM_UP, workload.blocks):
                course.enter("warm_up" if index == WARM_UP else "measure")
                block = await self._block(running, workload, level, index, course)
                if index != WARM_UP:
                    blocks.append(block)
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
            running, requests, workload=workload.name, level=level, block=index
        )
        block = _with_counters(run.block, difference(before, running.counters()))
        course.keep(block)
        if run.fault is not None:
            raise run.fault
        return block


@dataclass(slots=True)
class _Course:
    """Where a launch has got to."""

    keep: Callable[[Block], None]
    progress: Callable[[str], None]
    phase: str = ""
    effective: dict[str, Value] = field(default_factory=dict)
    levels: list[LevelResult] = field(default_factory=list)
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
        if self.phase in ("warm_up", "measure") and self._since_s:
            spent = time.perf_counter() - self._since_s
            self.phases_s[self.phase] = self.phases_s.get(self.phase, 0.0) + spent
        self._since_s = 0.0


def _with_counters(block: Block, counters: Mapping[str, float | None]) -> Block:
    return replace(block, counters=counters)

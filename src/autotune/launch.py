"""One launch: settings in, what became of them out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from dataclasses import dataclass, field
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
from autotune.domain.timing import Block
from autotune.domain.workload import Workload
from autotune.engine import Engine, RunningEngine
from autotune.engine.compiling import LogTail, compiled_line
from autotune.engine.counters import difference
from autotune.engine.cpu_time import cpu_s, own_cpu_s
from autotune.engine.diagnosis import outcome_of
from autotune.engine.processes import descendants
from autotune.errors import EngineFailure
from autotune.hardware.readings import HOLDERS, Readings
from autotune.load import Target
from autotune.load.lag import LagBounds
from autotune.load.levels import Caps, Found, Ruler, Watched


# Driven directly, the engine's front end runs in the load's own event loop, as it
# does in vLLM's server: most of the lag is the engine's, and belongs in the result.
# Only a block that lag dominates is void.
DIRECT_BOUNDS = LagBounds(ttft_fraction=0.25, tpot_fraction=0.10)
UNDISTURBED = (
    "No block of this level can be believed: remove what disturbs it (often other "
    "work on this machine) and run again."
)


Capture = Callable[[Path], AbstractContextManager[None]]
# From a running engine to what requests are sent to.
Front = Callable[[RunningEngine], AbstractAsyncContextManager[Target]]


@asynccontextmanager
async def direct(running: RunningEngine) -> AsyncIterator[Target]:
    """Requests go to the engine itself."""
    yield running


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
        caps: When a level has been measured enough.
        conditions: Reads the devices around each block.
        front: What stands between the load and the engine.
    """

    engine: Engine
    workloads: Sequence[Workload]
    vocabulary: int
    capture: Capture
    caps: Caps = field(default_factory=Caps)
    conditions: Readings = dict
    front: Front = direct

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
        course = _Course(keep, progress, log_path, Found(dict(capacities_rps)))
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
            course.found.capacities_rps,
        )

    async def _drive(self, settings: EngineSettings, course: _Course) -> None:
        course.enter("start")
        running: RunningEngine | None = None
        before = descendants()
        try:
            course.effective = dict(self.engine.resolve(settings))
            with self.engine.start(settings) as running:
                course.effective = dict(running.effective)
                watch = EngineWatch(
                    running,
                    pids=descendants() - before,
                    log=LogTail(course.log_path),
                    conditions=self.conditions,
                )
                async with self.front(running) as target:
                    await self._ruler(target, watch, course).measure_all(
                        self.workloads, course.found
                    )
                course.enter("stop")
        finally:
            course.leave()
            if running is not None:
                course.phases_s |= running.phases_s

    def _ruler(self, target: Target, watch: EngineWatch, course: _Course) -> Ruler:
        return Ruler(
            target=target,
            vocabulary=self.vocabulary,
            keep=course.keep,
            enter=course.enter,
            watch=watch,
            bounds=DIRECT_BOUNDS,
            caps=self.caps,
        )


@dataclass(slots=True)
class EngineWatch:
    """Counters, processor time, compilation and device conditions around a block.

    Attributes:
        engine: Whose counters are read.
        pids: Processes of the engine.
        log: Where it says that it compiles.
        conditions: Reads the devices.
    """

    engine: RunningEngine
    pids: frozenset[int]
    log: LogTail
    conditions: Readings
    _counters: Mapping[str, float | None] = field(default_factory=dict)
    _cpu: Mapping[str, float | None] = field(default_factory=dict)
    _devices: Mapping[str, float | None] = field(default_factory=dict)

    def begin(self) -> None:
        """Look before the block."""
        self._devices = self.conditions()
        self.log.read()
        self._counters = self.engine.counters()
        self._cpu = self._cpu_s()

    def end(self) -> Watched:
        """Look after the block; conditions are those at its end."""
        cpu = self._cpu_s()
        counted = difference(self._counters, self.engine.counters())
        spent = {name: _grown(self._cpu[name], now) for name, now in cpu.items()}
        devices = self.conditions()
        line = compiled_line(self.log.read())
        void = f"the engine compiled during the block: {line}" if line else None
        return Watched(
            {**counted, **spent, **devices}, void or _joined(self._devices, devices)
        )

    def _cpu_s(self) -> dict[str, float | None]:
        return {"tuner_cpu_s": own_cpu_s(), "engine_cpu_s": cpu_s(self.pids)}


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _joined(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> str | None:
    """Whether a process came to a device while a block was measured.

    The engine's own are there before the block, and a container may not see which
    are whose: so it is their number that counts.
    """
    for name, now in after.items():
        earlier = before.get(name)
        known = now is not None and earlier is not None
        if name.endswith(HOLDERS) and known and now > earlier:  # type: ignore[operator]
            return f"another process came to the device during the block ({name})"
    return None


@dataclass(slots=True)
class _Course:
    """Where a launch has got to."""

    keep: Callable[[Block], None]
    progress: Callable[[str], None]
    log_path: Path
    found: Found
    phase: str = ""
    effective: dict[str, Value] = field(default_factory=dict)
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
    levels = tuple(course.found.levels)
    if failure is not None:
        return outcome_of(failure, log_path=log_path, phase=course.phase, levels=levels)
    if course.found.sustained_rps is not None:
        return Saturated(course.found.sustained_rps, levels)
    for level in levels:
        voids = [b.void for b in level.blocks if b.void is not None]
        if voids and len(voids) == len(level.blocks):
            evidence = Evidence("other", "environment", voids[-1], UNDISTURBED)
            return EnvironmentFault(evidence, levels)
    return Measured(levels)

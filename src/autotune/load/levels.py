"""Workloads and a target in; blocks handed over, levels and how each ended out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from autotune.domain.timing import ENDED, ENDINGS, Block, Ending, LevelResult
from autotune.domain.workload import (
    ClosedLoop,
    Level,
    LoadShare,
    OpenLoop,
    Workload,
)
from autotune.errors import AutotuneError
from autotune.load import Target
from autotune.load.checks import EXACT, Checks
from autotune.load.generator import run_block
from autotune.load.lag import LagBounds
from autotune.load.plan import WARM_UP, plan_block
from autotune.load.precision import half_widths
from autotune.load.saturation import sustained_rps


# A void block is measured again so many times before its level goes on without it.
MOST_REPEATS = 2
# In flight while the engine is warmed up for the burst that finds the capacity.
WARM_UP_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen around a block.

    Attributes:
        counters: Kept with the block; what could not be read is None.
        void: Why the block may not be believed; None when it may.
    """

    counters: Mapping[str, float | None]
    void: str | None = None


class Watch(Protocol):
    """Looks at engine and machine just before and just after a block."""

    def begin(self) -> None:
        """Look before the block."""
        ...

    def end(self) -> Watched:
        """Look after it, and say what changed in between."""
        ...


class Unwatched:
    """Sees nothing."""

    def begin(self) -> None:
        """There is nothing to look at."""

    def end(self) -> Watched:
        """Nothing was seen."""
        return Watched({})


@dataclass(frozen=True, slots=True)
class Caps:
    """When a level has been measured enough; see also ``Workload.most_blocks``.

    Attributes:
        half_width: Narrow enough: half the interval of p95 TTFT and of mean TPOT
            over blocks, as a share of their mean.
        least_blocks: An interval over fewer blocks is not trusted.
        most_s: No block begins after so many seconds of its level.
        most_requests: No block begins after so many requests of its level.
    """

    half_width: float = 0.05
    least_blocks: int = 3
    most_s: float = 300.0
    most_requests: int = 20_000


@dataclass(slots=True)
class Found:
    """What has been measured so far; kept even when measuring is cut short.

    Attributes:
        capacities_rps: Burst capacity by workload, given or measured.
        levels: In the order they were measured.
        sustained_rps: Set when a level offered more than the engine sustains.
    """

    capacities_rps: dict[str, float]
    levels: list[LevelResult] = field(default_factory=list)
    sustained_rps: float | None = None


@dataclass(frozen=True, slots=True)
class Ruler:
    """Measures one target.

    Attributes:
        target: What answers.
        vocabulary: Token ids of prompts stay below it.
        keep: Handed every block at once, warm-ups too.
        enter: Told which phase begins.
        watch: Looks at engine and machine around each block.
        bounds: How far the generator's own lag may have moved a block.
        caps: When a level has been measured enough.
        checks: Which lengths the target promises to keep.
        must_reset: A target that cannot forget cached prefixes is refused.
    """

    target: Target
    vocabulary: int
    keep: Callable[[Block], None]
    enter: Callable[[str], None]
    watch: Watch = field(default_factory=Unwatched)
    bounds: LagBounds = field(default_factory=LagBounds)
    caps: Caps = field(default_factory=Caps)
    checks: Checks = EXACT
    must_reset: bool = True

    async def measure_all(self, workloads: Sequence[Workload], found: Found) -> None:
        """Every level of every workload; ends at one the engine does not sustain.

        Raises:
            EngineFailure: The engine is gone; ``found`` has what came before.
            AutotuneError: Cached prefixes could not be forgotten.
        """
        for workload in workloads:
            for level in workload.levels:
                rate = await self._resolved(workload, level, found)
                await self._measure(workload, rate, found)
                if found.sustained_rps is not None:
                    return

    async def _resolved(self, workload: Workload, level: Level, found: Found) -> Level:
        """The level as a rate; a share needs the workload's burst capacity."""
        if not isinstance(level, LoadShare):
            return level
        if workload.name not in found.capacities_rps:
            self.enter("warm_up")
            few = replace(workload, requests=workload.least_requests)
            await self._block(few, ClosedLoop(WARM_UP_CONCURRENCY), WARM_UP)
            self.enter("capacity")
            block = await self._block(workload, ClosedLoop(workload.requests), WARM_UP)
            found.capacities_rps[workload.name] = len(block.timings) / block.duration_s
        return OpenLoop(round(level.share * found.capacities_rps[workload.name], 3))

    async def _measure(self, workload: Workload, level: Level, found: Found) -> None:
        """Warm up, then measure; the level is kept even if cut short."""
        sized = replace(workload, requests=workload.requests_at(level))
        blocks: list[Block] = []
        try:
            self.enter("warm_up")
            few = replace(sized, requests=max(sized.requests // 4, 8))
            await self._block(few, level, WARM_UP)
            self.enter("measure")
            await self._measure_blocks(sized, level, blocks)
        finally:
            kept = LevelResult(workload.name, level.label, tuple(blocks))
            found.levels.append(kept)
        found.sustained_rps = _sustained(blocks[-1], level)

    async def _measure_blocks(
        self, workload: Workload, level: Level, blocks: list[Block]
    ) -> None:
        """Blocks until the level's figures are narrow or a cap is reached."""
        began_s = time.perf_counter()

        def concluded(block: Block) -> Block:
            widths = half_widths([*blocks, block])
            spent_s = time.perf_counter() - began_s
            ended = _ending([*blocks, block], workload, level, self.caps, spent_s)
            known = {
                "ttft_p95_half_width": widths.ttft_p95,
                "tpot_mean_half_width": widths.tpot_mean,
            }
            if ended is not None:
                known[ENDED] = float(ENDINGS.index(ended))
            return replace(block, counters={**block.counters, **known})

        index = 0
        while True:
            block = await self._block(workload, level, index, conclude=concluded)
            blocks.append(block)
            if ENDED in block.counters:
                return
            index = _next_index(blocks)

    async def _block(
        self,
        workload: Workload,
        level: Level,
        index: int,
        *,
        conclude: Callable[[Block], Block] = lambda block: block,
    ) -> Block:
        """One block; what ``conclude`` makes of it is handed to ``keep``."""
        requests = plan_block(workload, level, block=index, vocabulary=self.vocabulary)
        reset = await self.target.reset_caches()
        if self.must_reset and not reset:
            raise AutotuneError("the engine could not forget cached prefixes")
        self.watch.begin()
        run = await run_block(
            self.target,
            requests,
            workload=workload.name,
            level=level,
            block=index,
            bounds=self.bounds,
            checks=self.checks,
        )
        watched = self.watch.end()
        seen = {**watched.counters, "caches_reset": float(reset)}
        void = run.block.void or watched.void
        block = replace(run.block, void=void, counters={**seen, **run.block.counters})
        if run.fault is None:
            block = conclude(block)
        self.keep(block)
        if run.fault is not None:
            raise run.fault
        return block


def _next_index(blocks: Sequence[Block]) -> int:
    """A void block is measured again, with the same requests, so many times."""
    last = blocks[-1]
    tries = sum(b.index == last.index for b in blocks)
    again = last.void is not None and tries <= MOST_REPEATS
    return last.index if again else last.index + 1


def _ending(
    blocks: Sequence[Block],
    workload: Workload,
    level: Level,
    caps: Caps,
    spent_s: float,
) -> Ending | None:
    """Why the level ends with the last of ``blocks``; None while it goes on."""
    believed = sum(b.void is None for b in blocks)
    least = max(caps.least_blocks, workload.blocks)
    if _sustained(blocks[-1], level) is not None:
        return "saturated"
    if believed >= least and half_widths(blocks).within(caps.half_width):
        return "narrow"
    if spent_s >= caps.most_s:
        return "most_seconds"
    if len(blocks) * workload.requests >= caps.most_requests:
        return "most_requests"
    if _next_index(blocks) >= max(workload.blocks, workload.most_blocks):
        return "most_blocks"
    return None


def _sustained(block: Block, level: Level) -> float | None:
    if not isinstance(level, OpenLoop):
        return None
    return sustained_rps(block, offered_rps=level.rate_rps)

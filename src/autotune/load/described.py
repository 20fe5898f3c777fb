"""Columns of requests in, what a trace is like out, in bounded memory."""

from __future__ import annotations

import gc
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add, mul, sub

from autotune.errors import InputError
from autotune.load.traces import Columns, Oddities
from autotune.load.traces.files import Trace


# Beyond so many different values a histogram is made coarser.
MOST_BINS = 50_000
BACKWARDS = "time before that of the row above"
SINGLE = "one generated token, which has no time per output token"
_MS = 1000.0
# Finding the end of a window costs as much as looking at so many rows.
_ROWS_PER_SEARCH = 16


@dataclass(frozen=True, slots=True)
class Spread:
    """How whole numbers are distributed.

    Attributes:
        counts: How often each value occurred, in ascending order.
        total: Sum of all values before any rounding.
        step: Values are rounded down to a multiple of it; 1 is exact.
    """

    counts: tuple[tuple[int, int], ...]
    total: int
    step: int = 1

    @property
    def size(self) -> int:
        """How many values there are."""
        return sum(count for _, count in self.counts)

    @property
    def mean(self) -> float:
        """Their mean; 0 without any."""
        return self.total / self.size if self.counts else 0.0

    def quantile(self, share: float) -> int:
        """The smallest value that ``share`` of all do not exceed; 0 without any."""
        rank = max(1, math.ceil(share * self.size))
        sums = accumulate(count for _, count in self.counts)
        reached = (
            v
            for (v, _), so_far in zip(self.counts, sums, strict=True)
            if so_far >= rank
        )
        return next(reached, 0)

    def distance(self, other: Spread) -> float:
        """Kolmogorov-Smirnov distance: greatest difference of the distributions."""
        if not self.counts or not other.counts:
            return 0.0 if self.counts == other.counts else 1.0
        steps: Counter[int] = Counter()
        ours, theirs = self.size, other.size
        for value, count in self.counts:
            steps[value] += count * theirs
        for value, count in other.counts:
            steps[value] -= count * ours
        sums = accumulate(steps[value] for value in sorted(steps))
        return max(map(abs, sums)) / (ours * theirs)


@dataclass(frozen=True, slots=True)
class Arriving:
    """How requests came.

    Attributes:
        duration_s: From the earliest to the latest.
        rate_rps: Mean rate over that time; 0 if all came at one instant.
        gap_cv: Coefficient of variation of the gaps: 1 for a Poisson process, more
            when requests come in bursts.
        gaps_ms: The gaps, in whole milliseconds.
        dispersion: Variance over mean of the requests per window: 1 for Poisson.
        window_s: Width of those windows.
        counts: Requests of each window that has any, by its number.
    """

    duration_s: float
    rate_rps: float
    gap_cv: float
    gaps_ms: Spread
    dispersion: float
    window_s: float
    counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Description:
    """What a trace is like.

    Attributes:
        requests: Rows that can be sent.
        prompts: Lengths of prompts, in tokens.
        outputs: Generated tokens.
        contexts: Prompt and output together, in tokens.
        arriving: How they came; None without times.
        shared_share: Part of all prompt tokens that repeats the beginning of an
            earlier prompt; None where the format says nothing of contents.
        odd: What was skipped or noted.
    """

    requests: int
    prompts: Spread
    outputs: Spread
    contexts: Spread
    arriving: Arriving | None
    shared_share: float | None
    odd: Oddities


def describe(trace: Trace) -> Description:
    """Read ``trace`` once and say what it is like.

    Raises:
        InputError: It cannot be read, or no row of it can be sent.
    """
    tally = Tally()
    with _without_collector():
        for columns in trace.columns(tally.odd):
            tally.add(columns)
    if not tally.requests:
        reasons = ", ".join(f"{n} x {r}" for r, n in tally.odd.skipped.most_common(3))
        raise InputError(
            f"{trace.path}: no request can be sent ({reasons or 'there is no row'})"
        )
    return tally.description()


@contextmanager
def _without_collector() -> Iterator[None]:
    """No search for cycles: rows are trees, and millions of them would be searched."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Bins:
    """A histogram of whole numbers that stays small."""

    counts: Counter[int] = field(default_factory=Counter)
    total: int = 0
    step: int = 1

    def add(self, values: Sequence[int]) -> None:
        self.total += sum(values)
        if self.step > 1:
            values = [v - v % self.step for v in values]
        self.counts.update(values)
        while len(self.counts) > MOST_BINS:
            self.step *= 2
            coarser: Counter[int] = Counter()
            for value, count in self.counts.items():
                coarser[value - value % self.step] += count
            self.counts = coarser

    def spread(self) -> Spread:
        return Spread(tuple(sorted(self.counts.items())), self.total, self.step)


@dataclass(slots=True)
class Tally:
    """Adds up columns; ``description`` says what came together."""

    odd: Oddities = field(default_factory=Oddities)
    requests: int = 0
    _prompts: _Bins = field(default_factory=_Bins)
    _outputs: _Bins = field(default_factory=_Bins)
    _contexts: _Bins = field(default_factory=_Bins)
    _clock: _Clock | None = None
    _shared_tokens: int | None = None

    def add(self, columns: Columns) -> None:
        """Take in a batch."""
        if not len(columns):
            return
        prompts, outputs = columns.prompt_tokens, columns.output_tokens
        self._prompts.add(prompts)
        self._outputs.add(outputs)
        self._contexts.add(list(map(add, prompts, outputs)))
        if columns.shared_tokens is not None:
            self._shared_tokens = (self._shared_tokens or 0) + sum(
                columns.shared_tokens
            )
        if columns.times_s is not None:
            if self._clock is None:
                self._clock = _Clock(columns.times_s[0])
            self._clock.add(columns.times_s, self.odd, row=self.requests + 1)
        self.requests += len(columns)

    def description(self) -> Description:
        """What all batches are like together."""
        prompts, outputs = self._prompts.spread(), self._outputs.spread()
        shared = self._shared_tokens
        ones = dict(outputs.counts).get(1, 0) if outputs.step == 1 else 0
        if ones:
            self.odd.noted[SINGLE] = ones
        return Description(
            requests=self.requests,
            prompts=prompts,
            outputs=outputs,
            contexts=self._contexts.spread(),
            arriving=self._clock.arriving(self.requests) if self._clock else None,
            shared_share=None if shared is None else shared / max(prompts.total, 1),
            odd=self.odd,
        )


class _Clock:
    """Adds up arrival times."""

    def __init__(self, origin_s: float) -> None:
        self._origin_s = self._last_s = self._latest_s = self._earliest_s = origin_s
        self._gaps = _Bins()
        self._gap_sum_s = self._square_sum = 0.0
        self._gap_count = -1  # the first request has no gap
        self._window_s, self._windows = 1.0, Counter[int]()

    def add(self, times_s: Sequence[float], odd: Oddities, *, row: int) -> None:
        gaps = list(map(sub, times_s, (self._last_s, *times_s[:-1])))
        ordered = min(gaps) >= 0
        if not ordered:
            for i, gap in enumerate(gaps):
                if gap < 0:
                    odd.note(BACKWARDS, row=row + i)
            gaps = [max(gap, 0.0) for gap in gaps]
        if self._gap_count < 0:
            gaps = gaps[1:]
            self._gap_count = 0
        self._gap_count += len(gaps)
        self._gap_sum_s += sum(gaps)
        self._square_sum += sum(map(mul, gaps, gaps))
        self._gaps.add(list(map(int, map(_MS.__mul__, gaps))))
        self._last_s = times_s[-1]
        self._latest_s = max(self._latest_s, max(times_s))  # noqa: PLW3301 - a copy
        self._earliest_s = min(self._earliest_s, min(times_s))  # noqa: PLW3301 - a copy
        self._count(times_s, ordered=ordered)

    def _count(self, times_s: Sequence[float], *, ordered: bool) -> None:
        spanned = (times_s[-1] - times_s[0]) / self._window_s
        if ordered and spanned * _ROWS_PER_SEARCH < len(times_s):
            self._count_ordered(times_s)
        else:
            origin_s, width_s = self._origin_s, self._window_s
            self._windows.update([int((t - origin_s) // width_s) for t in times_s])
        while len(self._windows) > MOST_BINS:
            self._window_s *= 2
            wider = Counter[int]()
            for window, count in self._windows.items():
                wider[window // 2] += count
            self._windows = wider

    def _count_ordered(self, times_s: Sequence[float]) -> None:
        """Few windows and many times: look for the end of each window."""
        start = 0
        while start < len(times_s):
            window = self._window(times_s[start])
            end_s = self._origin_s + (window + 1) * self._window_s
            end = max(bisect_left(times_s, end_s, start), start + 1)
            self._windows[window] += end - start
            start = end

    def _window(self, time_s: float) -> int:
        return int((time_s - self._origin_s) // self._window_s)

    def arriving(self, requests: int) -> Arriving:
        duration_s = self._latest_s - self._earliest_s
        return Arriving(
            duration_s=duration_s,
            rate_rps=(requests - 1) / duration_s if duration_s else 0.0,
            gap_cv=self._gap_cv(),
            gaps_ms=self._gaps.spread(),
            dispersion=self._dispersion(duration_s),
            window_s=self._window_s,
            counts=dict(sorted(self._windows.items())),
        )

    def _gap_cv(self) -> float:
        if not self._gap_sum_s:
            return 0.0
        mean_s = self._gap_sum_s / self._gap_count
        variance = self._square_sum / self._gap_count - mean_s * mean_s
        return math.sqrt(max(variance, 0.0)) / mean_s

    def _dispersion(self, duration_s: float) -> float:
        windows = int(duration_s // self._window_s) + 1
        mean = sum(self._windows.values()) / windows
        squares = sum(count * count for count in self._windows.values()) / windows
        return (squares - mean * mean) / mean


@dataclass(frozen=True, slots=True)
class CacheNeed:
    """Key-value memory of a trace's requests, each held whole.

    Attributes:
        mean_bytes: Of a request on average.
        median_bytes: Of a request of median length.
        p95_bytes: Of a request at the 95th percentile of length.
        longest_bytes: Of the longest.
        per_second_bytes: At the mean rate, for every second that a request stays
            (Little's law: in the system = rate x time in it); None without times.
    """

    mean_bytes: float
    median_bytes: int
    p95_bytes: int
    longest_bytes: int
    per_second_bytes: float | None


def cache_need(
    description: Description, *, request_bytes: Callable[[int], int]
) -> CacheNeed:
    """What the requests need; ``request_bytes`` gives it for a length in tokens."""
    contexts = description.contexts
    sums = (request_bytes(length) * n for length, n in contexts.counts)
    mean = sum(sums) / contexts.size
    came = description.arriving
    return CacheNeed(
        mean_bytes=mean,
        median_bytes=request_bytes(contexts.quantile(0.5)),
        p95_bytes=request_bytes(contexts.quantile(0.95)),
        longest_bytes=request_bytes(contexts.counts[-1][0]),
        per_second_bytes=came.rate_rps * mean if came else None,
    )

"""Recorded requests in, fewer of them, parts of them and mixtures of them out.

A sample is made of runs of consecutive requests: picking single ones would thin
bursts into a Poisson process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autotune.domain.workload import RequestShape, Source
from autotune.errors import InputError
from autotune.load.described import Description, Tally, describe
from autotune.load.traces import Columns, Oddities
from autotune.load.traces.files import Trace


SHORTEST_RUN = 32
_RUN_COUNTS = (1, 4, 16, 64)
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a sample is from its trace; all are 0 for a perfect one.

    Attributes:
        prompts: Kolmogorov-Smirnov distance of the prompts' lengths.
        outputs: The same of the generated tokens.
        gaps: The same of the gaps between arrivals; 0 without times.
        burstiness: Difference of the gaps' coefficients of variation, as a part of
            the trace's; 0 without times.
    """

    prompts: float
    outputs: float
    gaps: float
    burstiness: float

    @property
    def worst(self) -> float:
        """The greatest of them."""
        return max(self.prompts, self.outputs, self.gaps, self.burstiness)


def distance(sample: Description, trace: Description) -> Distance:
    """How far ``sample`` is from ``trace``."""
    gaps = burstiness = 0.0
    if sample.arriving and trace.arriving:
        gaps = sample.arriving.gaps_ms.distance(trace.arriving.gaps_ms)
        expected = trace.arriving.gap_cv
        difference = abs(sample.arriving.gap_cv - expected)
        burstiness = difference / expected if expected else difference
    return Distance(
        prompts=sample.prompts.distance(trace.prompts),
        outputs=sample.outputs.distance(trace.outputs),
        gaps=gaps,
        burstiness=burstiness,
    )


@dataclass(frozen=True, slots=True)
class Sample:
    """Where in a trace a sample lies, and how good it is.

    Attributes:
        runs: First request and the one after the last of each run, in order.
        distance: From the whole trace.
        description: Of the sample.
    """

    runs: tuple[tuple[int, int], ...]
    distance: Distance
    description: Description

    @property
    def requests(self) -> int:
        """How many requests it has."""
        return sum(end - start for start, end in self.runs)


def choose_sample(
    trace: Trace, whole: Description, *, count: int, seed: int = 0
) -> Sample:
    """Of several ways to take runs out of ``trace``, the one nearest to ``whole``.

    Few long runs keep bursts and shared prefixes; many short ones keep the mix of
    hours. Which is better depends on the trace, so both are tried and measured. The
    file is read once more; lengths and times of the candidates are held in memory.

    Raises:
        InputError: ``count`` is less than one.
    """
    if count < 1:
        raise InputError(f"a sample of {count} requests: write 1 or more")
    draw = random.Random(f"sample/{seed}")  # noqa: S311 - a sample needs repeatable draws
    candidates = [
        _Candidate(runs) for runs in _candidate_runs(whole.requests, count, draw)
    ]
    position = 0
    for columns in trace.columns(Oddities()):
        for candidate in candidates:
            candidate.add(columns, position)
        position += len(columns)
    samples = [candidate.judged(whole) for candidate in candidates]
    return min(samples, key=lambda sample: sample.distance.worst)


def _candidate_runs(
    available: int, count: int, draw: random.Random
) -> Iterator[tuple[tuple[int, int], ...]]:
    if count >= available:
        yield ((0, available),)
        return
    for run_count in _RUN_COUNTS:
        if run_count == 1 or count // run_count >= SHORTEST_RUN:
            for _ in range(_TRIES):
                yield _runs(available, count, run_count, draw)


def _runs(
    available: int, count: int, run_count: int, draw: random.Random
) -> tuple[tuple[int, int], ...]:
    """One run at a random place of each of ``run_count`` equal stretches."""
    runs = []
    for i in range(run_count):
        low, high = (available * j // run_count for j in (i, i + 1))
        length = count * (i + 1) // run_count - count * i // run_count
        start = draw.randint(low, max(low, high - length))
        runs.append((start, start + length))
    return tuple(runs)


class _Candidate:
    """Collects the lengths and times of a possible sample."""

    def __init__(self, runs: tuple[tuple[int, int], ...]) -> None:
        self.runs = runs
        self._tally = Tally()
        self._glue = _Glue()

    def add(self, columns: Columns, position: int) -> None:
        """Take what lies in the runs of the batch that begins at ``position``."""
        for start, end in self.runs:
            low, high = max(start - position, 0), min(end - position, len(columns))
            if low < high:
                self._take(columns, low, high, first=position + low == start)

    def _take(self, columns: Columns, low: int, high: int, *, first: bool) -> None:
        times = columns.times_s
        self._tally.add(
            Columns(
                columns.prompt_tokens[low:high],
                columns.output_tokens[low:high],
                None if times is None else self._glue(times[low:high], first=first),
            )
        )

    def judged(self, whole: Description) -> Sample:
        description = self._tally.description()
        return Sample(self.runs, distance(description, whole), description)


class _Glue:
    """Moves each run's times to follow the run before after that run's mean gap."""

    def __init__(self) -> None:
        self._shift_s = 0.0
        self._run: tuple[float, float, int] | None = None

    def __call__(self, times_s: Sequence[float], *, first: bool) -> list[float]:
        if first:
            follows_s = 0.0
            if self._run is not None:
                begin_s, end_s, count = self._run
                follows_s = end_s + (end_s - begin_s) / max(count - 1, 1)
            self._shift_s = follows_s - times_s[0]
            self._run = None
        moved = [t + self._shift_s for t in times_s]
        begin_s, end_s, count = self._run or (moved[0], moved[0], 0)
        self._run = (begin_s, max(end_s, *moved), count + len(moved))
        return moved


def sampled(trace: Trace, sample: Sample) -> Iterator[RequestShape]:
    """The requests of ``sample``, read from ``trace``, times from zero on."""
    glue, shapes = _Glue(), enumerate(trace.shapes(Oddities()))
    runs = iter(sample.runs)
    start, end = next(runs)
    for position, shape in shapes:
        if position >= end:
            following = next(runs, None)
            if following is None:
                return
            start, end = following
        if position >= start:
            yield _moved(shape, glue, first=position == start)


def _moved(shape: RequestShape, glue: _Glue, *, first: bool) -> RequestShape:
    if shape.arrival_s is None:
        return shape
    return replace(shape, arrival_s=glue([shape.arrival_s], first=first)[0])


def fitting(
    shapes: Iterable[RequestShape], *, max_context_tokens: int
) -> tuple[tuple[RequestShape, ...], int]:
    """The requests no longer than that, and how many are longer: not to be sent."""
    listed = tuple(shapes)
    kept = tuple(s for s in listed if s.context_tokens <= max_context_tokens)
    return kept, len(listed) - len(kept)


def split(
    shapes: Sequence[RequestShape], *, held_out: float = 0.3, stripes: int = 10
) -> tuple[tuple[RequestShape, ...], tuple[RequestShape, ...]]:
    """A part for the search and a part, held out, for the confirmation.

    Each of ``stripes`` stretches gives its end to the second part, so both parts see
    every hour; consecutive requests with the same beginning, such as the turns of a
    conversation, stay together.

    Raises:
        InputError: A part would be empty.
    """
    if not 0 < held_out < 1 or stripes < 1:
        raise InputError(f"held-out part of {held_out:g}: write more than 0, under 1")
    search: list[RequestShape] = []
    confirmation: list[RequestShape] = []
    ends = [len(shapes) * i // stripes for i in range(stripes + 1)]
    for start, end in pairwise(ends):
        cut = end - round((end - start) * held_out)
        for i in range(start, end):
            part = search if i < cut else confirmation
            other = confirmation if part is search else search
            joined = i > 0 and shapes[i - 1].group == shapes[i].group
            if joined and other and other[-1] is shapes[i - 1]:
                other.append(shapes[i])
            else:
                part.append(shapes[i])
    if not search or not confirmation:
        raise InputError(
            f"{len(shapes)} requests are too few to hold out {held_out:.0%} of them"
        )
    return tuple(search), tuple(confirmation)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded requests, one stretch after the other for the blocks.

    Attributes:
        requests: In the order they were recorded.
    """

    requests: tuple[RequestShape, ...]

    def __post_init__(self) -> None:
        if not self.requests:
            raise InputError("there is no recorded request to send")

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        return max(s.context_tokens for s in self.requests)

    def repeats(self, count: int, *, blocks: int) -> bool:
        """Whether so many blocks, and the one to warm up, send a request twice."""
        return count * (blocks + 1) > len(self.requests)

    def shapes(
        self,
        count: int,
        *,
        block: int,
        draw: random.Random,  # noqa: ARG002 - the seam's signature
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of a block; past the last comes the first again.

        Without times, the turns of a conversation stand together in a file, and
        would be sent at once: they are moved apart, first turns first.
        """
        first = (block + 1) * count
        taken = tuple(self._at(i) for i in range(first, first + count))
        return (
            taken
            if any(s.arrival_s is not None for s in taken)
            else _turns_apart(taken)
        )

    def _at(self, index: int) -> RequestShape:
        lap, place = divmod(index, len(self.requests))
        shape = self.requests[place]
        if not lap or shape.arrival_s is None:
            return shape
        return replace(shape, arrival_s=shape.arrival_s + lap * self._lap_s())

    def _lap_s(self) -> float:
        times = [s.arrival_s for s in self.requests if s.arrival_s is not None]
        span_s = max(times) - min(times)
        return span_s + span_s / max(len(times) - 1, 1)


def _turns_apart(shapes: Sequence[RequestShape]) -> tuple[RequestShape, ...]:
    """All first requests of a group, then all second ones, and so on."""
    met: Counter[int] = Counter()
    turns = []
    for shape in shapes:
        turns.append(met[shape.group])
        met[shape.group] += 1
    return tuple(shapes[i] for i in sorted(range(len(shapes)), key=turns.__getitem__))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Requests of several sources, at random by weight.

    Attributes:
        parts: Weight and source of each.
    """

    parts: tuple[tuple[float, Source], ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(weight > 0 for weight, _ in self.parts):
            raise InputError("a mixture needs parts, each with a weight above 0")

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        return max(source.context_tokens for _, source in self.parts)

    def shapes(
        self, count: int, *, block: int, draw: random.Random
    ) -> tuple[RequestShape, ...]:
        """``count`` requests; each source's own come in its own order."""
        weights = [weight for weight, _ in self.parts]
        chosen = draw.choices(range(len(self.parts)), weights, k=count)
        queues = [
            iter(source.shapes(chosen.count(i), block=block, draw=draw))
            for i, (_, source) in enumerate(self.parts)
        ]
        return tuple(self._renamed(next(queues[i]), part=i) for i in chosen)

    def _renamed(self, shape: RequestShape, *, part: int) -> RequestShape:
        """Keys and groups of parts never meet; recorded times mean nothing."""
        segments = tuple(replace(s, key=f"part{part}.{s.key}") for s in shape.segments)
        group = shape.group * len(self.parts) + part
        return replace(shape, segments=segments, group=group, arrival_s=None)


@dataclass(frozen=True, slots=True)
class Parts:
    """A trace made ready to be sent.

    Attributes:
        search: What the search sends.
        confirmation: What the confirmation sends; no request is in both.
        too_long: Requests left out because no context of the engine holds them.
        sample: Where in the trace they lie, and how far they are from it.
        whole: What the whole trace is like.
    """

    search: Recorded
    confirmation: Recorded
    too_long: int
    sample: Sample
    whole: Description


def parts_of(
    trace: Trace,
    *,
    count: int,
    max_context_tokens: int,
    held_out: float = 0.3,
    seed: int = 0,
) -> Parts:
    """A sample of ``trace`` in two parts; the file is read three times.

    Raises:
        InputError: The trace cannot be read, or too little of it can be sent.
    """
    whole = describe(trace)
    sample = choose_sample(trace, whole, count=count, seed=seed)
    shapes, too_long = fitting(
        sampled(trace, sample), max_context_tokens=max_context_tokens
    )
    if not shapes:
        raise InputError(
            f"{trace.path}: all {too_long} requests of the sample are longer than "
            f"{max_context_tokens} tokens; allow a longer context"
        )
    search, confirmation = split(shapes, held_out=held_out)
    return Parts(Recorded(search), Recorded(confirmation), too_long, sample, whole)

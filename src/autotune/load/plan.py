"""A workload, a level and a block index in; that block's requests out. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from autotune.domain.request import PlannedRequest
from autotune.domain.workload import (
    Level,
    OpenLoop,
    RequestShape,
    Segment,
    Workload,
)
from autotune.errors import InputError


WARM_UP = -1
# Token ids below this are often special (begin, end, role marks).
FIRST_ORDINARY_TOKEN = 256


def plan_block(
    workload: Workload, level: Level, *, block: int, vocabulary: int
) -> tuple[PlannedRequest, ...]:
    """The requests of one block: the same in every trial, fresh in every block.

    Ids, lengths, text and arrivals follow from the workload's seed, the level and
    the block alone (common random numbers), so trials can be compared in pairs and
    no block finds another's prompts in the prefix cache.

    Raises:
        InputError: A recorded prompt does not suit the vocabulary.
    """
    seed = f"{workload.seed}/{workload.name}/{level.label}/{block}"
    draw = random.Random(seed)  # noqa: S311 - a benchmark needs repeatable draws
    low = min(FIRST_ORDINARY_TOKEN, vocabulary // 2)
    prompts: Iterable[tuple[int, ...]]
    if workload.source is None:
        shapes = _alike(workload)
        prefix = _tokens(draw, workload.shared_prefix_tokens, low, vocabulary)
        own = workload.prompt_tokens - workload.shared_prefix_tokens
        times = _times_s(workload, level, shapes, draw)
        prompts = (prefix + _tokens(draw, own, low, vocabulary) for _ in shapes)
    else:
        shapes = workload.source.shapes(workload.requests, block=block, draw=draw)
        times = _times_s(workload, level, shapes, draw)
        prompts = _prompts(shapes, seed=seed, low=low, vocabulary=vocabulary)
    return tuple(
        PlannedRequest(
            request_id=f"{workload.name}.{level.label}.b{block}.{i}".replace(" ", "-"),
            group=shape.group,
            scheduled_s=time_s,
            prompt_token_ids=prompt,
            output_tokens=shape.output_tokens,
        )
        for i, (shape, time_s, prompt) in enumerate(
            zip(shapes, times, prompts, strict=True)
        )
    )


def arrivals_s(level: Level, count: int, draw: random.Random) -> tuple[float, ...]:
    """When each request should be sent: a Poisson process, or all at once.

    A closed loop has no schedule of its own: each slot sends its next request when
    the one before is answered.
    """
    if not isinstance(level, OpenLoop):
        return (0.0,) * count
    now, times = 0.0, []
    for _ in range(count):
        now += draw.expovariate(level.rate_rps)
        times.append(now)
    return tuple(times)


def _alike(workload: Workload) -> tuple[RequestShape, ...]:
    segments = (Segment("prompt", workload.prompt_tokens),)
    return (RequestShape(segments, workload.output_tokens),) * workload.requests


def _times_s(
    workload: Workload,
    level: Level,
    shapes: Sequence[RequestShape],
    draw: random.Random,
) -> tuple[float, ...]:
    if workload.arrivals is None or not isinstance(level, OpenLoop):
        return arrivals_s(level, len(shapes), draw)
    recorded = [s.arrival_s for s in shapes]
    return workload.arrivals.times_s(recorded, rate_rps=level.rate_rps, draw=draw)


def _prompts(
    shapes: Sequence[RequestShape], *, seed: str, low: int, vocabulary: int
) -> Iterator[tuple[int, ...]]:
    """The prompts of ``shapes``; a key is drawn once, at its greatest length."""
    longest: dict[str, int] = {}
    for segment in chain.from_iterable(s.segments for s in shapes):
        if segment.token_ids:
            _check_known(segment.token_ids, vocabulary)
        else:
            length = max(longest.get(segment.key, 0), segment.token_count)
            longest[segment.key] = length
    drawn = {
        key: _span(f"{seed}/{key}", count, low=low, vocabulary=vocabulary)
        for key, count in longest.items()
    }
    for shape in shapes:
        parts = (s.token_ids or drawn[s.key][: s.token_count] for s in shape.segments)
        yield tuple(chain.from_iterable(parts))


def _check_known(token_ids: Sequence[int], vocabulary: int) -> None:
    if max(token_ids) >= vocabulary:
        raise InputError(
            f"a recorded prompt holds token {max(token_ids)}, but the model knows "
            f"{vocabulary}: it was encoded for another model"
        )


def _span(seed: str, count: int, *, low: int, vocabulary: int) -> tuple[int, ...]:
    """``count`` token ids; four bytes each, for a prompt of 120,000 tokens is usual."""
    draw = random.Random(seed)  # noqa: S311 - a benchmark needs repeatable draws
    width = vocabulary - low
    words = memoryview(draw.randbytes(4 * count)).cast("I")
    return tuple([low + word % width for word in words])


def _tokens(
    draw: random.Random, count: int, low: int, vocabulary: int
) -> tuple[int, ...]:
    return tuple(draw.choices(range(low, vocabulary), k=count))

"""A workload, a level and a block index in; that block's requests out. Pure."""

from __future__ import annotations

import random

from autotune.domain.request import PlannedRequest
from autotune.domain.workload import Level, OpenLoop, Workload


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
    """
    draw = random.Random(f"{workload.seed}/{workload.name}/{level.label}/{block}")  # noqa: S311 - a benchmark needs repeatable draws
    low = min(FIRST_ORDINARY_TOKEN, vocabulary // 2)
    prefix = _tokens(draw, workload.shared_prefix_tokens, low, vocabulary)
    arrivals = arrivals_s(level, workload.requests, draw)
    own_tokens = workload.prompt_tokens - workload.shared_prefix_tokens
    return tuple(
        PlannedRequest(
            request_id=f"{workload.name}.{level.label}.b{block}.{i}".replace(" ", "-"),
            group=0,
            scheduled_s=arrival,
            prompt_token_ids=prefix + _tokens(draw, own_tokens, low, vocabulary),
            output_tokens=workload.output_tokens,
        )
        for i, arrival in enumerate(arrivals)
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


def _tokens(
    draw: random.Random, count: int, low: int, vocabulary: int
) -> tuple[int, ...]:
    return tuple(draw.choices(range(low, vocabulary), k=count))

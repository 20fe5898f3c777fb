"""Shared beginnings are shared as built, and the cache's share of them is known."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.request import PlannedRequest
from autotune.domain.workload import (
    ClosedLoop,
    OpenLoop,
    RequestShape,
    Segment,
    Workload,
)
from autotune.errors import InputError
from autotune.load.lengths import Fixed, Uniform
from autotune.load.plan import plan_block
from autotune.load.prefixes import (
    LONG_CONTEXT,
    Conversations,
    Independent,
    SharedPrefixes,
    cached_tokens,
    hit_share,
    hit_share_by_turn,
)
from autotune.load.sampling import Mixture, Recorded
from autotune.load.workloads import WORKLOADS


LEVEL = ClosedLoop(4)


def plan(source, *, requests=64, block=0, level=LEVEL, seed=0):
    workload = Workload("w", 1, 1, requests, 1, (level,), seed=seed, source=source)
    return plan_block(workload, level, block=block, vocabulary=5000)


def request(tokens, group=0):
    return PlannedRequest("r", group, 0.0, tuple(tokens), 1)


SOURCES = [
    Independent(Uniform(5, 60), Uniform(1, 9)),
    SharedPrefixes(3, 40, Uniform(5, 30), Fixed(4), share=0.7),
    Conversations(4, 20, Uniform(5, 30), Uniform(4, 9)),
    Mixture(
        (
            (2.0, SharedPrefixes(2, 32, Fixed(8), Fixed(3))),
            (1.0, Independent(Fixed(9), Fixed(2))),
        )
    ),
    Recorded(
        (RequestShape((Segment("a", 9),), 3), RequestShape((Segment("b", 7),), 2))
    ),
]


@pytest.mark.parametrize("source", SOURCES)
def test_a_block_is_the_same_in_every_trial_and_fresh_in_every_block(source):
    assert plan(source) == plan(source)
    first, second = plan(source, block=0), plan(source, block=1)
    assert not cached_across(first, second)


def cached_across(first, second):
    """Tokens of the second block that the first has left in the cache."""
    alone = sum(cached_tokens(second, block_tokens=4))
    return sum(cached_tokens((*first, *second), block_tokens=4)[len(first) :]) - alone


@pytest.mark.parametrize("source", SOURCES)
def test_no_request_is_longer_than_the_source_says(source):
    planned = plan(source)

    assert len(planned) == 64
    assert all(
        0 < len(r.prompt_token_ids) + r.output_tokens <= source.context_tokens
        for r in planned
    )
    assert all(r.output_tokens >= 1 for r in planned)
    assert all(0 <= t < 5000 for r in planned for t in r.prompt_token_ids)


def test_a_workload_needs_the_context_of_its_source():
    workload = replace(WORKLOADS["smoke"], source=LONG_CONTEXT)

    assert workload.context_tokens == 120_256
    assert replace(workload, source=None).context_tokens == (
        workload.prompt_tokens + workload.output_tokens
    )


def test_a_long_context_is_planned_in_full():
    planned = plan(Independent(Fixed(120_000), Fixed(256)), requests=1)

    assert [(len(r.prompt_token_ids), r.output_tokens) for r in planned] == [
        (120_000, 256)
    ]


def test_the_hit_share_of_shared_prefixes_is_what_was_built_in():
    planned = plan(SharedPrefixes(4, 160, Fixed(40), Fixed(8)), requests=200)

    # 4 of 200 requests are the first of their group; the others find 160 of 200.
    assert hit_share(planned).share == pytest.approx(0.8 * 196 / 200)


def test_only_the_chosen_share_of_requests_begins_with_a_system_prompt():
    planned = plan(SharedPrefixes(4, 160, Fixed(40), Fixed(8), share=0.5), requests=400)
    shared = [r for r in planned if r.group < 4]

    assert 160 < len(shared) < 240
    assert {r.group for r in shared} == {0, 1, 2, 3}
    assert hit_share(planned).share == pytest.approx(0.8 * (len(shared) - 4) / 400)


def test_every_turn_of_a_conversation_begins_with_the_prompt_before():
    planned = plan(Conversations(5, 32, Fixed(16), Fixed(16)), requests=20)
    talks = [[r for r in planned if r.group == g] for g in range(4)]

    for talk in talks:
        prompts = [r.prompt_token_ids for r in talk]
        assert [len(p) for p in prompts] == [48, 80, 112, 144, 176]
        for before, after in pairwise(prompts):
            assert after[: len(before)] == before


def test_the_hit_share_of_a_conversation_grows_turn_by_turn():
    planned = plan(Conversations(5, 32, Fixed(16), Fixed(16)), requests=20)

    shares = [s.share for s in hit_share_by_turn(planned)]

    # Later turns find their last prompt: 48/80, 80/112, 112/144, 144/176.
    assert shares[1:] == pytest.approx([48 / 80, 80 / 112, 112 / 144, 144 / 176])
    # The first find the system prompt, all but the very first of them.
    assert shares[0] == pytest.approx(3 * 32 / (4 * 48))


def test_a_prompt_known_in_full_still_computes_its_last_block():
    same = tuple(range(32))

    assert cached_tokens([request(same), request(same)]) == (0, 16)
    assert cached_tokens([request(same), request((*same, 1))]) == (0, 32)


def test_a_block_counts_only_behind_the_same_beginning():
    first = request(range(32))
    second = request((*range(100, 116), *range(16, 32), 7))

    assert cached_tokens([first, second]) == (0, 0)


def test_larger_blocks_share_coarser_prefixes():
    planned = plan(SharedPrefixes(1, 100, Fixed(100), Fixed(1)), requests=2)

    by_block = {n: cached_tokens(planned, block_tokens=n)[1] for n in (1, 16, 64, 128)}
    assert by_block == {1: 100, 16: 96, 64: 64, 128: 0}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=8),
    st.integers(1, 4),
)
def test_cached_tokens_agree_with_comparing_every_pair_of_prompts(prompts, size):
    computed = cached_tokens([request(p) for p in prompts], block_tokens=size)

    for i, prompt in enumerate(prompts):
        longest = 0
        for other in prompts[:i]:
            same = 0
            while same < min(len(prompt), len(other)) and prompt[same] == other[same]:
                same += 1
            longest = max(longest, same // size * size)
        assert computed[i] == min(longest, (len(prompt) - 1) // size * size)


def test_a_workload_without_a_source_still_shares_its_one_prefix():
    workload = Workload("w", 64, 8, 16, 1, (LEVEL,), shared_prefix_tokens=32)
    planned = plan_block(workload, OpenLoop(2.0), block=0, vocabulary=5000)

    assert cached_tokens(planned) == (0, *[32] * 15)


def test_a_mixture_keeps_its_weights_and_its_parts_apart():
    shared = SharedPrefixes(1, 32, Fixed(8), Fixed(3))
    planned = plan(Mixture(((3.0, shared), (1.0, shared))), requests=400)
    groups = [r.group for r in planned]

    assert set(groups) == {0, 1}
    assert 260 < groups.count(0) < 340
    beginnings = {(r.group, r.prompt_token_ids[:32]) for r in planned}
    assert len(beginnings) == 2


def test_a_recorded_prompt_is_sent_as_it_is_and_must_suit_the_model():
    known = Recorded((RequestShape((Segment("a", 2, (17, 18)),), 3),))
    strange = Recorded((RequestShape((Segment("a", 2, (17, 9999)),), 3),))

    assert plan(known, requests=1)[0].prompt_token_ids == (17, 18)
    with pytest.raises(InputError, match="another model"):
        plan(strange, requests=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SharedPrefixes(0, 5, Fixed(1), Fixed(1)),
        lambda: SharedPrefixes(1, 5, Fixed(1), Fixed(1), share=1.5),
        lambda: Conversations(0, 5, Fixed(1), Fixed(1)),
        lambda: Mixture(()),
        lambda: Mixture(((0.0, LONG_CONTEXT),)),
        lambda: Recorded(()),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(make):
    with pytest.raises(InputError):
        make()

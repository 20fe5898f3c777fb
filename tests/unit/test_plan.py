"""Blocks are the same in every trial and fresh among themselves."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import ClosedLoop, OpenLoop, Workload
from autotune.load.plan import WARM_UP, arrivals_s, plan_block
from autotune.load.workloads import WORKLOADS


WORKLOAD = Workload(
    "w",
    prompt_tokens=12,
    output_tokens=5,
    requests=6,
    blocks=2,
    levels=(ClosedLoop(2),),
    shared_prefix_tokens=4,
)
LEVELS = st.one_of(
    st.builds(OpenLoop, st.floats(0.1, 1000)),
    st.builds(ClosedLoop, st.integers(1, 64)),
)


def plan(workload=WORKLOAD, level=None, *, block=0, vocabulary=1000):
    level = level or ClosedLoop(2)
    return plan_block(workload, level, block=block, vocabulary=vocabulary)


@given(LEVELS, st.integers(-1, 9), st.integers(0, 2**31))
def test_a_block_is_the_same_in_every_trial(level, block, seed):
    workload = replace(WORKLOAD, seed=seed)

    assert plan(workload, level, block=block) == plan(workload, level, block=block)


@given(st.integers(2, 50_000), st.integers(WARM_UP, 5))
def test_requests_have_the_lengths_asked_for_and_tokens_of_the_vocabulary(
    vocabulary, block
):
    requests = plan(block=block, vocabulary=vocabulary)

    assert len(requests) == WORKLOAD.requests
    assert len({r.request_id for r in requests}) == WORKLOAD.requests
    for request in requests:
        assert len(request.prompt_token_ids) == WORKLOAD.prompt_tokens
        assert request.output_tokens == WORKLOAD.output_tokens
        assert all(0 <= t < vocabulary for t in request.prompt_token_ids)


def test_no_block_finds_anothers_prompts_in_the_cache():
    prompts = [{r.prompt_token_ids for r in plan(block=b)} for b in range(-1, 4)]

    assert len(set.union(*prompts)) == 5 * WORKLOAD.requests
    heads = {next(iter(p))[:4] for p in prompts}
    assert len(heads) == 5


def test_ids_differ_between_blocks_levels_and_workloads():
    other = replace(WORKLOAD, name="v")
    ids = [
        {r.request_id for r in requests}
        for requests in (
            plan(),
            plan(block=1),
            plan(level=OpenLoop(2.0)),
            plan(other),
        )
    ]

    assert len(set.union(*ids)) == 4 * WORKLOAD.requests


def test_another_seed_is_another_text():
    assert plan() != plan(replace(WORKLOAD, seed=1))


def test_prompts_of_a_block_share_their_prefix_and_nothing_else():
    prompts = [r.prompt_token_ids for r in plan(vocabulary=50_000)]

    assert len({p[:4] for p in prompts}) == 1
    assert len({p[4:] for p in prompts}) == len(prompts)


def test_ordinary_tokens_are_used_where_the_vocabulary_has_them():
    tokens = {t for r in plan(vocabulary=50_000) for t in r.prompt_token_ids}

    assert min(tokens) >= 256


@given(st.floats(0.01, 1e4), st.integers(0, 200), st.integers())
def test_the_pacer_never_goes_backwards(rate_rps, count, seed):
    times = arrivals_s(OpenLoop(rate_rps), count, random.Random(seed))

    assert len(times) == count
    assert all(0 <= a <= b for a, b in pairwise((0.0, *times)))


@pytest.mark.parametrize("rate_rps", [0.5, 20.0, 3000.0])
def test_the_pacer_keeps_its_mean_rate_and_is_as_uneven_as_poisson(rate_rps):
    count = 20_000
    times = arrivals_s(OpenLoop(rate_rps), count, random.Random(7))
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    variance = sum((g - mean) ** 2 for g in gaps) / len(gaps)

    assert count / times[-1] == pytest.approx(rate_rps, rel=0.03)
    assert variance**0.5 / mean == pytest.approx(1.0, rel=0.05)


def test_a_closed_loop_has_no_schedule():
    assert arrivals_s(ClosedLoop(3), 4, random.Random(0)) == (0.0,) * 4


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda w: w.name)
def test_a_shipped_workloads_requests_fit_the_context_it_states(workload):
    longest = max(
        len(r.prompt_token_ids) + r.output_tokens
        for r in plan(workload, block=WARM_UP, vocabulary=32_000)
    )

    assert longest <= workload.context_tokens

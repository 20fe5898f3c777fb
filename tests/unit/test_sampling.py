"""A sample keeps what makes a trace hard; parts and mixtures keep apart."""

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.workload import RequestShape, Segment
from autotune.errors import InputError
from autotune.load import described
from autotune.load.described import Spread, Tally, cache_need, describe
from autotune.load.sampling import (
    Recorded,
    choose_sample,
    distance,
    fitting,
    parts_of,
    sampled,
    split,
)
from autotune.load.traces import Columns, Oddities
from autotune.load.traces.files import open_trace


def spread(values):
    counts = {v: values.count(v) for v in sorted(values)}
    return Spread(tuple(counts.items()), sum(values))


@pytest.fixture(scope="module")
def bursty(tmp_path_factory):
    """Bursts of eight within a second, a pause, and lengths that drift by day."""
    draw, now_s = random.Random(3), 0.0
    path = tmp_path_factory.mktemp("traces") / "bursty.csv"
    rows = ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"]
    for i in range(6000):
        now_s += draw.expovariate(0.05) if i % 8 == 0 else draw.expovariate(10)
        prompt = round(draw.lognormvariate(5 + i / 6000, 0.8)) + 1
        output = round(draw.lognormvariate(4, 0.5)) + 1
        rows.append(f"{now_s:.4f},GPT-4,{prompt},{output},{prompt + output},API log")
    path.write_text("\n".join(rows))
    return open_trace(path)


def test_a_sample_keeps_burstiness_and_length_mix(bursty):
    whole = describe(bursty)
    assert whole.arriving.gap_cv > 2.5

    sample = choose_sample(bursty, whole, count=800)

    assert sample.requests == 800
    assert sample.distance.worst < 0.12


def test_a_sample_is_no_worse_than_any_single_run_and_better_than_thinning(bursty):
    whole = describe(bursty)
    sample = choose_sample(bursty, whole, count=800)
    times = [s.arrival_s for s in bursty.shapes(Oddities())]
    thinned = sorted(random.Random(0).sample(times, 800))
    gaps = [b - a for a, b in pairwise(thinned)]
    thinned_cv = statistics.pstdev(gaps) / statistics.mean(gaps)

    # Single requests picked at random come more like a Poisson process.
    assert thinned_cv < 0.75 * whole.arriving.gap_cv
    assert sample.description.arriving.gap_cv == pytest.approx(
        whole.arriving.gap_cv, rel=0.12
    )


def test_what_is_written_is_what_was_measured(bursty):
    whole = describe(bursty)
    sample = choose_sample(bursty, whole, count=500, seed=4)

    shapes = list(sampled(bursty, sample))

    tally = Tally()
    tally.add(
        Columns(
            [s.prompt_tokens for s in shapes],
            [s.output_tokens for s in shapes],
            [s.arrival_s for s in shapes],
        )
    )
    again = distance(tally.description(), whole)
    assert again.worst == pytest.approx(sample.distance.worst, abs=1e-6)
    assert [s.arrival_s for s in shapes] == sorted(s.arrival_s for s in shapes)
    assert shapes[0].arrival_s == 0.0


def test_the_same_seed_takes_the_same_sample(bursty):
    whole = describe(bursty)

    first, again, other = (
        choose_sample(bursty, whole, count=300, seed=s).runs for s in (1, 1, 2)
    )
    assert first == again != other


def test_a_sample_of_more_than_there_is_takes_everything(bursty):
    sample = choose_sample(bursty, describe(bursty), count=10**6)

    assert sample.requests == 6000
    assert sample.distance.worst == 0.0


def test_a_sample_of_nothing_is_refused(bursty):
    with pytest.raises(InputError, match="1 or more"):
        choose_sample(bursty, describe(bursty), count=0)


@given(
    st.lists(st.integers(1, 20), min_size=1), st.lists(st.integers(1, 20), min_size=1)
)
def test_the_distance_is_the_greatest_difference_of_the_distributions(ours, theirs):
    expected = max(
        abs(
            sum(v <= x for v in ours) / len(ours)
            - sum(v <= x for v in theirs) / len(theirs)
        )
        for x in {*ours, *theirs}
    )

    assert spread(ours).distance(spread(theirs)) == pytest.approx(expected)


@given(st.lists(st.integers(1, 50), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_smallest_value_that_the_share_does_not_exceed(values, share):
    quantile = spread(values).quantile(share)

    assert sum(v <= quantile for v in values) >= share * len(values) - 1e-9
    assert sum(v < quantile for v in values) < share * len(values) + 1e-9


def test_histograms_stay_small_and_keep_their_mean(monkeypatch):
    monkeypatch.setattr(described, "MOST_BINS", 1000)
    tally = Tally()
    draw = random.Random(0)
    values = [draw.randrange(1, 10**8) for _ in range(6000)]
    for start in range(0, len(values), 700):
        batch = values[start : start + 700]
        tally.add(Columns(batch, batch))

    prompts = tally.description().prompts

    assert len(prompts.counts) <= 1000
    assert prompts.mean == pytest.approx(statistics.mean(values))
    assert prompts.quantile(0.5) == pytest.approx(statistics.median(values), rel=0.01)


def test_times_in_any_batches_give_the_same_description():
    draw, times = random.Random(5), [0.0]
    for _ in range(3000):
        times.append(times[-1] + draw.expovariate(3))
    ones = [1] * len(times)
    results = []
    for size in (1000, 77):
        tally = Tally()
        for start in range(0, len(times), size):
            end = start + size
            tally.add(Columns(ones[start:end], ones[start:end], times[start:end]))
        results.append(tally.description().arriving)

    assert results[0].gap_cv == pytest.approx(results[1].gap_cv)
    assert results[0].counts == results[1].counts
    assert results[0].gap_cv == pytest.approx(1.0, abs=0.08)
    assert results[0].dispersion == pytest.approx(1.0, abs=0.15)
    assert results[0].rate_rps == pytest.approx(3.0, rel=0.08)


def test_a_time_that_goes_back_is_noted_and_no_gap_is_negative():
    tally = Tally()
    tally.add(Columns([1] * 3, [1] * 3, [5.0, 4.0, 9.0]))

    came = tally.description().arriving

    assert sum(tally.odd.noted.values()) == 1 + 3
    assert came.duration_s == 5.0
    assert came.gaps_ms.counts == ((0, 1), (5000, 1))


def test_the_memory_a_trace_needs_follows_from_its_lengths(bursty):
    whole = describe(bursty)

    need = cache_need(whole, request_bytes=lambda tokens: 1000 * tokens)

    assert need.mean_bytes == pytest.approx(1000 * whole.contexts.mean)
    assert need.p95_bytes == 1000 * whole.contexts.quantile(0.95)
    assert need.longest_bytes >= need.p95_bytes >= need.median_bytes
    assert need.per_second_bytes == pytest.approx(
        need.mean_bytes * whole.arriving.rate_rps
    )


def shape(i, *, group=None, prompt=4):
    return RequestShape(
        (Segment(f"k{i}", prompt),), 2, group=i if group is None else group
    )


@given(st.integers(2, 300), st.floats(0.1, 0.9), st.integers(1, 20))
@settings(deadline=None)
def test_search_and_confirmation_share_no_request_and_lose_none(count, share, stripes):
    shapes = [shape(i) for i in range(count)]

    try:
        search, confirmation = split(shapes, held_out=share, stripes=stripes)
    except InputError:
        assert count < 2 * stripes / min(share, 1 - share)
        return

    assert sorted(s.group for s in (*search, *confirmation)) == list(range(count))
    assert abs(len(confirmation) - count * share) <= stripes


def test_both_parts_reach_over_the_whole_time():
    search, confirmation = split([shape(i) for i in range(1000)])

    assert len(confirmation) == 300
    assert min(s.group for s in confirmation) < 100
    assert max(s.group for s in search) > 900


def test_turns_of_a_conversation_stay_in_one_part():
    shapes = [shape(i, group=i // 7) for i in range(700)]

    search, confirmation = split(shapes)

    assert not {s.group for s in search} & {s.group for s in confirmation}


@pytest.mark.parametrize("held_out", [0.0, 1.0, -1.0])
def test_a_part_of_nothing_cannot_be_held_out(held_out):
    with pytest.raises(InputError):
        split([shape(i) for i in range(10)], held_out=held_out)


def test_requests_that_no_context_holds_are_counted_not_sent():
    kept, too_long = fitting(
        [shape(0), shape(1, prompt=99), shape(2)], max_context_tokens=100
    )

    assert [s.group for s in kept] == [0, 2]
    assert too_long == 1


def test_a_trace_is_made_ready_in_two_parts(bursty):
    parts = parts_of(bursty, count=600, max_context_tokens=1000)

    searched = len(parts.search.requests)
    confirmed = len(parts.confirmation.requests)
    assert searched + confirmed + parts.too_long == 600
    assert 0.25 < confirmed / (searched + confirmed) < 0.35
    assert parts.too_long > 0
    assert max(s.context_tokens for s in parts.search.requests) <= 1000


def test_a_trace_of_which_nothing_fits_is_refused(bursty):
    with pytest.raises(InputError, match="longer than 2 tokens"):
        parts_of(bursty, count=600, max_context_tokens=2)


def recorded(count):
    return Recorded(
        tuple(
            RequestShape((Segment(f"k{i}", 4),), 2, arrival_s=float(i))
            for i in range(count)
        )
    )


def test_blocks_take_one_stretch_after_the_other_and_start_again_at_the_end():
    source = recorded(5)
    draw = random.Random(0)

    keys = [
        [s.segments[0].key for s in source.shapes(2, block=block, draw=draw)]
        for block in (-1, 0, 1)
    ]

    assert keys == [["k0", "k1"], ["k2", "k3"], ["k4", "k0"]]
    assert not source.repeats(2, blocks=1)
    assert source.repeats(2, blocks=2)


def test_recorded_times_go_on_past_the_end():
    source = recorded(5)

    times = [s.arrival_s for s in source.shapes(4, block=0, draw=random.Random(0))]

    assert times == [4.0, 5.0, 6.0, 7.0]


def test_turns_recorded_without_times_are_moved_apart():
    source = Recorded(tuple(shape(i, group=i // 3) for i in range(6)))

    taken = source.shapes(6, block=-1, draw=random.Random(0))

    assert [s.group for s in taken] == [0, 1, 0, 1, 0, 1]
    assert [s.segments[0].key for s in taken if s.group == 1] == ["k3", "k4", "k5"]

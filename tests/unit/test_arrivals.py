"""Arrival processes have the rate and the burstiness they were given."""

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.workload import (
    ClosedLoop,
    OpenLoop,
    RequestShape,
    Segment,
    Workload,
)
from autotune.errors import InputError
from autotune.load.arrivals import (
    Constant,
    Gamma,
    Poisson,
    Ramp,
    Replay,
    natural_rate_rps,
)
from autotune.load.lengths import Fixed
from autotune.load.plan import plan_block
from autotune.load.prefixes import Independent
from autotune.load.sampling import Recorded


NONE = (None,) * 4000


def times(process, recorded=NONE, *, rate_rps=5.0, seed=0):
    return process.times_s(recorded, rate_rps=rate_rps, draw=random.Random(seed))


def gap_cv(times_s):
    gaps = [b - a for a, b in pairwise(times_s)]
    return statistics.pstdev(gaps) / statistics.mean(gaps)


@given(
    st.sampled_from(
        [Poisson(), Gamma(0.2), Gamma(4), Constant(), Ramp(0.5, 2), Ramp(3, 0.1)]
    ),
    st.floats(0.01, 1000),
    st.integers(0, 50),
)
def test_times_never_go_backwards_and_there_is_one_for_each_request(
    process, rate_rps, count
):
    sent = times(process, (None,) * count, rate_rps=rate_rps)

    assert len(sent) == count
    assert list(sent) == sorted(sent)
    assert all(t >= 0 for t in sent)


@pytest.mark.parametrize("process", [Poisson(), Gamma(0.5), Gamma(4), Constant()])
def test_the_mean_rate_is_the_levels(process):
    assert 4.6 < len(NONE) / times(process)[-1] < 5.4


@pytest.mark.parametrize(("burstiness", "cv"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_the_gaps_of_gamma_arrivals_vary_by_one_over_the_root_of_burstiness(
    burstiness, cv
):
    assert gap_cv(times(Gamma(burstiness))) == pytest.approx(cv, rel=0.1)


def test_constant_arrivals_have_equal_gaps():
    assert times(Constant(), (None,) * 4, rate_rps=2.0) == (0.0, 0.5, 1.0, 1.5)


def test_a_ramp_from_half_to_one_and_a_half_sends_three_eighths_in_its_first_half():
    sent = times(Ramp(0.5, 1.5))
    half = len(NONE) / 5.0 / 2

    assert sum(t < half for t in sent) / len(sent) == pytest.approx(0.375, abs=0.03)
    assert len(NONE) / sent[-1] == pytest.approx(5.0, rel=0.08)


def test_a_replay_keeps_the_form_of_the_gaps_and_takes_the_levels_rate():
    sent = times(Replay(), (10.0, 10.0, 11.0, 14.0), rate_rps=3.0)

    assert sent == pytest.approx((0.0, 0.0, 0.25, 1.0))
    assert natural_rate_rps(sent) == pytest.approx(3.0)


def test_a_replay_with_a_time_scale_ignores_the_levels_rate():
    assert times(Replay(2.0), (0.0, 1.0, 4.0)) == (0.0, 0.5, 2.0)


def test_a_replay_survives_times_that_repeat_or_go_backwards():
    assert times(Replay(1.0), (5.0, 4.0, 6.0)) == (0.0, 0.0, 1.0)
    assert times(Replay(), (5.0, 5.0)) == (0.0, 0.0)
    assert times(Replay(), ()) == ()


def test_a_replay_of_requests_without_times_is_refused():
    with pytest.raises(InputError, match="without times"):
        times(Replay(), (1.0, None))


@pytest.mark.parametrize(
    "make",
    [lambda: Gamma(0), lambda: Ramp(0, 1), lambda: Ramp(1, -1), lambda: Replay(0)],
)
def test_a_process_that_never_sends_is_refused(make):
    with pytest.raises(InputError):
        make()


def planned(workload, level, block=0):
    requests = plan_block(workload, level, block=block, vocabulary=1000)
    return [r.scheduled_s for r in requests]


def test_a_workload_sends_an_open_loop_by_its_own_arrivals():
    source = Independent(Fixed(4), Fixed(2))
    workload = Workload("w", 4, 2, 3, 1, (), source=source, arrivals=Constant())

    assert planned(workload, OpenLoop(2.0)) == [0.0, 0.5, 1.0]
    assert planned(workload, ClosedLoop(2)) == [0.0, 0.0, 0.0]


def test_a_recorded_workload_replays_its_own_times():
    shapes = tuple(
        RequestShape((Segment(f"k{i}", 4),), 2, arrival_s=t)
        for i, t in enumerate((0.0, 1.0, 1.0, 5.0))
    )
    workload = Workload(
        "w", 4, 2, 4, 1, (), source=Recorded(shapes), arrivals=Replay(1.0)
    )

    assert planned(workload, OpenLoop(9.0), block=-1) == [0.0, 1.0, 1.0, 5.0]

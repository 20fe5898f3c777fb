"""Spending levels against published bounds, and the t statistic they are used with."""

import numpy as np
import pytest
from scipy import stats

from autotune.score.sequential import nominal_levels, t_quantile


def test_one_look_spends_everything():
    assert nominal_levels(0.025, (12,)) == pytest.approx((0.025,), rel=1e-3)


def test_the_first_look_spends_what_pocock_type_spending_allows():
    first, *_ = nominal_levels(0.025, (5, 8, 12))

    assert first == pytest.approx(0.025 * np.log(1 + (np.e - 1) * 5 / 12), rel=1e-4)


def test_the_walk_crosses_as_often_as_promised():
    looks, alpha = (5, 8, 12), 0.05
    walks = np.random.default_rng(3).normal(size=(40_000, 12)).cumsum(axis=1)
    bounds = stats.norm.isf(nominal_levels(alpha, looks)) * np.sqrt(looks)

    crossed = (walks[:, [look - 1 for look in looks]] >= bounds).any(axis=1)

    assert crossed.mean() == pytest.approx(alpha, abs=4 * 0.0011)


def test_the_t_statistic_at_these_levels_errs_no_more_than_promised():
    looks, alpha = (5, 8, 12), 0.025
    pairs = np.random.default_rng(4).normal(size=(40_000, 12))
    crossed = np.zeros(len(pairs), dtype=bool)
    for look, level in zip(looks, nominal_levels(alpha, looks), strict=True):
        seen = pairs[:, :look]
        t = seen.mean(axis=1) / seen.std(axis=1, ddof=1) * np.sqrt(look)
        crossed |= t >= t_quantile(level, look - 1)

    assert crossed.mean() == pytest.approx(alpha, abs=4 * 0.0008)


@pytest.mark.parametrize("alpha", [0, 0.5, -1])
def test_an_error_that_is_no_probability_is_refused(alpha):
    with pytest.raises(ValueError, match="alpha"):
        nominal_levels(alpha, (5, 8))


@pytest.mark.parametrize("looks", [(), (5, 5), (8, 5), (0, 5)])
def test_looks_that_do_not_increase_are_refused(looks):
    with pytest.raises(ValueError, match="increasing"):
        nominal_levels(0.05, looks)

"""Distributions of lengths keep their promises."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InputError
from autotune.load.lengths import Fixed, Lognormal, Observed, Uniform, read_lengths


def draws(lengths, *, count=2000, seed=0):
    draw = random.Random(seed)
    return [lengths.draw(draw) for _ in range(count)]


@given(st.integers(0, 1000), st.integers(1, 500), st.integers(0, 500))
def test_a_length_is_never_outside_its_range(seed, low, width):
    high = low + width
    for lengths in (
        Fixed(high),
        Uniform(low, high),
        Lognormal((low + high) / 2, 1.5, low, high),
        Observed.of({low: 3, high: 1}),
    ):
        drawn = draws(lengths, count=20, seed=seed)

        assert all(low <= length <= high for length in drawn)
        assert lengths.longest == high


def test_the_same_seed_draws_the_same_lengths():
    assert draws(Lognormal(500, 1.0)) == draws(Lognormal(500, 1.0))


def test_lognormal_lengths_have_the_median_that_was_asked_for():
    median = statistics.median(draws(Lognormal(500, 0.8)))

    assert 460 < median < 540


def test_uniform_lengths_reach_both_ends():
    assert set(draws(Uniform(3, 5))) == {3, 4, 5}


def test_observed_lengths_come_as_often_as_they_were_seen():
    drawn = draws(Observed.of({10: 900, 500: 100}))

    assert 0.07 < drawn.count(500) / len(drawn) < 0.13


def test_a_file_of_lengths_may_hold_a_bom_blank_lines_and_no_final_newline(tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_bytes(b"\xef\xbb\xbf7\r\n\r\n7\n12")

    assert read_lengths(path).counts == ((7, 2), (12, 1))


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"0", b"-3", b"1e3", b"\xff", b"9" * 50]
)
def test_a_file_without_lengths_is_refused_by_name(tmp_path, content):
    path = tmp_path / "lengths.txt"
    path.write_bytes(content)

    with pytest.raises(InputError, match=r"lengths\.txt"):
        read_lengths(path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Uniform(5, 4),
        lambda: Lognormal(10, -1),
        lambda: Lognormal(10, 1, 20, 30),
        lambda: Observed(()),
    ],
)
def test_a_distribution_without_sense_is_refused(make):
    with pytest.raises(InputError):
        make()

"""Tokens are counted in the server's words and stamped where they arrived."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.sse import Delta, Usage
from autotune.load.tally import Tally, share


def text(total: int | None = None, *, finish: str | None = None) -> Delta:
    usage = None if total is None else Usage(8, total, None)
    return Delta(has_output=True, has_choices=True, finish_reason=finish, usage=usage)


def usage(total: int) -> Delta:
    return Delta(usage=Usage(8, total, 2))


DONE = Delta(done=True)
ROLE = Delta(has_choices=True)


def run(*deltas: Delta) -> tuple[Tally, list[tuple[float, int]]]:
    tally = Tally()
    chunks = [
        chunk
        for second, delta in enumerate(deltas)
        for chunk in tally.add(delta, received_s=float(second))
    ]
    return tally, [(chunk.received_s, chunk.token_count) for chunk in chunks]


def test_stated_usage_counts_each_chunk_as_it_comes():
    _, chunks = run(text(1), text(2), text(5), text(6, finish="length"), usage(6), DONE)

    assert chunks == [(0, 1), (1, 1), (2, 3), (3, 1)]


def test_a_closing_usage_is_shared_by_the_chunks_before_it():
    _, chunks = run(text(), text(), text(finish="length"), usage(6), DONE)

    assert chunks == [(0, 2), (1, 2), (2, 2)]


def test_role_chunks_before_the_first_output_start_no_clock():
    _, chunks = run(ROLE, ROLE, text(1), text(2), DONE)

    assert chunks[0] == (2, 1)


def test_a_first_token_without_text_starts_the_clock_where_the_server_counts_it():
    role = Delta(has_choices=True, usage=Usage(8, 0, None))
    held = Delta(has_choices=True, usage=Usage(8, 1, None))

    _, chunks = run(role, held, text(2), text(3))

    assert chunks == [(1, 1), (2, 1), (3, 1)]


def test_an_answer_without_any_text_is_whole_where_the_server_counts_its_tokens():
    silent = [Delta(has_choices=True, usage=Usage(8, n, None)) for n in (1, 2)]

    tally, chunks = run(*silent, DONE)

    assert chunks == [(0, 1), (1, 1)]
    assert tally.missing() is None


def test_a_token_whose_text_is_held_back_is_stamped_at_its_own_arrival():
    held = Delta(has_choices=True, usage=Usage(8, 2, None))

    _, chunks = run(text(1), held, text(3))

    assert chunks == [(0, 1), (1, 1), (2, 1)]


def test_usage_after_the_last_token_does_not_move_its_stamp():
    _, chunks = run(text(1), text(2), usage(4), DONE)

    assert chunks[-1] == (1, 2)


def test_token_ids_count_where_usage_is_silent():
    ids = Delta(has_output=True, has_choices=True, token_count=3)

    _, chunks = run(ids, ids, DONE)

    assert chunks == [(0, 3), (1, 3)]


def test_what_only_the_end_tells_comes_with_the_closing_chunk():
    tally, _ = run(text(1), text(2, finish="length"), usage(2), DONE)

    closing = tally.closing()

    assert (closing.token_count, closing.prompt_tokens) == (0, 8)
    assert (closing.cached_tokens, closing.finish_reason) == (2, "length")
    assert closing.received_s == 1.0


@pytest.mark.parametrize(
    ("deltas", "reason"),
    [
        ((), "broke off"),
        ((text(1), text(2)), "broke off"),
        ((ROLE, DONE), "without any output"),
        ((text(), text(), DONE), "no usage"),
    ],
)
def test_an_answer_that_is_not_whole_says_what_it_lacks(deltas, reason):
    tally, _ = run(*deltas)

    assert reason in (tally.missing() or "")


def test_an_answer_that_finished_without_done_is_whole():
    tally, _ = run(text(1, finish="stop"))

    assert tally.missing() is None


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_shares_add_up_and_keep_both_ends(total, parts):
    counts = share(total, parts)

    assert (sum(counts), len(counts)) == (total, parts)
    assert min(counts) >= 0
    assert counts[0] >= 1
    assert total == 1 or counts[-1] >= 1


deltas = st.builds(
    Delta,
    has_output=st.booleans(),
    has_choices=st.booleans(),
    token_count=st.none() | st.integers(0, 5),
    finish_reason=st.none() | st.just("length"),
    usage=st.none()
    | st.builds(Usage, st.none(), st.none() | st.integers(0, 50), st.none()),
    done=st.booleans(),
)


@given(st.lists(deltas, max_size=20))
def test_any_order_of_events_keeps_stamps_in_order_and_counts_at_or_above_zero(order):
    _, chunks = run(*order)

    stamps = [stamp for stamp, _ in chunks]
    assert stamps == sorted(stamps)
    assert all(count >= 0 for _, count in chunks)

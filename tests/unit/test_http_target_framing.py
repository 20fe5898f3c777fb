"""HTTP/1.1 responses are followed to their end, or refused with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.framing import MAX_HEAD_BYTES, ResponseFraming


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def follow(*pieces: bytes) -> tuple[ResponseFraming, bytes]:
    framing = ResponseFraming()
    return framing, b"".join([framing.feed(piece) for piece in pieces])


def test_chunks_are_joined_to_the_body():
    framing, body = follow(CHUNKED, b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n\r\n")

    assert (framing.status, body) == (200, b"abcde")
    assert framing.complete
    assert framing.keep_alive


def test_a_chunk_of_crlfs_is_content():
    _, body = follow(CHUNKED, b"4\r\n\r\n\r\n\r\n", b"0\r\n\r\n")

    assert body == b"\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=5), st.data())
def test_how_a_chunked_body_is_split_never_changes_it(contents, data):
    wire = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in contents)
    wire += b"0\r\nTrailer: x\r\n\r\n"
    cut = data.draw(st.integers(0, len(wire)))
    again = data.draw(st.integers(cut, len(wire)))

    framing, body = follow(wire[:cut], wire[cut:again], wire[again:])

    assert (framing.complete, body) == (True, b"".join(contents))


def test_a_counted_body_ends_at_its_length():
    framing, body = follow(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", b"c")

    assert (framing.complete, framing.keep_alive, body) == (True, True, b"abc")


def test_bytes_after_the_end_make_the_connection_unfit_for_another_request():
    framing, body = follow(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc")

    assert (body, framing.keep_alive) == (b"a", False)


def test_a_body_without_length_ends_with_the_connection():
    framing, body = follow(b"HTTP/1.1 200 OK\r\n\r\nab", b"c")

    assert (body, framing.complete) == (b"abc", False)
    assert framing.close()


def test_a_chunked_body_that_the_peer_closes_early_is_not_whole():
    framing, _ = follow(CHUNKED, b"5\r\nab")

    assert not framing.close()


def test_interim_answers_are_passed_over():
    framing, _ = follow(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n")

    assert (framing.status, framing.complete) == (204, True)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_a_server_that_will_close_is_not_written_to_again(head):
    assert not follow(head)[0].keep_alive


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"2\r\nabc\r\n",
        CHUNKED + b"1" * 2000,
        b"HTTP/1.1 200 " + b"x" * MAX_HEAD_BYTES,
    ],
)
def test_what_is_no_response_is_refused(wire):
    with pytest.raises(ValueError, match=r"response|status|header|length"):
        follow(wire)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_body_or_are_refused(data, in_body):
    try:
        _, body = follow(CHUNKED if in_body else b"", data)
    except ValueError:
        return
    assert len(body) <= len(data)

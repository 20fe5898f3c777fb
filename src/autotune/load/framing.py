"""HTTP/1.1 response bytes in, status, headers and body bytes out; no I/O."""

from __future__ import annotations

from enum import Enum, auto


MAX_HEAD_BYTES = 64 * 1024
MAX_SIZE_LINE_BYTES = 1024


class _Part(Enum):
    HEAD = auto()
    LENGTH = auto()
    SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    COMPLETE = auto()


class ResponseFraming:
    """Follows one response through its head, its body and its end.

    Attributes:
        status: The status code; 0 until the head is complete.
        headers: Names in lower case, with values, in order.
        keep_alive: Whether the connection may carry another request.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.keep_alive = True
        self._part = _Part.HEAD
        self._buffer = b""
        self._left = 0

    @property
    def complete(self) -> bool:
        """Whether the body has come to its end."""
        return self._part is _Part.COMPLETE

    @property
    def started(self) -> bool:
        """Whether the head is complete."""
        return self.status > 0

    def feed(self, data: bytes) -> bytes:
        """The body bytes in ``data``.

        Raises:
            ValueError: The bytes are no HTTP/1.1 response.
        """
        if not self._buffer and self._part is _Part.SIZE:
            whole = _only_chunk(data)
            if whole is not None:
                return whole
        self._buffer += data
        body: list[bytes] = []
        while self._step(body):
            pass
        if self.complete and self._buffer:
            self.keep_alive = False
        return b"".join(body)

    def close(self) -> bool:
        """Note that the peer closed; whether the response is whole."""
        if self._part is _Part.UNTIL_CLOSE:
            self._part = _Part.COMPLETE
        self.keep_alive = False
        return self.complete

    def _step(self, body: list[bytes]) -> bool:
        match self._part:
            case _Part.HEAD:
                return self._read_head()
            case _Part.CHUNK | _Part.LENGTH:
                return self._read_counted(body)
            case _Part.UNTIL_CLOSE:
                body.append(self._buffer)
                self._buffer = b""
                return False
            case _Part.COMPLETE:
                return False
            case _:
                return self._read_framing_line()

    def _line(self, limit: int) -> bytes | None:
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            if len(line) > limit:
                raise ValueError("a line of the response is too long")
            return None
        self._buffer = rest
        return line.removesuffix(b"\r")

    def _read_head(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_HEAD_BYTES or not _may_be_http(head):
                raise ValueError(f"not an HTTP/1.1 response: {head[:60]!r}")
            return False
        self._buffer = rest
        first, *lines = head.split(b"\r\n")
        status = _status(first)
        if 100 <= status < 200:  # noqa: PLR2004 - interim answers precede the real one
            return True
        self.status = status
        self.headers = [_header(line) for line in lines]
        self.keep_alive = first.startswith(b"HTTP/1.1")
        self._choose_body()
        return True

    def _choose_body(self) -> None:
        known = dict(self.headers)
        if b"close" in known.get(b"connection", b"").lower():
            self.keep_alive = False
        if self.status in (204, 304):
            self._part = _Part.COMPLETE
        elif b"chunked" in known.get(b"transfer-encoding", b"").lower():
            self._part = _Part.SIZE
        elif b"content-length" in known:
            self._left = _whole(known[b"content-length"], base=10)
            self._part = _Part.LENGTH if self._left else _Part.COMPLETE
        else:
            self.keep_alive = False
            self._part = _Part.UNTIL_CLOSE

    def _read_framing_line(self) -> bool:
        line = self._line(MAX_SIZE_LINE_BYTES)
        if line is None:
            return False
        if self._part is _Part.SIZE:
            self._left = _whole(line.partition(b";")[0], base=16)
            self._part = _Part.CHUNK if self._left else _Part.TRAILER
        elif self._part is _Part.CHUNK_END:
            if line:
                raise ValueError("a chunk of the response is longer than it said")
            self._part = _Part.SIZE
        elif not line:
            self._part = _Part.COMPLETE
        return True

    def _read_counted(self, body: list[bytes]) -> bool:
        taken = self._buffer[: self._left]
        if not taken:
            return False
        body.append(taken)
        self._buffer = self._buffer[len(taken) :]
        self._left -= len(taken)
        if not self._left:
            chunked = self._part is _Part.CHUNK
            self._part = _Part.CHUNK_END if chunked else _Part.COMPLETE
        return True


def _only_chunk(data: bytes) -> bytes | None:
    """The content, if ``data`` is one whole chunk: how servers write each token."""
    start = data.find(b"\r\n") + 2
    if start < 3 or not data.endswith(b"\r\n"):  # noqa: PLR2004 - a digit, CR and LF
        return None
    size = _whole(data[: start - 2].partition(b";")[0], base=16)
    return data[start:-2] if size and len(data) == start + size + 2 else None


def _may_be_http(head: bytes) -> bool:
    return head[:5] == b"HTTP/"[: len(head)]


def _status(line: bytes) -> int:
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):  # noqa: PLR2004 - version and code
        raise ValueError(f"not an HTTP/1.1 response: {line[:60]!r}")
    status = _whole(words[1], base=10)
    if not 100 <= status <= 999:  # noqa: PLR2004 - three digits, RFC 9110 section 15
        raise ValueError(f"not a status: {words[1][:20]!r}")
    return status


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon:
        raise ValueError(f"not a header: {line[:60]!r}")
    return name.strip().lower(), value.strip()


def _whole(digits: bytes, *, base: int) -> int:
    text = digits.strip()
    allowed = b"0123456789abcdefABCDEF" if base == 16 else b"0123456789"  # noqa: PLR2004 - hexadecimal
    if not text or len(text) > 15 or text.strip(allowed):  # noqa: PLR2004 - beyond any body
        raise ValueError(f"not a length: {digits[:20]!r}")
    return int(text, base)

"""Stamped events of one stream in, output chunks that add up to the usage out."""

from __future__ import annotations

from autotune.load import Chunk
from autotune.load.sse import Delta, Usage


class Tally:
    """Counts one stream's tokens in the server's words, not in chunks.

    A chunk can hold several tokens, or a token's text can be held back. Where events
    state cumulative usage or token ids, each chunk is counted at once; where only a
    closing usage comes, chunks wait for it and share its total evenly. The first
    chunk is one with output, or one whose stated count has grown; usage that comes
    after the last token never moves its stamp.
    """

    def __init__(self) -> None:
        self.usage = Usage(None, None, None)
        self.finish_reason: str | None = None
        self.done = False
        self._counted = 0
        self._listed = 0
        self._waiting_s: list[float] = []
        self._last_s: float | None = None

    def add(self, delta: Delta, *, received_s: float) -> list[Chunk]:
        """Chunks that became countable with ``delta``, stamped as they arrived."""
        self.done = self.done or delta.done
        self.finish_reason = delta.finish_reason or self.finish_reason
        total = self._stated_total(delta)
        grew = total is not None and total > self._counted and not self._waiting_s
        # A token may come without text: held back until its character is whole, or
        # special. The server's own count says that it came.
        if delta.has_output or (delta.has_choices and grew):
            self._waiting_s.append(received_s)
            self._last_s = received_s
        if total is None or self._last_s is None:
            return []
        return self._settle(total)

    def missing(self) -> str | None:
        """What the stream still owes; None when the answer is whole."""
        if not self.done and self.finish_reason is None:
            return "the stream broke off before its end"
        if self._last_s is None:
            return "the stream ended without any output"
        if not self._counted:
            return "the server stated no usage, so its tokens cannot be counted"
        return None

    def closing(self) -> Chunk:
        """A last chunk without tokens that carries what only the end tells."""
        return Chunk(
            received_s=self._last_s or 0.0,
            token_count=0,
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            finish_reason=self.finish_reason,
        )

    def _stated_total(self, delta: Delta) -> int | None:
        if delta.token_count is not None:
            self._listed += delta.token_count
        if delta.usage is not None:
            self.usage = _newer(delta.usage, than=self.usage)
            return delta.usage.output_tokens
        return self._listed if delta.token_count is not None else None

    def _settle(self, total: int) -> list[Chunk]:
        owed = total - self._counted
        if owed <= 0 or self._last_s is None:
            return []
        stamps, self._waiting_s = self._waiting_s or [self._last_s], []
        self._counted = total
        return [
            Chunk(received_s=stamp, token_count=count)
            for stamp, count in zip(stamps, share(owed, len(stamps)), strict=True)
        ]


def share(total: int, parts: int) -> list[int]:
    """``total`` tokens over ``parts`` chunks, as evenly as whole numbers allow.

    With fewer tokens than chunks the first and the last chunk keep one each (where
    there are two), so that neither end of the answer moves.
    """
    if total >= parts:
        return [(i + 1) * total // parts - i * total // parts for i in range(parts)]
    head = max(total - 1, 1)
    counts = [1] * head + [0] * (parts - head)
    counts[-1] += total - head
    return counts


def _newer(usage: Usage, *, than: Usage) -> Usage:
    def pick(new: int | None, old: int | None) -> int | None:
        return old if new is None else new

    return Usage(
        prompt_tokens=pick(usage.prompt_tokens, than.prompt_tokens),
        output_tokens=pick(usage.output_tokens, than.output_tokens),
        cached_tokens=pick(usage.cached_tokens, than.cached_tokens),
    )

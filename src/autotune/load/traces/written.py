"""Text in, a prompt segment of so many tokens out."""

from __future__ import annotations

from autotune.domain.workload import Segment
from autotune.load.traces import Encode


# Usual for English; other languages and code differ by up to a factor of two.
CHARACTERS_PER_TOKEN = 4


def segment_of(key: str, text: str, encode: Encode | None) -> Segment:
    """The text as a segment: its tokens where an encoder is given, else a guess."""
    if encode is None:
        return Segment(key, estimated_tokens(text))
    token_ids = tuple(encode(text))
    return Segment(key, len(token_ids), token_ids)


def estimated_tokens(text: str) -> int:
    """Tokens of ``text`` when no tokenizer is at hand."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)

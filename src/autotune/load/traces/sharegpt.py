"""ShareGPT conversations in, columns of requests out.

A JSON list, or one object a line, of
``{"id": …, "conversations": [{"from": "human", "value": …}, {"from": "gpt", …}]}``.
Every answer makes a request: all that was said before it is its prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, BinaryIO

from autotune.domain.workload import Segment
from autotune.load.traces import Columns, Encode, Format, Oddities
from autotune.load.traces.elements import read_elements
from autotune.load.traces.jsonl import NOT_AN_OBJECT, read_objects
from autotune.load.traces.lines import BOM, first_line
from autotune.load.traces.written import segment_of


ROWS_PER_BATCH = 1024
MOST_TURNS = 200
FEWEST_TOKENS = 4

NO_TURNS = "no list of conversation turns"
TOO_FEW_TURNS = "fewer than two turns"
BAD_TURN = "turn without text left out"
EMPTY_TURN = "empty turn left out"
ANSWER_FIRST = "answer without a question left out"
TOO_SHORT = "prompt or answer of fewer than 4 tokens"
TOO_MANY = "turns after the 200th answer left out"
NO_ANSWER = "conversation without an answer to a question"

_ANSWERS = frozenset({"gpt", "assistant", "chatgpt", "bing", "bard", "model"})


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A prompt with all its history, and the answer to it."""

    prompt: tuple[Segment, ...]
    output_tokens: int
    shared_tokens: int


@dataclass(slots=True)
class _Batch:
    exchanges: list[_Exchange] = field(default_factory=list)

    def columns(self) -> Columns:
        found = self.exchanges
        return Columns(
            [sum(s.token_count for s in e.prompt) for e in found],
            [e.output_tokens for e in found],
            shared_tokens=[e.shared_tokens for e in found],
            segments=[e.prompt for e in found],
        )


def claims(head: bytes) -> bool:
    """Whether this begins a list, or objects with conversations."""
    line = first_line(head)
    return line.startswith("[") or (line.startswith("{") and '"conversations"' in line)


def read(
    file: BinaryIO, odd: Oddities, encode: Encode | None = None
) -> Iterator[Columns]:
    """The requests of all conversations, in batches.

    Raises:
        InputError: The text is no JSON list; says at which character.
    """
    batch = _Batch()
    for number, value in _conversations(file, odd):
        batch.exchanges += _exchanges(number, value, odd, encode)
        if len(batch.exchanges) >= ROWS_PER_BATCH:
            yield batch.columns()
            batch = _Batch()
    if batch.exchanges:
        yield batch.columns()


def _conversations(file: BinaryIO, odd: Oddities) -> Iterator[tuple[int, Any]]:
    head = file.peek(1 << 16) if hasattr(file, "peek") else b""
    if head.removeprefix(BOM).lstrip()[:1] == b"{":
        return chain.from_iterable(read_objects(file, odd))
    return read_elements(file, odd)


def _exchanges(
    number: int, value: object, odd: Oddities, encode: Encode | None
) -> list[_Exchange]:
    turns = _turns(number, value, odd)
    if turns is None:
        return []
    said: list[Segment] = []
    found: list[_Exchange] = []
    last_prompt_tokens, usable, asked = 0, 0, False
    for i, (speaker, text) in enumerate(turns):
        segment = segment_of(f"talk{number}.turn{i}", text, encode)
        if speaker not in _ANSWERS:
            said.append(segment)
            asked = asked or speaker != "system"
            continue
        if not asked:
            odd.note(ANSWER_FIRST, row=number)
            continue
        usable += 1
        if usable > MOST_TURNS:
            odd.note(TOO_MANY, row=number)
            break
        prompt = tuple(said)
        prompt_tokens = sum(s.token_count for s in prompt)
        said.append(segment)
        asked = False
        if min(prompt_tokens, segment.token_count) < FEWEST_TOKENS:
            odd.skip(TOO_SHORT, row=number)
            continue
        found.append(_Exchange(prompt, segment.token_count, last_prompt_tokens))
        last_prompt_tokens = prompt_tokens
    if not usable:
        odd.skip(NO_ANSWER, row=number)
    return found


def _turns(
    number: int, value: object, odd: Oddities
) -> Sequence[tuple[str, str]] | None:
    """Speaker and text of every turn that has a text, or None with a count."""
    if not isinstance(value, dict):
        odd.skip(NOT_AN_OBJECT, row=number)
        return None
    listed = value.get("conversations", value.get("conversation"))
    if not isinstance(listed, list):
        odd.skip(NO_TURNS, row=number)
        return None
    if len(listed) < 2:  # noqa: PLR2004 - a question and an answer
        odd.skip(TOO_FEW_TURNS, row=number)
        return None
    return [turn for t in listed if (turn := _turn(number, t, odd)) is not None]


def _turn(number: int, turn: object, odd: Oddities) -> tuple[str, str] | None:
    if not isinstance(turn, dict):
        odd.note(BAD_TURN, row=number)
        return None
    text = turn.get("value", turn.get("content"))
    if not isinstance(text, str):
        odd.note(BAD_TURN, row=number)
        return None
    if not text.strip():
        odd.note(EMPTY_TURN, row=number)
        return None
    return str(turn.get("from", turn.get("role"))).casefold(), text


SHAREGPT = Format("sharegpt", claims, read)

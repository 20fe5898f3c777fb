"""A file that is one JSON list in, its elements one by one out, in bounded memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from autotune.errors import InputError
from autotune.load.traces import Oddities


CHUNK_BYTES = 1 << 20
LONGEST_ELEMENT = 8 << 20
CUT_OFF = "the list breaks off in its last element"
AFTER_END = "text after the end of the list"

_between = re.compile(r"[\s,]*")
# A value may be incomplete only where the text ends; a literal or an escape that is
# cut there fails a few characters before.
_CUT_TAIL = 16


class _Text:
    """The part of a file that is not used up yet.

    Attributes:
        text: Characters at hand.
        at: Position of the next one in it.
        passed: Characters of the file before ``text``.
        over: Whether the file has ended.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.text, self.at, self.passed, self.over = "", 0, 0, False
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode

    def more(self) -> None:
        """Drop what is used up and read on."""
        chunk = self._file.read(CHUNK_BYTES)
        self.over = not chunk
        self.passed += self.at
        self.text = self.text[self.at :] + self._decode(chunk, final=self.over)
        self.at = 0

    def peek(self) -> str:
        """The next character that is no space or comma; empty at the end."""
        while True:
            match = _between.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if self.over:
                return ""
            self.more()


def read_elements(file: BinaryIO, odd: Oddities) -> Iterator[tuple[int, Any]]:
    """Each element with its number, counted from 1.

    A list that breaks off, as after an interrupted download, gives what it has.

    Raises:
        InputError: The text is no JSON list; says at which character.
    """
    text = _Text(file)
    if text.peek() != "[":
        raise InputError("the file does not begin with a JSON list")
    text.at += 1
    number = 0
    while (following := text.peek()) not in ("", "]"):
        number += 1
        complete, value = _element(text, following)
        if not complete:
            odd.skip(CUT_OFF, row=number)
            return
        yield number, value
    if not following:
        odd.note(CUT_OFF, row=number)
        return
    text.at += 1
    if text.peek():
        odd.note(AFTER_END, row=number)


def _element(text: _Text, first: str) -> tuple[bool, Any]:
    """Whether an element is complete, and the element.

    Raises:
        InputError: It cannot become JSON however the file goes on.
    """
    decoder = json.JSONDecoder()
    wanted = 0
    while True:
        if len(text.text) - text.at >= wanted or text.over:
            try:
                value, end = decoder.raw_decode(text.text, text.at)
            except json.JSONDecodeError as error:
                _check_incomplete(text, error)
            except (ValueError, RecursionError) as error:
                raise _broken(text, text.at, str(error)) from error
            else:
                # Digits may go on in the next chunk; a list or an object is whole.
                if first in "[{" or end < len(text.text) or text.over:
                    text.at = end
                    return True, value
            # Twice the text before the next try keeps the whole cost linear.
            wanted = 2 * (len(text.text) - text.at)
        if text.over:
            return False, None
        text.more()


def _check_incomplete(text: _Text, error: json.JSONDecodeError) -> None:
    """Pass if the element may only have been cut."""
    held = len(text.text) - text.at
    cut = error.pos >= len(text.text) - _CUT_TAIL
    if not cut and not error.msg.startswith("Unterminated string"):
        raise _broken(text, error.pos, error.msg) from error
    if held > LONGEST_ELEMENT:
        raise _broken(
            text, text.at, "an element of more than 8 Mi characters"
        ) from error


def _broken(text: _Text, position: int, reason: str) -> InputError:
    place = text.passed + position + 1
    return InputError(f"the list is no JSON at character {place}: {reason[:100]}")

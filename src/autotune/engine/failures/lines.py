"""A log as text in, its statements out: who said what, how loudly, inside which frames.

Prefixes differ between vLLM versions, launchers and cloud loggers; rules should not
have to know them, so they are taken off here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace


MAX_LINE_CHARS = 4000
MAX_LINES = 50_000
MANY_ASSIGNMENTS = 8

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TAG = re.compile(
    r"\s*(\([A-Za-z_][\w\-]*,?(?: [^()]{0,40})? ?(?:pid|ip|rank)=[^()]{1,80}\)"
    r"|\[rank\d+\]:?|\[\d+,\d+\]<std\w+>:?|\([A-Z]\w*(?:_[A-Z]{2}\d+)+\)|\(title\)"
    r"|\(report\)|\d+: (?=\[|\())\s?"
)
_GLUED = re.compile(
    r"(?<=[^\s)])(?=\((?:EngineCore|Worker|APIServer|ApiServer|Vllm)\w*)"
)
_STAMP = r"\[?\d{2,4}[-/.]\d{2}(?:[-/.]\d{2,4})?[T ]\d{2}:\d{2}(?::\d{2})?[^\s|]*"
_LEVEL_NAMES = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LEVEL = re.compile(
    rf"^(?:{_STAMP}|[\w.\-]{{1,60}}\s?\||\[[^\]\n]{{1,40}}\]|[\w.]{{1,40}} - "
    rf"|(?:{_LEVEL_NAMES}):[\w.]+:|[\s|,\-]++){{0,12}}"
    rf"[\[<]?(?P<level>{_LEVEL_NAMES})\b[\]>]?"
)
_GLOG = re.compile(r"^\[?(?P<letter>[IWEF])\d{4}\s?\d{0,2}:?[\d:.]*[^\]]{0,120}\]\s?")
_RECORD_HEAD = re.compile(
    r"^[\s:|\-,]*(?:\d{2}-\d{2}\s+)?(?:\d{2}:\d{2}(?::\d{2})?(?:[.,]\d+)?)?\s*"
    r"(?:\[?[\w./\-]+\.py:\d+\]|\[[\w./ \-]+:\d+\])?(?:\s*--\s)?"
    r"(?:std(?:err|out) \| ?)?"
)
_CONTAINER = re.compile(rf"^(?:[\w.\-]{{1,60}}\s+\|\s+|{_STAMP}Z?\s+(?=\())")
_COLLECTOR = re.compile(rf"^\s*{_STAMP}Z?\s*(?:\[[^\]]{{1,80}}\]\s*)?")
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout"
    r"|Failed|NotFound|OutOfResources|Rejection|IsEnabled|Warning|Failure|Fault)"
    r"(?:_\w+)?|Exception))(?:\s*(?::|\()|$)"
)
_FRAME = re.compile(
    r'^\s*File "(?P<path>[^"]{1,400})", line \d+(?:, in (?P<name>[\w<>.]+))?'
)
_NARRATION = re.compile(
    r"^\s*(?:usage:|\[-|vllm serve \S*[/.$\"'{]|\S*python3? -m |\S*Warning:"
    r"|Exception ignored in|During handling of|The above exception was)"
    r"|\w*Warning: |resource_tracker|\bWARNING\b|^\s*\^+\s*$"
)
_LETTERS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_QUIET = frozenset({"DEBUG", "INFO", "WARNING", "WARN"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One line without its prefixes.

    Attributes:
        text: What was said.
        level: Of the log record, or "" for a bare line.
        tag: Process that said it, as printed; "" if unsaid.
        exception: Type of the exception the line states, with its module.
        frame: ``path:function`` of a traceback line.
        code: It is a source line that a traceback quotes.
        following: Up to two bare lines that come next, for text that was wrapped.
    """

    text: str
    level: str = ""
    tag: str = ""
    exception: str = ""
    frame: str = ""
    code: bool = False
    following: tuple[str, ...] = ()

    @property
    def narrates(self) -> bool:
        """Whether the line tells of progress or advice rather than of a failure."""
        return (
            (self.level in _QUIET and not self.relayed)
            or bool(_NARRATION.search(self.text) and not self.exception)
            or (self.text.count("=") >= MANY_ASSIGNMENTS and not self.exception)
            or self.exception.endswith("Warning")
        )

    @property
    def relayed(self) -> bool:
        """Whether a launcher repeats a child's exception as mere information."""
        return self.level == "INFO" and bool(self.exception)

    @property
    def complains(self) -> bool:
        """Whether something went wrong by the line's form alone."""
        return self.level in {"ERROR", "CRITICAL", "FATAL"} or bool(self.exception)


def statements(text: str) -> tuple[Statement, ...]:
    """Split ``text`` into statements, in order; never raises.

    Carriage returns of progress bars count as line ends; lines are cut at
    ``MAX_LINE_CHARS``, and of an enormous log the head and the tail are kept.
    """
    parsed: list[Statement] = []
    for line in _physical_lines(text):
        after_frame = bool(parsed) and bool(parsed[-1].frame)
        parsed.append(_parse(line, after_frame=after_frame))
    return tuple(_with_following(parsed))


def _physical_lines(text: str) -> Iterator[str]:
    clean = _ESCAPE.sub("", text).replace("\r", "\n").replace("\x00", "")
    lines = _GLUED.sub("\n", clean).split("\n")
    if len(lines) > MAX_LINES:
        half = MAX_LINES // 2
        lines = lines[:half] + lines[-half:]
    return (line[:MAX_LINE_CHARS].rstrip() for line in lines)


def _parse(line: str, *, after_frame: bool) -> Statement:
    rest, tag = _without_tags(_CONTAINER.sub("", line, count=1))
    level, rest = _without_level(rest)
    if level:
        # A log collector's own level stands before the record it carries.
        rest, inner_tag = _without_tags(_COLLECTOR.sub("", rest, count=1))
        inner, rest = _without_level(rest)
        tag, level = tag or inner_tag, inner or level
    frame = _FRAME.match(rest)
    stripped = rest.strip()
    exception = _EXCEPTION.match(stripped)
    return Statement(
        text=stripped,
        level=level,
        tag=tag,
        exception=exception["type"] if exception and not frame else "",
        frame=f"{frame['path']}:{frame['name'] or ''}" if frame else "",
        code=after_frame and not frame and not exception and rest.startswith("  "),
    )


def _without_tags(line: str) -> tuple[str, str]:
    tags = []
    while match := _TAG.match(line):
        tags.append(match[1])
        line = line[match.end() :]
    return line, " ".join(tags)


def _without_level(line: str) -> tuple[str, str]:
    if match := _GLOG.match(line):
        return _LETTERS[match["letter"]], line[match.end() :]
    if match := _LEVEL.match(line):
        rest = line[match.end() :]
        head = _RECORD_HEAD.match(rest)
        return match["level"], rest[head.end() :] if head else rest
    return "", line


def _with_following(parsed: list[Statement]) -> Iterator[Statement]:
    for index, statement in enumerate(parsed):
        following = itertools.takewhile(_continues, parsed[index + 1 : index + 3])
        yield replace(statement, following=tuple(s.text for s in following))


def _continues(statement: Statement) -> bool:
    """Whether a line may be the rest of the one above: it has no head of its own."""
    headed = statement.level or statement.tag or statement.frame or statement.exception
    return not headed and bool(statement.text)

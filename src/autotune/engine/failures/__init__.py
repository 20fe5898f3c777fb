"""What a failed start said in, its cause out: class, blame, decisive line, amounts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autotune.domain.outcome import Blame, Evidence
from autotune.engine.failures.advice import ADVICE, BLAMES, CLASSES, REQUEST_ADVICE
from autotune.engine.failures.amounts import Amounts, amounts
from autotune.engine.failures.lines import Statement, statements
from autotune.engine.failures.phases import (
    GIVEN,
    Phase,
    framed,
    framed_phase,
    narrated_phase,
    was_starting,
)
from autotune.engine.failures.rules import (
    CASCADES,
    ENDED,
    FRAMES,
    NOISE,
    REFUSALS,
    RULES,
    SETTING,
    Rank,
)


__all__ = ["CLASSES", "Diagnosis", "classify"]

SIGINT, SIGKILL, SIGTERM = 2, 9, 15
BY_SOMEBODY = frozenset({SIGINT, SIGKILL, SIGTERM})
SAME_FAILURE_LINES = 300
INNERMOST_FRAMES = 6
LONGEST_LINE_CHARS = 600
# Held by others beyond this share of the device, an allocation failure is theirs.
NEIGHBOUR_SHARE = 0.5
OUT_OF_DEVICE_MEMORY: dict[Phase | None, str] = {
    "config": "oom_weights",
    "device": "oom_weights",
    "weights": "oom_weights",
    "profile": "oom_profile",
    "kv_cache": "oom_kv_cache",
    "graph_capture": "oom_graph_capture",
    "serving": "oom_runtime",
    None: "oom_runtime",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a launch failed, as far as its words tell.

    Attributes:
        failure_class: One of ``CLASSES``.
        blames: Whose fault it is; decides penalty, retry or abort.
        line: The decisive line, without its log prefix; "" when nothing failed.
        advice: What to change.
        asked_bytes: Memory that was asked for.
        free_bytes: Memory that was there.
        shortfall_bytes: What was missing, never negative.
        needed_bytes: Memory that would have sufficed.
        max_model_len: Longest sequence that fits, in tokens, as vLLM estimates it.
    """

    failure_class: str
    blames: Blame
    line: str
    advice: str
    asked_bytes: int | None = None
    free_bytes: int | None = None
    shortfall_bytes: int | None = None
    needed_bytes: int | None = None
    max_model_len: int | None = None

    def evidence(
        self, *, log_path: str | None = None, exception: str | None = None
    ) -> Evidence:
        """The diagnosis as the fact that is stored with a trial."""
        return Evidence(
            failure_class=self.failure_class,
            blames=self.blames,
            line=self.line,
            advice=self.advice,
            log_path=log_path,
            exception=exception,
            asked_bytes=self.asked_bytes,
            free_bytes=self.free_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Finding:
    """A line that some rule recognises."""

    name: str
    rank: Rank
    index: int
    text: str
    raised: bool = False


def classify(
    log_text: str,
    *,
    exception_text: str | None = None,
    phase: str | None = None,
    signal: int | None = None,
) -> Diagnosis:
    """Name the cause of a failure; ``healthy`` when neither text states one.

    Args:
        log_text: Everything the engine and its children printed.
        exception_text: What the parent process was told, ``Type: message``.
        phase: Where the launch was when it failed, if known: ``start``,
            ``measure`` or a phase of the start.
        signal: The signal that ended the engine's process, if one did.

    Never raises, whatever the text.
    """
    said = statements(log_text)
    told = statements(exception_text or "")
    both = said + told
    finding = _best((*_findings(said), *_after(_findings(told), len(said))))
    finding = _by_signal(finding, both, phase=phase, signal=signal)
    finding = finding or _cut_short(both)
    if finding is None and exception_text:
        finding = _Finding("unknown", Rank.GENERIC, len(said), exception_text.strip())
    if finding is None:
        return _diagnosis("healthy", "", Amounts(), "nobody")
    stated = amounts(_passage(both, finding))
    name = _class(finding, both, phase, stated)
    return _diagnosis(name, finding.text, stated, _blames(name, finding, signal))


def _diagnosis(name: str, line: str, stated: Amounts, blames: Blame) -> Diagnosis:
    return Diagnosis(
        failure_class=name,
        blames=blames,
        line=line[:LONGEST_LINE_CHARS],
        advice=REQUEST_ADVICE if blames == "request" else ADVICE[name],
        asked_bytes=stated.asked_bytes,
        free_bytes=stated.free_bytes,
        shortfall_bytes=stated.shortfall_bytes,
        needed_bytes=stated.needed_bytes,
        max_model_len=stated.max_model_len,
    )


def _blames(name: str, finding: _Finding, signal: int | None) -> Blame:
    """Whom a class blames, but for three cases that tell more than their class.

    A refused request says nothing of the engine; somebody who ends the engine says
    nothing of the settings; an exception nobody knows was met under these settings.
    """
    if finding.name == "request":
        return "request"
    if name == "engine_dead" and (signal in BY_SOMEBODY or ENDED.search(finding.text)):
        return "environment"
    return "settings" if finding.name == "unknown" else BLAMES[name]


def _findings(said: Sequence[Statement]) -> Iterator[_Finding]:
    for index, statement in enumerate(said):
        finding = _recognise(statement, index)
        if finding is not None and finding.rank > Rank.GENERIC:
            yield finding
            continue
        yield from (finding,) if finding else _by_type(said, index)


def _after(findings: Iterator[_Finding], count: int) -> Iterator[_Finding]:
    for f in findings:
        yield replace(f, index=f.index + count)


def _best(findings: Sequence[_Finding]) -> _Finding | None:
    """The highest rank; among equals the first said, since cascades follow.

    Of the lines that say the same, the exception itself is the one to show.
    """
    first = max(findings, key=lambda f: (f.rank, -f.index), default=None)
    if first is None or first.raised:
        return first
    alike = (f for f in findings if f.rank == first.rank and f.name == first.name)
    near = (f for f in alike if f.raised and f.index - first.index < SAME_FAILURE_LINES)
    return next(near, first)


def _recognise(statement: Statement, index: int) -> _Finding | None:
    if statement.frame or not statement.text or NOISE.search(statement.text):
        return None
    if statement.code and "raise " not in statement.text:
        return None
    following = "" if statement.code else "".join(statement.following[:1])
    known = _known(statement.text, following, quiet=statement.narrates)
    if known is None:
        return None
    name, rank, text = known
    raised = bool(statement.exception)
    return _Finding(name, min(rank, _ceiling(statement)), index, text, raised=raised)


@lru_cache(maxsize=8192)
def _known(text: str, following: str, *, quiet: bool) -> tuple[str, Rank, str] | None:
    """What the rules make of a line; logs say the same line often."""
    text = re.sub(r"\[type=\w+, input_value=.*", "", text)
    best: tuple[str, Rank, str] | None = None
    for rule in RULES:
        if (quiet and not rule.even_quiet) or (best and best[1] >= rule.rank):
            continue
        if matched := _matched(rule.pattern, text, following):
            best = (rule.name, rule.rank, matched)
    return best


def _ceiling(statement: Statement) -> Rank:
    """How much a line of this form can explain at most."""
    return Rank.LIKELY if statement.code or statement.relayed else Rank.CAUSE


def _matched(pattern: re.Pattern[str], text: str, following: str) -> str | None:
    """The line, or the line and its continuation when a wrap cuts the words."""
    if pattern.search(text):
        return text
    for joined in (text + following, f"{text} {following}") if following else ():
        match = pattern.search(joined)
        if match and match.start() < len(text) < match.end():
            return joined
    return None


def _by_type(said: Sequence[Statement], index: int) -> Iterator[_Finding]:
    """What an exception means whose words no rule knows.

    A bare assertion blames the settings when the asserted source names one.
    """
    statement = said[index]
    kind = statement.exception.rpartition(".")[2]
    if not kind or statement.narrates or kind in CASCADES:
        return
    asserted = [s.text for s in said[max(0, index - 4) : index] if s.code]
    source = next((t for t in reversed(asserted) if t.startswith("assert")), "")
    if kind == "AssertionError" and re.search(SETTING, source, re.IGNORECASE):
        line = f"{statement.text}: {source}"
        yield _Finding("invalid_config", Rank.LIKELY, index, line)
    elif name := _by_frames(framed(said, index)):
        yield _Finding(name, Rank.GENERIC, index, statement.text, raised=True)
    elif kind in REFUSALS:
        yield _Finding("invalid_config", Rank.GENERIC, index, statement.text)
    else:
        yield _Finding("unknown", Rank.GENERIC, index, statement.text)


def _by_signal(
    finding: _Finding | None,
    said: Sequence[Statement],
    *,
    phase: str | None,
    signal: int | None,
) -> _Finding | None:
    """What a signal adds where no cause was said.

    The kernel ends a process that exhausts the host by SIGKILL, mostly while
    weights are read or memory is pinned; in an engine that already serves, a
    SIGKILL came from somebody.
    """
    if not signal or (finding and finding.rank >= Rank.LIKELY):
        return finding
    serving = (GIVEN.get(phase or "") or narrated_phase(said, len(said) - 1)) == (
        "serving"
    )
    name = "oom_host" if signal == SIGKILL and not serving else "engine_dead"
    line = finding.text if finding else f"ended by signal {signal}"
    index = finding.index if finding else len(said)
    return _Finding(name, Rank.LIKELY, index, line)


def _cut_short(said: Sequence[Statement]) -> _Finding | None:
    """A traceback whose exception is not in the excerpt, by its last frames."""
    last = max((i for i, s in enumerate(said) if s.frame), default=None)
    if last is None:
        return None
    name = _by_frames([*framed(said, last), said[last].frame]) or "unknown"
    return _Finding(name, Rank.GENERIC, last, said[last].text)


def _by_frames(frames: Sequence[str]) -> str | None:
    """The class that the innermost frames speak for, if they do."""
    for frame in reversed(frames[-INNERMOST_FRAMES:]):
        for name, pattern in FRAMES:
            if pattern.search(frame):
                return name
    return None


def _class(
    finding: _Finding, said: Sequence[Statement], phase: str | None, stated: Amounts
) -> str:
    if finding.name == "oom_device":
        return _device_class(finding, said, phase, stated)
    if finding.name == "request":
        return "other"
    if finding.name == "unknown":
        where = _phase(finding, said) or GIVEN.get(phase or "")
        return "engine_dead" if where == "serving" else "other"
    if finding.name == "invalid_config" and _lacks_capability(finding.text):
        return "unsupported_hardware"
    return finding.name


def _device_class(
    finding: _Finding, said: Sequence[Statement], phase: str | None, stated: Amounts
) -> str:
    total, others = stated.total_bytes, stated.others_bytes
    if total and others and others > NEIGHBOUR_SHARE * total:
        return "memory_not_free"
    where = (
        _worded_phase(finding.text)
        or _phase(finding, said)
        or GIVEN.get(phase or "")
        or ("profile" if was_starting(said) else None)
    )
    return OUT_OF_DEVICE_MEMORY[where]


def _phase(finding: _Finding, said: Sequence[Statement]) -> Phase | None:
    index = min(finding.index, len(said) - 1)
    return framed_phase(said, index) or narrated_phase(said, index)


def _worded_phase(text: str) -> Phase | None:
    """Phase that the decisive line names itself."""
    worded: tuple[tuple[Phase, str], ...] = (
        ("profile", r"warming up|dummy requests|profil(?:e|ing)\b|sampler"),
        ("graph_capture", r"captur\w+ .{0,20}graph|graph captur\w+|capture_model"),
        ("kv_cache", r"(?:allocat\w+|initiali\w+) .{0,30}kv[ _]?cache"),
        ("weights", r"load\w* .{0,30}(?:model|weights|checkpoint|shard)"),
        (
            "serving",
            r"(?:while|during|under) .{0,20}(?:serving|inference|load\b|bench)",
        ),
    )
    head = re.split(
        r"if (?:reserved|this) |of the allocated", text, flags=re.IGNORECASE
    )[0]
    return next((p for p, w in worded if re.search(w, head, re.IGNORECASE)), None)


def _lacks_capability(text: str) -> bool:
    """A backend refused for the device alone, not for any setting."""
    reasons = re.findall(r"([\w ]+?) not supported", text)
    return bool(reasons) and all("capability" in r for r in reasons)


def _passage(said: Sequence[Statement], finding: _Finding) -> str:
    """The decisive line with what may continue it after a hard wrap."""
    if finding.index >= len(said):
        return finding.text
    statement = said[finding.index]
    return " ".join((statement.text, *statement.following))

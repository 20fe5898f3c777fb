"""What a driver answered, kept as JSON and given again without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    Answer,
    Argument,
    Nvml,
    Refused,
    question,
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Answers by question; what was never asked is refused as not found.

    Attributes:
        answers: ``{"value": …}``, or ``{"refused": code, "text": …}``, by question.
    """

    answers: Mapping[str, Mapping[str, Any]]

    def ask(self, function: str, *arguments: Argument) -> Answer | Refused:
        """See ``Nvml.ask``."""
        asked = question(function, arguments)
        found = self.answers.get(asked)
        if found is None:
            return Refused(FUNCTION_NOT_FOUND, f"not in this recording: {asked}")
        if "refused" in found:
            return Refused(int(found["refused"]), str(found["text"]))
        answer: Answer = found["value"]
        return answer


@dataclass(slots=True)
class Recorder:
    """Passes questions on and writes the answers down, the last one of each."""

    source: Nvml
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def ask(self, function: str, *arguments: Argument) -> Answer | Refused:
        """See ``Nvml.ask``."""
        answer = self.source.ask(function, *arguments)
        if isinstance(answer, Refused):
            kept: dict[str, Any] = {"refused": answer.code, "text": answer.text}
        else:
            kept = {"value": answer}
        self.answers[question(function, arguments)] = kept
        return answer

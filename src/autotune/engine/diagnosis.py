"""A failed launch and its log in, the outcome it amounts to out."""

from __future__ import annotations

from pathlib import Path

from autotune.domain.outcome import EnvironmentFault, Infeasible, Outcome, OutOfMemory
from autotune.domain.timing import LevelResult
from autotune.engine.failures import classify
from autotune.errors import EngineFailure


def outcome_of(
    failure: EngineFailure,
    *,
    log_path: Path,
    phase: str,
    levels: tuple[LevelResult, ...],
) -> Outcome:
    """What ``failure`` says of the settings, judged by the engine's whole log."""
    log_text = log_path.read_text(errors="replace") if log_path.is_file() else ""
    found = classify(log_text, exception_text=str(failure), phase=phase)
    evidence = found.evidence(log_path=str(log_path), exception=str(failure))
    if found.blames != "settings":
        return EnvironmentFault(evidence, levels)
    if found.failure_class.startswith("oom_"):
        return OutOfMemory(
            phase=found.failure_class,
            evidence=evidence,
            shortfall_bytes=found.shortfall_bytes,
            needed_bytes=found.needed_bytes,
            levels=levels,
        )
    return Infeasible(evidence, levels)

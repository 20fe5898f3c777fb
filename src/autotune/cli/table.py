"""Finished trials in, the table people read out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from autotune.domain.layout import collapse
from autotune.domain.outcome import Measured
from autotune.domain.settings import Value
from autotune.domain.trial import Trial
from autotune.score.summary import Summary, summarize
from autotune.tune import kind


def trial_table(trials: Sequence[Trial]) -> Table:
    """Every trial with its score, latencies and what differs from the baseline."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("differs from the baseline by", overflow="fold")
    for trial in trials:
        table.add_row(*_row(trial, reference_of(trial, trials)))
    return table


COLUMNS = ("trial", "score", "TTFT p50", "p95 ms", "TPOT ms", "tok/s", "start s")


def reference_of(trial: Trial, trials: Sequence[Trial]) -> Trial | None:
    """The baseline of the trial's epoch."""
    same = (t for t in trials if t.epoch == trial.epoch and t.role == "baseline")
    return next(same, None)


def figures(trial: Trial) -> list[Summary]:
    """A summary per level; empty unless the trial was measured."""
    if not isinstance(trial.outcome, Measured):
        return []
    return [s for level in trial.outcome.levels if (s := summarize(level)) is not None]


def differences(trial: Trial, baseline: Trial | None) -> dict[str, Value]:
    """Effective values of the turned knobs that are not the baseline's."""
    ran = {**trial.changes, **trial.effective, **collapse(trial.effective)}
    before = baseline.effective if baseline else {}
    before = {**before, **collapse(before)}
    names = trial.changes
    return {n: ran[n] for n in names if n in ran and ran[n] != before.get(n)}


def describe(changes: dict[str, Value]) -> str:
    """Changes in a line."""
    return " ".join(f"{k}={v}" for k, v in changes.items()) or "nothing"


def _row(trial: Trial, baseline: Trial | None) -> list[str]:
    number = "-" if trial.number is None else str(trial.number)
    if trial.role == "baseline":
        changed = "vLLM's defaults (baseline)"
    else:
        changed = describe(differences(trial, baseline))
    summaries = figures(trial)
    start = f"{trial.phases_s['start']:.1f}" if "start" in trial.phases_s else "-"
    if not summaries:
        value = f"{trial.score.value:.0f}" if trial.score else "-"
        text = f"[red]{kind(trial.outcome)}[/red] {escape(changed)}"
        return [number, value, "-", "-", "-", "-", start, text]
    score = f"{trial.score.value:.3f}" if trial.score else "-"
    first = summaries[0]
    return [
        number,
        score,
        f"{first.ttft_p50_ms:.0f}",
        f"{first.ttft_p95_ms:.0f}",
        f"{first.tpot_mean_ms:.1f}",
        f"{first.output_tokens_per_s:.0f}",
        start,
        escape(changed),
    ]

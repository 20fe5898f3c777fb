"""A measurement in, JSON or text about it out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune import __version__
from autotune.cli.export import DUMMY_NOTE
from autotune.domain.timing import LevelResult
from autotune.load.self_test import Reading, SelfTestReport
from autotune.score.bench_fields import bench_fields
from autotune.score.summary import summarize


INCONCLUSIVE = 4
DEFINITIONS = {
    "ttft": "arrival of the first output - scheduled send time",
    "tpot": "(last token - first token) / (output tokens - 1), mean over requests; "
    "one-token answers have none",
    "itl": "gaps between neighbouring tokens",
    "figures": "median over believable blocks of each block's figure",
    "vllm names": "formulae of vllm bench serve: TTFT from the actual send, requests "
    "of all believable blocks pooled",
}
ROWS = (
    ("TTFT p50 ms", "ttft_p50_ms", 1),
    ("TTFT p95 ms", "ttft_p95_ms", 1),
    ("TTFT p99 ms", "ttft_p99_ms", 1),
    ("TPOT mean ms", "tpot_mean_ms", 2),
    ("TPOT p95 ms", "tpot_p95_ms", 2),
    ("ITL p99 ms", "itl_p99_ms", 2),
    ("output tokens/s", "output_tokens_per_s", 1),
    ("requests/s", "requests_per_s", 2),
    ("answered", "requests", 0),
    ("failed", "failed", 0),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of it.

    Attributes:
        driven: ``direct`` or ``http``.
        subject: What was measured, as plain JSON.
        levels: What was measured of it.
        outcome: Its name in a word.
        line: Why it ended early, or empty.
        exit_code: What the command ends with.
    """

    driven: str
    subject: Mapping[str, Any]
    levels: Sequence[LevelResult]
    outcome: str
    line: str
    exit_code: int

    @property
    def dummy(self) -> bool:
        """Whether the weights were random: then only speed was measured."""
        settings = self.subject.get("settings", {})
        return bool(settings.get("arguments", {}).get("load_format") == "dummy")


def to_json(measured: Measurement) -> dict[str, Any]:
    """The measurement as plain JSON, its only level's vLLM fields at the top too."""
    levels = [_level_json(level) for level in measured.levels]
    document = {
        "autotune": __version__,
        "driven": measured.driven,
        **measured.subject,
        "outcome": measured.outcome,
        "reason": measured.line or None,
        "note": DUMMY_NOTE if measured.dummy else None,
        "definitions": DEFINITIONS,
        "levels": levels,
    }
    if len(measured.levels) == 1:
        document |= bench_fields(measured.levels[0])
    known: dict[str, Any] = _without_nan(document)
    return known


def _level_json(level: LevelResult) -> dict[str, Any]:
    summary = summarize(level)
    return {
        "workload": level.workload,
        "level": level.level,
        "ended": level.ended,
        "figures": asdict(summary) if summary else None,
        "vllm_bench_serve": bench_fields(level),
        "blocks": [
            {
                "index": b.index,
                "void": b.void,
                "started_at": b.started_at.isoformat(),
                "duration_s": b.duration_s,
                "answered": len(b.timings),
                "failures": [f.reason for f in b.failures],
                "counters": dict(b.counters),
            }
            for b in level.blocks
        ],
    }


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: what is unknown is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return value


def say(measured: Measurement, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print(json.dumps(to_json(measured), indent=1))
        return
    console = Console(soft_wrap=True, markup=False, highlight=False)
    if any(summarize(level) for level in measured.levels):
        console.print(_table(measured.levels))
    for level in measured.levels:
        for text in _remarks(level):
            console.print(text)
    for name, (asked, got) in measured.subject.get("changed_silently", {}).items():
        console.print(f"{name}: asked for {asked}, runs with {got}")
    if measured.dummy:
        console.print(DUMMY_NOTE)
    if measured.line:
        console.print(f"{measured.outcome}: {measured.line}")


def _table(levels: Sequence[LevelResult]) -> Table:
    """Figures down, levels across: narrow enough for any terminal."""
    table = Table()
    table.add_column("")
    for level in levels:
        table.add_column(f"{level.workload} {level.level}", justify="right")
    figures = [asdict(s) if (s := summarize(level)) else {} for level in levels]
    for title, name, digits in ROWS:
        cells = [f"{f[name]:.{digits}f}" if f else "-" for f in figures]
        table.add_row(title, *cells)
    return table


def _remarks(level: LevelResult) -> list[str]:
    """How exactly the level is known, why it ended, and what was left out."""
    void = [b for b in level.blocks if b.void is not None]
    last = level.blocks[-1].counters if level.blocks else {}
    one_token = sum(t.tpot_s is None for t in level.timings)
    ended = (level.ended or "a fault").replace("_", " ")
    remarks = [
        (
            f"{level.workload} {level.level}: {len(level.blocks) - len(void)} blocks, "
            f"ended by {ended}; "
            f"p95 TTFT ± {_percent(last.get('ttft_p95_half_width'))}, "
            f"mean TPOT ± {_percent(last.get('tpot_mean_half_width'))}"
        )
    ]
    if one_token:
        remarks.append(f"{one_token} one-token answers have no TPOT")
    if any(not b.counters.get("caches_reset") for b in level.blocks):
        remarks.append(
            "the server cannot forget cached prefixes (vLLM can when started with "
            "VLLM_SERVER_DEV_MODE=1); prompts are fresh in each block, and in each run "
            "unless --seed repeats one"
        )
    remarks += [f"block {b.index} is void: {b.void}" for b in void]
    return remarks


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"


def say_self_test(report: SelfTestReport, *, as_json: bool) -> int:
    """Print what this machine measures truly; the exit code."""
    if as_json:
        rows = [_reading(reading) for reading in report.readings]
        truth = {k: v * 1e3 for k, v in asdict(report.latency).items()}
        document = {
            "truth_ms": truth,
            "ceiling_streams": report.ceiling_streams,
            "readings": rows,
        }
        print(json.dumps(document, indent=1))
    else:
        for reading in report.readings:
            verdict = f"void: {reading.void}" if reading.void else "valid"
            ttft_ms = (reading.ttft_p50_s * 1e3, reading.ttft_p95_s * 1e3)
            print(
                f"{reading.streams:>4} streams  "
                f"TTFT p50 {ttft_ms[0]:7.2f} p95 {ttft_ms[1]:7.2f} ms  "
                f"TPOT {reading.tpot_s * 1e3:6.3f} ms  {verdict}"
            )
        print(
            f"of a truth of {report.latency.ttft_s * 1e3:g} and "
            f"{report.latency.itl_s * 1e3:g} ms; this machine measures up to "
            f"{report.ceiling_streams} streams"
        )
    return 0 if report.ceiling_streams else INCONCLUSIVE


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "streams": reading.streams,
        "processes": reading.shards,
        "ttft_p50_ms": reading.ttft_p50_s * 1e3,
        "ttft_p95_ms": reading.ttft_p95_s * 1e3,
        "tpot_mean_ms": reading.tpot_s * 1e3,
        "output_tokens_per_s": reading.tokens_per_s,
        "lag_p99_ms": reading.lag.p99_s * 1e3,
        "void": reading.void,
    }

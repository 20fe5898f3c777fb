"""A log file in, on the screen: why the launch failed and what to change."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from autotune.engine.failures import Diagnosis, classify
from autotune.errors import InputError


STANDARD_INPUT = "-"
GIB = 2**30


def explain(
    log: Annotated[
        str, typer.Argument(help="Log of a vLLM start, or - for standard input.")
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object.")
    ] = False,
) -> None:
    """Name the cause in a vLLM log, whom it blames and what to change."""
    diagnosis = classify(_read(log))
    print(_as_json(diagnosis) if as_json else _as_text(diagnosis))


def _read(log: str) -> str:
    """Whole text of ``log``; bytes that are no UTF-8 are replaced.

    Raises:
        InputError: The file cannot be read.
    """
    if log == STANDARD_INPUT:
        return sys.stdin.buffer.read().decode(errors="replace")
    try:
        return Path(log).read_bytes().decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read {log!r}: {reason}; name a log file, or - for standard input"
        ) from error


def _as_json(diagnosis: Diagnosis) -> str:
    fields = dataclasses.asdict(diagnosis)
    return json.dumps({"class": fields.pop("failure_class"), **fields}, indent=2)


def _as_text(diagnosis: Diagnosis) -> str:
    rows = {
        "class": diagnosis.failure_class,
        "blames": diagnosis.blames,
        "line": diagnosis.line,
        "asked": _gib(diagnosis.asked_bytes),
        "free": _gib(diagnosis.free_bytes),
        "short": _gib(diagnosis.shortfall_bytes),
        "fits": _tokens(diagnosis.max_model_len),
        "advice": diagnosis.advice,
    }
    return "\n".join(f"{name:<7} {text}" for name, text in rows.items() if text)


def _gib(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / GIB:.2f} GiB"


def _tokens(count: int | None) -> str:
    return "" if count is None else f"at most {count} tokens per request"

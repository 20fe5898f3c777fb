"""Domain values in, plain rows out, and back again."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autotune.domain.outcome import (
    EnvironmentFault,
    Evidence,
    Infeasible,
    Measured,
    Outcome,
    OutOfMemory,
    Saturated,
)
from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome without its levels, which have rows of their own."""
    match outcome:
        case Measured():
            return {"kind": "measured"}
        case Saturated(sustained_rps=rate):
            return {"kind": "saturated", "sustained_rps": rate}
        case OutOfMemory():
            return {
                "kind": "out_of_memory",
                "phase": outcome.phase,
                "evidence": asdict(outcome.evidence),
                "shortfall_bytes": outcome.shortfall_bytes,
                "needed_bytes": outcome.needed_bytes,
                "predicted_fraction": outcome.predicted_fraction,
            }
        case Infeasible(evidence=evidence):
            return {"kind": "infeasible", "evidence": asdict(evidence)}
        case EnvironmentFault(evidence=evidence):
            return {"kind": "environment_fault", "evidence": asdict(evidence)}


def outcome_from_json(
    data: Mapping[str, Any], levels: tuple[LevelResult, ...]
) -> Outcome:
    """The outcome that ``outcome_to_json`` wrote, with its levels again."""
    match data["kind"]:
        case "measured":
            return Measured(levels)
        case "saturated":
            return Saturated(data["sustained_rps"], levels)
        case "out_of_memory":
            return OutOfMemory(
                data["phase"],
                Evidence(**data["evidence"]),
                data["shortfall_bytes"],
                data["needed_bytes"],
                levels,
                data.get("predicted_fraction", 0.0),
            )
        case "infeasible":
            return Infeasible(Evidence(**data["evidence"]), levels)
        case "environment_fault":
            return EnvironmentFault(Evidence(**data["evidence"]), levels)
        case other:
            raise ValueError(f"unknown kind of outcome in the database: {other!r}")


def timing_to_row(block_id: int, timing: RequestTiming) -> dict[str, Any]:
    """One answered request."""
    return {
        "block_id": block_id,
        "request_id": timing.request_id,
        "request_group": timing.group,
        "scheduled_s": timing.scheduled_s,
        "sent_s": timing.sent_s,
        "first_token_s": timing.first_token_s,
        "last_token_s": timing.last_token_s,
        "token_offsets_s": pack(timing.token_offsets_s),
        "prompt_tokens": timing.prompt_tokens,
        "output_tokens": timing.output_tokens,
        "cached_tokens": timing.cached_tokens,
        "finish_reason": timing.finish_reason,
    }


def failure_to_row(block_id: int, failure: RequestFailure) -> dict[str, Any]:
    """One request that was not answered."""
    return {
        "block_id": block_id,
        "request_id": failure.request_id,
        "scheduled_s": failure.scheduled_s,
        "sent_s": failure.sent_s,
        "failed_s": failure.failed_s,
        "reason": failure.reason,
    }


def block_from_rows(
    block: Mapping[str, Any],
    requests: Sequence[Mapping[str, Any]],
    failed: Sequence[Mapping[str, Any]],
) -> Block:
    """A block with its requests, from the three tables' rows."""
    place = {
        "workload": block["workload"],
        "level": block["level"],
        "block": block["block"],
    }
    return Block(
        workload=block["workload"],
        level=block["level"],
        index=block["block"],
        started_at=block["started_at"],
        duration_s=block["duration_s"],
        timings=tuple(_timing(r, place) for r in requests),
        failures=tuple(_failure(r, place) for r in failed),
        void=block["void"],
        counters=block["counters"],
    )


def _timing(row: Mapping[str, Any], place: Mapping[str, Any]) -> RequestTiming:
    own = {k: v for k, v in row.items() if k not in ("id", "block_id")}
    own["group"] = own.pop("request_group")
    own["token_offsets_s"] = unpack(own["token_offsets_s"])
    return RequestTiming(**own, **place)


def _failure(row: Mapping[str, Any], place: Mapping[str, Any]) -> RequestFailure:
    own = {k: v for k, v in row.items() if k not in ("id", "block_id")}
    return RequestFailure(**own, **place)


def pack(seconds: Sequence[float]) -> bytes:
    """Seconds as little-endian float64."""
    values = array("d", seconds)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpack(data: bytes) -> tuple[float, ...]:
    """Seconds from what ``pack`` made."""
    values = array("d")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)

"""What was planned and what was answered in, a reason not to compare them out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain.request import PlannedRequest
from autotune.domain.timing import RequestTiming


@dataclass(frozen=True, slots=True)
class Checks:
    """Which lengths the target promises to keep.

    Attributes:
        prompt_tokens: Prompts are sent as token ids, so none may be added or lost;
            a chat template adds some.
        output_tokens: Outputs are pinned to the planned length; not every server
            can be told to.
    """

    prompt_tokens: bool = True
    output_tokens: bool = True


EXACT = Checks()


def unequal(
    requests: Sequence[PlannedRequest],
    timings: Sequence[RequestTiming],
    *,
    checks: Checks = EXACT,
) -> str | None:
    """Why answers are not of the planned work; None when they are.

    Trials are compared on equal work: an answer of another length took another
    time. Only answered requests are looked at; the others count as failed.
    """
    planned = {r.request_id: r for r in requests}
    pairs = [(planned[t.request_id], t) for t in timings]
    if checks.output_tokens:
        off = [(p.output_tokens, t.output_tokens) for p, t in pairs]
        reason = _differing("output", off)
        if reason is not None:
            return reason
    if checks.prompt_tokens:
        off = [(len(p.prompt_token_ids), t.prompt_tokens) for p, t in pairs]
        return _differing("prompt", off)
    return None


def _differing(kind: str, lengths: Sequence[tuple[int, int]]) -> str | None:
    """``lengths`` are pairs of planned and counted tokens."""
    off = [(want, got) for want, got in lengths if want != got]
    if not off:
        return None
    want, got = off[0]
    totals = f"{sum(w for w, _ in lengths)} planned, {sum(g for _, g in lengths)} came"
    return (
        f"{len(off)} of {len(lengths)} answers have another {kind} length than planned "
        f"({got} tokens instead of {want}; in all {totals})"
    )

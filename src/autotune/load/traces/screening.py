"""Parsed rows in, columns of those that can be sent out; the others are counted."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.load.traces import Oddities


# No context is longer; a greater number is damage, and would swamp a mean.
LONGEST_TOKENS = 100_000_000

NO_PROMPT = "prompt of no tokens"
NO_OUTPUT = "no generated tokens (a failed request)"
IMPLAUSIBLE = "a length beyond 100 million tokens"


def screen(
    prompts: Sequence[int],
    outputs: Sequence[int],
    rows: Sequence[int],
    odd: Oddities,
) -> list[int] | None:
    """Indices of the rows that can be sent; None when all can, the usual case."""
    if sendable(prompts, outputs):
        return None
    kept = []
    for i, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        reason = objection(prompt, output)
        if reason is None:
            kept.append(i)
        else:
            odd.skip(reason, row=rows[i])
    return kept


def sendable(prompts: Sequence[int], outputs: Sequence[int]) -> bool:
    """Whether every one of these requests can be sent."""
    if not prompts:
        return True
    lowest, highest = min(prompts), max(prompts)
    lowest, highest = min(lowest, *outputs), max(highest, *outputs)
    return lowest > 0 and highest <= LONGEST_TOKENS


def objection(prompt_tokens: int, output_tokens: int) -> str | None:
    """Why a request of these lengths cannot be sent; None if it can."""
    if prompt_tokens <= 0:
        return NO_PROMPT
    if output_tokens <= 0:
        return NO_OUTPUT
    if max(prompt_tokens, output_tokens) > LONGEST_TOKENS:
        return IMPLAUSIBLE
    return None

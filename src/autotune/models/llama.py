"""Llama 3.x, as its published configurations describe it."""

from __future__ import annotations

from autotune.models.known import KnownModel, Shape


# <|end_of_text|>, <|eom_id|>, <|eot_id|>.
_STOP = (128001, 128008, 128009)


def _llama(
    version: str, size: str, parameters: str, sizes: tuple[int, int, int]
) -> KnownModel:
    """One of them, by layers, heads and width; the rest is common to all."""
    layers, heads, hidden = sizes
    return KnownModel(
        f"llama-{version}-{size.lower()}-instruct",
        f"meta-llama/Llama-{version}-{size}-Instruct",
        parameters,
        "hub",
        f"llama{version}",
        stop_token_ids=_STOP,
        shape=Shape(layers, heads, 8, hidden, vocabulary=128256, context=131072),
        gated=True,
    )


LLAMA = (
    _llama("3.2", "1B", "1.2 B", (16, 32, 2048)),
    _llama("3.2", "3B", "3.2 B", (28, 24, 3072)),
    _llama("3.1", "8B", "8.0 B", (32, 32, 4096)),
    _llama("3.3", "70B", "70.6 B", (80, 64, 8192)),
)

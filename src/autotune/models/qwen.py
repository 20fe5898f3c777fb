"""Qwen3, as its published configurations describe it."""

from __future__ import annotations

from autotune.models.known import KnownModel, Shape


# <|im_end|> and <|endoftext|>.
_STOP = (151645, 151643)


def _qwen3(size: str, parameters: str, sizes: tuple[int, int, int]) -> KnownModel:
    """A dense one, by layers, heads and width; the rest is common to all."""
    layers, heads, hidden = sizes
    return KnownModel(
        f"qwen3-{size.lower()}",
        f"Qwen/Qwen3-{size}",
        parameters,
        "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        shape=Shape(layers, heads, 8, hidden, vocabulary=151936, context=40960),
    )


QWEN = (
    _qwen3("0.6B", "0.6 B", (28, 16, 1024)),
    _qwen3("1.7B", "1.7 B", (28, 16, 2048)),
    _qwen3("4B", "4.0 B", (36, 32, 2560)),
    _qwen3("8B", "8.2 B", (36, 32, 4096)),
    _qwen3("14B", "14.8 B", (40, 40, 5120)),
    _qwen3("32B", "32.8 B", (64, 64, 5120)),
    KnownModel(
        "qwen3-30b-a3b",
        "Qwen/Qwen3-30B-A3B",
        "30.5 B (3.3 B active)",
        "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=48,
            heads=32,
            kv_heads=4,
            hidden=2048,
            vocabulary=151936,
            context=40960,
            experts=128,
        ),
    ),
)

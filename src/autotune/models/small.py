"""Models small enough for a CPU: SmolLM2, and one made here."""

from __future__ import annotations

from autotune.models.known import KnownModel, Shape


# <|im_end|>.
_STOP = (2,)


def _smollm2(size: str, parameters: str, shape: Shape) -> KnownModel:
    return KnownModel(
        f"smollm2-{size.lower()}",
        f"HuggingFaceTB/SmolLM2-{size}-Instruct",
        parameters,
        "package" if size == "135M" else "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        shape=shape,
    )


SMALL = (
    _smollm2("135M", "135 M", Shape(30, 9, 3, 576, vocabulary=49152, context=8192)),
    _smollm2("360M", "362 M", Shape(32, 15, 5, 960, vocabulary=49152, context=8192)),
    _smollm2("1.7B", "1.7 B", Shape(24, 32, 32, 2048, vocabulary=49152, context=8192)),
    KnownModel(
        "tiny-glm4",
        "tiny-glm4",
        "3 M, random weights",
        "made",
        "none: random",
        stop_token_ids=(1,),
        shape=Shape(
            layers=4, heads=8, kv_heads=2, hidden=256, vocabulary=2048, context=4096
        ),
        note="GLM-4's architecture for tests; its answers mean nothing",
    ),
)

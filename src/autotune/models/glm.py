"""The GLM family, as its published configurations describe it."""

from __future__ import annotations

from autotune.models.known import KnownModel, Shape


# <|endoftext|>, <|user|>, <|observation|>: an answer ends where a turn would begin.
_STOP = (151329, 151336, 151338)
_STOP_GLM5 = (154820, 154827, 154829)

_NINE = Shape(
    layers=40, heads=32, kv_heads=2, hidden=4096, vocabulary=151552, context=131072
)

GLM = (
    KnownModel(
        "glm-4-9b-chat",
        "zai-org/glm-4-9b-chat-hf",
        "9.4 B",
        "hub",
        "glm-4",
        stop_token_ids=_STOP,
        shape=_NINE,
        recipes=("prefix-and-memory", "chunked-eager-fp8", "chunked"),
    ),
    KnownModel(
        "glm-4-9b-chat-remote",
        "zai-org/glm-4-9b-chat",
        "9.4 B",
        "hub",
        "glm-4",
        stop_token_ids=_STOP,
        shape=_NINE,
        needs_remote_code=True,
        recipes=("prefix-and-memory", "chunked-eager-fp8", "chunked"),
        note="the older repository; glm-4-9b-chat has the same weights without code",
    ),
    KnownModel(
        "glm-4-9b-0414",
        "zai-org/GLM-4-9B-0414",
        "9.4 B",
        "hub",
        "MIT",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=40,
            heads=32,
            kv_heads=2,
            hidden=4096,
            vocabulary=151552,
            context=32768,
        ),
        recipes=("prefix-and-memory", "chunked-eager-fp8", "chunked"),
    ),
    KnownModel(
        "glm-4-32b-0414",
        "zai-org/GLM-4-32B-0414",
        "32 B",
        "hub",
        "MIT",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=61,
            heads=48,
            kv_heads=2,
            hidden=6144,
            vocabulary=151552,
            context=32768,
        ),
        recipes=("prefix-and-memory", "chunked"),
    ),
    KnownModel(
        "glm-4.5-air",
        "zai-org/GLM-4.5-Air",
        "106 B (12 B active)",
        "hub",
        "MIT",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=46,
            heads=96,
            kv_heads=8,
            hidden=4096,
            vocabulary=151552,
            context=131072,
            experts=128,
        ),
        recipes=("prefix-and-memory",),
    ),
    KnownModel(
        "glm-4.6",
        "zai-org/GLM-4.6",
        "355 B (32 B active)",
        "hub",
        "MIT",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=92,
            heads=96,
            kv_heads=8,
            hidden=5120,
            vocabulary=151552,
            context=202752,
            experts=160,
        ),
        recipes=("prefix-and-memory",),
    ),
    KnownModel(
        "glm-5",
        "zai-org/GLM-5",
        "744 B (40 B active)",
        "hub",
        "MIT",
        stop_token_ids=_STOP_GLM5,
        shape=Shape(
            layers=78,
            heads=64,
            kv_heads=1,
            hidden=6144,
            vocabulary=154880,
            context=202752,
            experts=256,
            latent=True,
        ),
        recipes=("prefix-and-memory",),
        note="about 1.5 TB in bfloat16: no single card holds it",
    ),
)

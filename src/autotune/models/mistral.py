"""Mistral, as its published configurations describe it."""

from __future__ import annotations

from autotune.models.known import KnownModel, Shape


_STOP = (2,)

MISTRAL = (
    KnownModel(
        "mistral-7b-instruct-v0.3",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "7.2 B",
        "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=32,
            heads=32,
            kv_heads=8,
            hidden=4096,
            vocabulary=32768,
            context=32768,
        ),
    ),
    KnownModel(
        "mistral-nemo-instruct-2407",
        "mistralai/Mistral-Nemo-Instruct-2407",
        "12.2 B",
        "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        # Its repositories state different contexts, so none is stated here.
        shape=Shape(
            layers=40,
            heads=32,
            kv_heads=8,
            hidden=5120,
            vocabulary=131072,
            context=None,
        ),
    ),
    KnownModel(
        "mistral-small-24b-instruct-2501",
        "mistralai/Mistral-Small-24B-Instruct-2501",
        "23.6 B",
        "hub",
        "Apache-2.0",
        stop_token_ids=_STOP,
        shape=Shape(
            layers=40,
            heads=32,
            kv_heads=8,
            hidden=5120,
            vocabulary=131072,
            context=32768,
        ),
    ),
)

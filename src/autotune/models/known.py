"""What is known of one model: plain facts, no weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


Source = Literal["hub", "package", "made"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that decide how a model can be split and what it needs.

    Attributes:
        layers: Transformer layers, without those for multi-token prediction.
        heads: Attention heads.
        kv_heads: Key and value heads; 1 with latent attention, whose cached vector
            all heads share.
        hidden: Width of the hidden state.
        vocabulary: Token ids, padding included.
        context: Longest request in tokens; None where sources disagree.
        experts: Routed experts of a layer; 0 in a dense model.
        latent: Whether a compressed vector is cached instead of keys and values.
    """

    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    context: int | None
    experts: int = 0
    latent: bool = False


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be named by an alias.

    Attributes:
        alias: What people type.
        model_id: Hugging Face id.
        parameters: Size, for people.
        source: How it gets here: from the hub, from a package, or made locally.
        license: SPDX identifier, or the name its publisher gave it.
        stop_token_ids: Tokens that end an answer, as its generation configuration
            lists them; empty where they are not known here.
        shape: Its sizes; None where they are not known here.
        needs_remote_code: It runs code from its repository: off unless asked for.
        gated: The hub asks for an account that has accepted the licence.
        recipes: Names of the recipes that were published for it.
        note: What a user should know first.
    """

    alias: str
    model_id: str
    parameters: str
    source: Source
    license: str
    stop_token_ids: tuple[int, ...] = ()
    shape: Shape | None = None
    needs_remote_code: bool = False
    gated: bool = False
    recipes: tuple[str, ...] = field(default=())
    note: str = ""

"""A Hugging Face configuration in, what memory depends on out, or an abstention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.memory.precision import DTYPE_BYTES, Abstain


Config = Mapping[str, object]

# Families whose layers are exactly what this room counts. Anything else abstains.
_DENSE = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "glm",
        "glm4",
        "chatglm",
        "phi3",
        "gemma",
        "gemma2",
        "gemma3_text",
        "granite",
        "olmo2",
        "smollm3",
        "seed_oss",
    }
)
_EXPERTS = frozenset(
    {
        "mixtral",
        "qwen2_moe",
        "qwen3_moe",
        "glm4_moe",
        "gpt_oss",
    }
)
_LATENT = frozenset(
    {
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "glm4_moe_lite",
        "glm_moe_dsa",
    }
)
_NEVER_WINDOWED = frozenset({"llama", "glm", "glm4", "chatglm", "qwen3_moe"})

_OLD_NAMES: Mapping[str, str] = {
    "num_layers": "num_hidden_layers",
    "multi_query_group_num": "num_key_value_heads",
    "kv_channels": "head_dim",
    "ffn_hidden_size": "intermediate_size",
    "padded_vocab_size": "vocab_size",
    "seq_length": "max_position_embeddings",
    "num_local_experts": "num_experts",
    "n_routed_experts": "num_experts",
    "dtype": "torch_dtype",
}


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector per token, for all heads.

    Attributes:
        query_rank: Rank of the query projection; None where it is a full matrix.
        cache_rank: Width of what is cached, without the rotary part.
        rotary_dim: Width of the rotary part, cached beside it.
        plain_dim: Width of a query or key head without the rotary part.
        value_dim: Width of a value head.
        index_bytes: Bytes a sparse-attention indexer caches per token and layer.
    """

    query_rank: int | None
    cache_rank: int
    rotary_dim: int
    plain_dim: int
    value_dim: int
    index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts of the layers that have one.

    Attributes:
        count: Routed experts per layer.
        per_token: Routed experts a token visits.
        intermediate_size: Inner width of one routed expert.
        shared_size: Inner width of all shared experts together.
        layer_count: Layers that have experts; the others are dense.
    """

    count: int
    per_token: int
    intermediate_size: int
    shared_size: int
    layer_count: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What memory depends on.

    Attributes:
        windows: One entry per layer: its sliding window in tokens, None if full.
        max_positions: Longest context of the configuration, in tokens.
        element_bytes: Bytes of one weight before quantization.
        tied: Whether input and output embedding are one matrix.
        quantization_config: The checkpoint's, empty if it has none.
    """

    model_type: str
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    head_count: int
    kv_head_count: int
    head_dim: int
    windows: tuple[int | None, ...]
    max_positions: int
    element_bytes: int
    tied: bool
    latent: Latent | None = None
    experts: Experts | None = None
    quantization_config: Mapping[str, object] | None = None

    @property
    def layer_count(self) -> int:
        """Decoder layers."""
        return len(self.windows)


class _Unknown(Exception):
    """Raised inside this module only; ``read_shape`` turns it into ``Abstain``."""


def read_shape(config: Config) -> ModelShape | Abstain:
    """The shape behind a ``config.json``, or why it is not known."""
    renamed = {_OLD_NAMES.get(name, name): value for name, value in config.items()}
    try:
        return _read({**renamed, **config})
    except _Unknown as unknown:
        return Abstain(str(unknown))


def _read(config: Config) -> ModelShape:
    family = str(config.get("model_type"))
    if family not in _DENSE | _EXPERTS | _LATENT:
        raise _Unknown(f"model type {family!r} is not known to the memory model")
    hidden, heads = _int(config, "hidden_size"), _int(config, "num_attention_heads")
    layers = _int(config, "num_hidden_layers")
    quantization = config.get("quantization_config")
    return ModelShape(
        model_type=family,
        hidden_size=hidden,
        intermediate_size=_int(config, "intermediate_size"),
        vocab_size=_int(config, "vocab_size"),
        head_count=heads,
        kv_head_count=_kv_heads(config, heads),
        head_dim=_int(config, "head_dim", hidden // heads),
        windows=_windows(config, family=family, layers=layers),
        max_positions=_max_positions(config),
        element_bytes=_element_bytes(config),
        tied=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
        latent=_latent(config) if family in _LATENT else None,
        experts=None if family in _DENSE else _experts(config, layers=layers),
        quantization_config=quantization if isinstance(quantization, Mapping) else None,
    )


def _int(config: Config, name: str, default: int | None = None) -> int:
    value = config.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if default is None:
        raise _Unknown(f"the configuration has no number under {name!r}")
    return default


def _kv_heads(config: Config, heads: int) -> int:
    # Old ChatGLM configurations say with a flag whether the groups count.
    if config.get("multi_query_attention") is False:
        return heads
    return _int(config, "num_key_value_heads", heads)


def _element_bytes(config: Config) -> int:
    name = str(config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    if name not in DTYPE_BYTES:
        raise _Unknown(f"dtype {name!r} is not known to the memory model")
    return DTYPE_BYTES[name]


def _max_positions(config: Config) -> int:
    positions = _int(config, "max_position_embeddings")
    scaling = config.get("rope_scaling")
    if not isinstance(scaling, Mapping):
        return positions
    kind = scaling.get("rope_type", scaling.get("type"))
    factor, original = (
        scaling.get(k) for k in ("factor", "original_max_position_embeddings")
    )
    if kind == "yarn" and isinstance(factor, int | float) and isinstance(original, int):
        return int(original * factor)
    return positions


def _windows(config: Config, *, family: str, layers: int) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    kinds = config.get("layer_types")
    if isinstance(kinds, list | tuple):
        return _windows_by_kind([str(k) for k in kinds], window, layers=layers)
    unused = family in _NEVER_WINDOWED or config.get("use_sliding_window") is False
    if not isinstance(window, int) or unused:
        return (None,) * layers
    if family in {"gemma2", "gpt_oss"}:
        return tuple(None if i % 2 else window for i in range(layers))
    if family == "gemma3_text":
        pattern = _int(config, "sliding_window_pattern", 6)
        return tuple(window if (i + 1) % pattern else None for i in range(layers))
    first = _int(config, "max_window_layers", 0) if family.startswith("qwen") else 0
    return tuple(window if i >= first else None for i in range(layers))


def _windows_by_kind(
    kinds: list[str], window: object, *, layers: int
) -> tuple[int | None, ...]:
    odd = set(kinds) - {"full_attention", "sliding_attention"}
    if odd:
        raise _Unknown(f"layers of kind {sorted(odd)} keep a state of another form")
    if len(kinds) < layers:
        raise _Unknown("layer_types names fewer layers than num_hidden_layers")
    if "sliding_attention" in kinds and not isinstance(window, int):
        raise _Unknown("sliding layers without a sliding_window")
    size = window if isinstance(window, int) else None
    return tuple(size if k == "sliding_attention" else None for k in kinds[:layers])


def _latent(config: Config) -> Latent:
    query_rank = config.get("q_lora_rank")
    index_dim = _int(config, "index_head_dim", 0)
    return Latent(
        query_rank=query_rank if isinstance(query_rank, int) else None,
        cache_rank=_int(config, "kv_lora_rank"),
        rotary_dim=_int(config, "qk_rope_head_dim"),
        plain_dim=_int(config, "qk_nope_head_dim"),
        value_dim=_int(config, "v_head_dim"),
        # Eight-bit keys with a 32-bit scale for each 128 of them.
        index_bytes=index_dim + index_dim // 128 * 4,
    )


def _experts(config: Config, *, layers: int) -> Experts:
    inner = _int(config, "moe_intermediate_size", _int(config, "intermediate_size"))
    shared = _int(config, "n_shared_experts", 0) * inner
    return Experts(
        count=_int(config, "num_experts"),
        per_token=_int(config, "num_experts_per_tok"),
        intermediate_size=inner,
        shared_size=_int(config, "shared_expert_intermediate_size", shared),
        layer_count=_expert_layers(config, layers=layers),
    )


def _expert_layers(config: Config, *, layers: int) -> int:
    first = _int(config, "first_k_dense_replace", 0)
    every = _int(config, "decoder_sparse_step", _int(config, "moe_layer_freq", 1))
    listed = config.get("mlp_only_layers")
    dense = set(listed) if isinstance(listed, list | tuple) else set()
    return sum(
        i >= first and i not in dense and (i + 1) % every == 0 for i in range(layers)
    )

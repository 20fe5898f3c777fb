"""Names of number formats and quantization methods in, bytes per element out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Abstain:
    """The model will not guess; ``reason`` names what it does not know."""

    reason: str


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the matrices of a model are stored.

    Attributes:
        method: vLLM's name of it.
        element_bytes: Bytes per weight, scales and zero points included.
        experts_only: Whether everything but the experts keeps the model's dtype.
    """

    method: str
    element_bytes: float
    experts_only: bool = False


DTYPE_BYTES: Mapping[str, int] = {
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    # vLLM serves float32 checkpoints in 16 bits unless told otherwise.
    "float32": 2,
}

# A scale per row or per 128 x 128 block is below 0.1 % and left out. Four-bit
# groups of 128 carry a 16-bit scale and a 4-bit zero point: 20 / 128 bit each.
_EIGHT_BIT = 1.0
_GROUPED_OVERHEAD_BITS = 20 / 128

_METHODS: Mapping[str, Quantization] = {
    name: Quantization(name, size, experts_only)
    for name, size, experts_only in (
        ("fp8", _EIGHT_BIT, False),
        ("fp8_per_tensor", _EIGHT_BIT, False),
        ("fp8_per_block", _EIGHT_BIT, False),
        ("fbgemm_fp8", _EIGHT_BIT, False),
        ("ptpc_fp8", _EIGHT_BIT, False),
        ("int8_per_channel_weight_only", _EIGHT_BIT, False),
        ("experts_int8", _EIGHT_BIT, True),
        # One shared 8-bit exponent for 32 values of 4 bits.
        ("mxfp4", (4 + 8 / 32) / 8, True),
    )
}


def read_quantization(
    method: str | None, config: Mapping[str, object]
) -> Quantization | Abstain | None:
    """How weights are stored; None where they keep the model's dtype.

    Args:
        method: The ``quantization`` engine argument.
        config: ``quantization_config`` of the checkpoint, empty if it has none.
    """
    name = str(config.get("quant_method") or method or "none").lower()
    if name == "none":
        return None
    if name in _METHODS:
        return _METHODS[name]
    if name.startswith(("awq", "gptq")):
        return _grouped(name, config)
    if name == "bitsandbytes":
        return _bitsandbytes(config)
    if name == "compressed-tensors":
        return _compressed_tensors(config)
    return Abstain(f"quantization {name!r} is not known to the memory model")


def _grouped(name: str, config: Mapping[str, object]) -> Quantization | Abstain:
    bits = config.get("bits", config.get("w_bit"))
    if not isinstance(bits, int):
        return Abstain(f"quantization {name!r} needs its number of bits")
    return Quantization(name, (bits + _GROUPED_OVERHEAD_BITS) / 8)


def _bitsandbytes(config: Mapping[str, object]) -> Quantization:
    if config.get("load_in_8bit"):
        return Quantization("bitsandbytes", _EIGHT_BIT)
    # A 32-bit maximum for 64 values of 4 bits.
    return Quantization("bitsandbytes", (4 + 32 / 64) / 8)


def _compressed_tensors(config: Mapping[str, object]) -> Quantization | Abstain:
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        return Abstain("compressed-tensors with several groups of formats")
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, Mapping) else None
    bits = weights.get("num_bits") if isinstance(weights, Mapping) else None
    if not isinstance(bits, int):
        return Abstain("compressed-tensors without num_bits for its weights")
    overhead = _GROUPED_OVERHEAD_BITS if bits < 8 else 0.0  # noqa: PLR2004 - a byte
    return Quantization("compressed-tensors", (bits + overhead) / 8)


def cache_element_bytes(name: str, *, model_element_bytes: int) -> int | Abstain:
    """Bytes per element of the KV cache under ``kv_cache_dtype``."""
    if name == "auto":
        return model_element_bytes
    if name in {"fp8", "fp8_e4m3", "fp8_e5m2"}:
        return 1
    if name in {"bfloat16", "float16", "half"}:
        return 2
    return Abstain(f"KV cache dtype {name!r} is not known to the memory model")

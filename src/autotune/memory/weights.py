"""A shape and a layout over devices in, bytes of weights on the fullest device out."""

from __future__ import annotations

from autotune.memory.precision import Quantization
from autotune.memory.shape import Latent, ModelShape


def ceil_div(amount: int, parts: int) -> int:
    """``amount / parts``, rounded up."""
    return -(-amount // parts)


def stage_layers(shape: ModelShape, *, pipeline: int) -> int:
    """Layers of the fullest pipeline stage."""
    return ceil_div(shape.layer_count, pipeline)


def kv_heads_per_device(shape: ModelShape, *, tensor: int) -> int:
    """KV heads on one device: divided while there are enough, then replicated."""
    return max(1, ceil_div(shape.kv_head_count, tensor))


def weights_bytes(
    shape: ModelShape,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    quantization: Quantization | None = None,
) -> int:
    """Bytes of weights on the device that holds most of them.

    Norms, biases and rotary tables are left out: below 0.3 % together.
    """
    plain = float(shape.element_bytes)
    quantized = quantization.element_bytes if quantization else plain
    others = plain if quantization and quantization.experts_only else quantized
    share = stage_layers(shape, pipeline=pipeline) / shape.layer_count
    attention = shape.layer_count * _attention(shape, tensor=tensor)
    layers = (attention + _dense(shape) / tensor) * others
    layers += _routed(shape) / tensor * quantized + _router(shape) * plain
    return round(layers * share + _embeddings(shape, pipeline=pipeline) / tensor)


def _embeddings(shape: ModelShape, *, pipeline: int) -> int:
    # First and last stage hold one embedding each; a lone stage holds both.
    matrix = shape.vocab_size * shape.hidden_size * shape.element_bytes
    return matrix if shape.tied or pipeline > 1 else 2 * matrix


def _attention(shape: ModelShape, *, tensor: int) -> float:
    if shape.latent:
        return _latent_attention(shape, shape.latent, tensor=tensor)
    heads = shape.head_count / tensor
    stored = 2 * heads + 2 * kv_heads_per_device(shape, tensor=tensor)
    return shape.hidden_size * shape.head_dim * stored


def _latent_attention(shape: ModelShape, latent: Latent, *, tensor: int) -> float:
    heads, hidden = shape.head_count / tensor, shape.hidden_size
    query_width = heads * (latent.plain_dim + latent.rotary_dim)
    rank = latent.query_rank
    query = rank * (hidden + query_width) if rank else hidden * query_width
    down = hidden * (latent.cache_rank + latent.rotary_dim)
    up = latent.cache_rank * heads * (latent.plain_dim + latent.value_dim)
    return query + down + up + heads * latent.value_dim * hidden


def _dense(shape: ModelShape) -> int:
    """Gate, up and down of dense layers, and the shared experts of the others."""
    experts = shape.experts
    sparse = experts.layer_count if experts else 0
    inner = (shape.layer_count - sparse) * shape.intermediate_size
    if experts:
        inner += sparse * experts.shared_size
    return 3 * shape.hidden_size * inner


def _routed(shape: ModelShape) -> int:
    experts = shape.experts
    if not experts:
        return 0
    inner = experts.layer_count * experts.count * experts.intermediate_size
    return 3 * shape.hidden_size * inner


def _router(shape: ModelShape) -> int:
    experts = shape.experts
    return experts.layer_count * experts.count * shape.hidden_size if experts else 0

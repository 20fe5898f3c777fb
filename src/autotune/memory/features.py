"""A shape, a launch and a device in, the bytes of every kind of need out."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.memory.launch import GIB, Device, Launch
from autotune.memory.shape import ModelShape
from autotune.memory.weights import weights_bytes


# Buffers outside the tensors of the model: workspaces, block tables, libraries.
_FIXED_BYTES = round(0.375 * GIB)
_COMMUNICATION_BYTES = round(0.3 * GIB)
# The process's context, and fragments of freed buffers: not part of the engine's
# own account, but of the device's.
_PROCESS_BYTES = round(0.65 * GIB)
# Interpreter and libraries of an engine process on the host.
_HOST_PROCESS_BYTES = round(1.2 * GIB)

# Sampling a row: 32-bit logits, their sorted copy, and what sorting takes beside
# them, 14 bytes per entry of the vocabulary.
_SAMPLER_ENTRY_BYTES = 14

# Graph memory was fitted to six sets of capture sizes of one model (40 layers,
# hidden size 4096) measured on an H200 with vLLM 0.21.0.
_GRAPH_BASE_BYTES = 59 << 20
_FULL_GRAPH_LAYER_BYTES = 183_600
_SHARED_POOL_LAYERS = 1.04
_OWN_POOL_LAYERS = 0.447
# The engine's own estimate before capture is lower than what capture takes.
_ESTIMATE_RATIO = 0.75


def read_features(
    shape: ModelShape, launch: Launch, device: Device
) -> Mapping[str, int]:
    """Bytes by name of coefficient, on the fullest device."""
    graphs = _graphs(shape, launch)
    on_host = device.kind == "cpu"
    alone = launch.tensor * launch.pipeline == 1
    return {
        "weights": weights_bytes(
            shape,
            tensor=launch.tensor,
            pipeline=launch.pipeline,
            quantization=launch.quantization,
        ),
        "fixed": _FIXED_BYTES if alone else _FIXED_BYTES + _COMMUNICATION_BYTES,
        "forward": _forward(shape, launch),
        "sampler": _sampler(shape, launch),
        "graphs": graphs,
        "estimate": round(_ESTIMATE_RATIO * graphs),
        "process": _HOST_PROCESS_BYTES if on_host else _PROCESS_BYTES,
    }


def _forward(shape: ModelShape, launch: Launch) -> int:
    """Peak of the forward pass: the widest layer over all batched tokens.

    Residual and hidden state, then either gate, up and their product (with the
    copy that kernel tuning makes of the first two), or queries, keys and values.
    """
    inner = 5 * shape.intermediate_size / launch.tensor
    experts = shape.experts
    if experts:
        routed = experts.per_token * experts.intermediate_size + experts.shared_size
        own = experts.per_token * shape.hidden_size
        inner = max(inner, 5 * routed / launch.tensor + own)
    projections = 3 * shape.head_count * shape.head_dim / launch.tensor
    width = 2 * shape.hidden_size + max(inner, projections)
    return round(launch.batched_tokens * width * shape.element_bytes)


def _sampler(shape: ModelShape, launch: Launch) -> int:
    """Peak of sampling all sequences while the hidden states are still held."""
    rows = min(launch.sequences, launch.batched_tokens)
    hidden = launch.batched_tokens * shape.hidden_size * shape.element_bytes
    return rows * shape.vocab_size * _SAMPLER_ENTRY_BYTES + hidden


def _graphs(shape: ModelShape, launch: Launch) -> int:
    """What capture takes: nodes per full graph and layer, and pools by largest size."""
    tops = [max(s, default=0) for s in (launch.piecewise_sizes, launch.full_sizes)]
    if not any(tops):
        return 0
    nodes = len(launch.full_sizes) * shape.layer_count * _FULL_GRAPH_LAYER_BYTES
    token = shape.layer_count * shape.hidden_size * shape.element_bytes
    pools = token * (_SHARED_POOL_LAYERS * max(tops) + _OWN_POOL_LAYERS * sum(tops))
    return round(_GRAPH_BASE_BYTES + nodes / launch.pipeline + pools / launch.pipeline)

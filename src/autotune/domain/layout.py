"""How a model is split over devices: one knob, expanded into its sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotune.domain.settings import Value


LAYOUT = "layout"

_WRITTEN = re.compile(r"tp([1-9]\d*)-pp([1-9]\d*)(?:-dp([1-9]\d*))?")


def layouts(
    device_count: int,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    layers: int | None = None,
    replicas: bool = False,
) -> tuple[str, ...]:
    """Every split of a model that uses all ``device_count`` devices.

    Using all of them keeps the comparison fair: the same hardware, at the same
    total rate. Tensor parallelism must divide the attention heads; fewer KV heads
    than that are replicated, which needs one number to divide the other. Every
    pipeline stage needs a layer. What is unknown of the model rules nothing out.

    Args:
        device_count: Devices of the study.
        heads: Attention heads of the model.
        kv_heads: Its key and value heads; 1 with latent attention.
        layers: Its layers.
        replicas: Also splits whose devices hold copies of the model (data
            parallelism inside one engine), written ``tpN-ppM-dpK``.

    Returns:
        Layouts, the most tensor parallelism first; empty when nothing fits.
    """
    return tuple(
        _written(tensor, pipeline, copies)
        for tensor, pipeline, copies in _splits(device_count, replicas=replicas)
        if _heads_fit(tensor, heads, kv_heads)
        and (layers is None or pipeline <= layers)
    )


def expand(values: Mapping[str, Value]) -> dict[str, Value]:
    """Knob values as engine arguments: the layout becomes its sizes.

    Raises:
        ValueError: The layout is not written ``tpN-ppM`` or ``tpN-ppM-dpK``.
    """
    arguments = {k: v for k, v in values.items() if k != LAYOUT}
    if LAYOUT in values:
        match = _WRITTEN.fullmatch(str(values[LAYOUT]))
        if match is None:
            raise ValueError(
                f"layout {values[LAYOUT]!r} is not written tpN-ppM or tpN-ppM-dpK"
            )
        arguments["tensor_parallel_size"] = int(match[1])
        arguments["pipeline_parallel_size"] = int(match[2])
        if match[3] is not None:
            arguments["data_parallel_size"] = int(match[3])
    return arguments


def collapse(effective: Mapping[str, Value]) -> dict[str, Value]:
    """The layout knob's value for what ran, where both sizes are known."""
    tensor = effective.get("tensor_parallel_size")
    pipeline = effective.get("pipeline_parallel_size")
    if not isinstance(tensor, int) or not isinstance(pipeline, int):
        return {}
    copies = effective.get("data_parallel_size")
    return {LAYOUT: _written(tensor, pipeline, copies or 1)}


def _splits(device_count: int, *, replicas: bool) -> Iterator[tuple[int, int, int]]:
    """Triples whose product is ``device_count``, large tensor sizes first."""
    for tensor in range(device_count, 0, -1):
        if device_count % tensor:
            continue
        rest = device_count // tensor
        for pipeline in range(rest, 0, -1):
            if rest % pipeline == 0 and (replicas or pipeline == rest):
                yield tensor, pipeline, rest // pipeline


def _heads_fit(tensor: int, heads: int | None, kv_heads: int | None) -> bool:
    if heads is not None and heads % tensor:
        return False
    return kv_heads is None or kv_heads % tensor == 0 or tensor % kv_heads == 0


def _written(tensor: int, pipeline: int, copies: Value) -> str:
    """A single copy is not written, so that old studies read as before."""
    return f"tp{tensor}-pp{pipeline}" + (f"-dp{copies}" if copies != 1 else "")

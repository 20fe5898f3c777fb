"""How a model is split over devices: one knob, expanded into two arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotune.domain.settings import Value


LAYOUT = "layout"


def layouts(device_count: int) -> tuple[str, ...]:
    """Every tensor x pipeline split that uses all ``device_count`` devices."""
    return tuple(
        f"tp{tensor}-pp{device_count // tensor}"
        for tensor in range(device_count, 0, -1)
        if device_count % tensor == 0
    )


def expand(values: Mapping[str, Value]) -> dict[str, Value]:
    """Knob values as engine arguments: the layout becomes its two sizes.

    Raises:
        ValueError: The layout is not written ``tpN-ppM``.
    """
    arguments = {k: v for k, v in values.items() if k != LAYOUT}
    if LAYOUT in values:
        match = re.fullmatch(r"tp(\d+)-pp(\d+)", str(values[LAYOUT]))
        if match is None:
            raise ValueError(f"layout {values[LAYOUT]!r} is not written tpN-ppM")
        arguments["tensor_parallel_size"] = int(match[1])
        arguments["pipeline_parallel_size"] = int(match[2])
    return arguments


def collapse(effective: Mapping[str, Value]) -> dict[str, Value]:
    """The layout knob's value for what ran, where both sizes are known."""
    tensor = effective.get("tensor_parallel_size")
    pipeline = effective.get("pipeline_parallel_size")
    if tensor is None or pipeline is None:
        return {}
    return {LAYOUT: f"tp{tensor}-pp{pipeline}"}

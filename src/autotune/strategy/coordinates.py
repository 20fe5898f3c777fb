"""Knob values in, points a model can measure distances between out, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from autotune.domain.settings import Value
from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, Knob


Points = NDArray[np.float64]
"""One row per configuration, one column per knob: 0..1 between the bounds of a
number, the index of the choice otherwise."""

UNKNOWN_CHOICE = -1.0
"""Column of a choice the knob does not offer; equal only to itself."""


def choice_mask(knobs: Sequence[Knob]) -> NDArray[np.bool_]:
    """Which columns hold an unordered choice instead of a position."""
    return np.array([isinstance(k, ChoiceKnob) for k in knobs], dtype=bool)


def to_point(knobs: Sequence[Knob], values: Mapping[str, Value]) -> list[float] | None:
    """The row of ``values``; None where a knob has no value that can be placed.

    A number outside its knob's range (a baseline's own value) lies outside 0..1
    at its true distance, so it still teaches a model something.
    """
    row = [_position(knob, values.get(knob.name)) for knob in knobs]
    placed = [p for p in row if p is not None]
    return placed if len(placed) == len(row) else None


def to_values(knobs: Sequence[Knob], point: Sequence[float]) -> dict[str, Value]:
    """The configuration nearest to ``point`` that every knob accepts."""
    return {k.name: _value(k, p) for k, p in zip(knobs, point, strict=True)}


def grid_count(knob: IntKnob | FloatKnob) -> int:
    """Values on the grid of a knob that has a step."""
    step = knob.step or math.inf
    return math.floor((knob.high - knob.low) / step + 1e-9) + 1


def grid_value(knob: IntKnob | FloatKnob, index: int) -> int | float:
    """The grid's value number ``index``, as a person writes it: 0.9, not 0.8999…."""
    if isinstance(knob, IntKnob):
        return knob.low + index * knob.step
    return float(Decimal(str(knob.low)) + index * Decimal(str(knob.step or 0)))


def _position(knob: Knob, value: Value) -> float | None:
    if isinstance(knob, ChoiceKnob):
        return _choice_index(knob, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if knob.log and value <= 0:
        return None
    low, high, here = _scale(knob, knob.low), _scale(knob, knob.high), value
    return (_scale(knob, here) - low) / (high - low) if high > low else 0.0


def _choice_index(knob: ChoiceKnob, value: Value) -> float:
    matches = (
        float(i)
        for i, choice in enumerate(knob.choices)
        if choice == value and type(choice) is type(value)
    )
    return next(matches, UNKNOWN_CHOICE)


def _value(knob: Knob, position: float) -> Value:
    if isinstance(knob, ChoiceKnob):
        return knob.choices[int(position)]
    low, high = _scale(knob, knob.low), _scale(knob, knob.high)
    scaled = low + min(max(position, 0.0), 1.0) * (high - low)
    number = math.exp(scaled) if knob.log else scaled
    return _on_grid(knob, number)


def _on_grid(knob: IntKnob | FloatKnob, number: float) -> int | float:
    if knob.step is None:
        return min(max(number, knob.low), knob.high)
    index = round((number - knob.low) / knob.step)
    return grid_value(knob, min(max(index, 0), grid_count(knob) - 1))


def _scale(knob: IntKnob | FloatKnob, value: float) -> float:
    return math.log(value) if knob.log else float(value)

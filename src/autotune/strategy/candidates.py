"""Knobs and a source of chance in; points worth judging out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import qmc

from autotune.domain.settings import Value
from autotune.domain.space import ChoiceKnob, Knob
from autotune.strategy.coordinates import Points, grid_count, grid_value


CHANGED_SHARE = 0.35
"""Chance that a neighbour differs from its origin in any one knob; one always does."""


def cover(knobs: Sequence[Knob], *, count: int, rng: np.random.Generator) -> Points:
    """``count`` points (a power of two) of a scrambled Sobol sequence."""
    points: Points = qmc.Sobol(len(knobs), rng=rng).random(count)
    for column, knob in enumerate(knobs):
        if isinstance(knob, ChoiceKnob):
            points[:, column] = np.floor(points[:, column] * len(knob.choices))
    return points


def neighbours(
    knobs: Sequence[Knob],
    origins: Points,
    *,
    count: int,
    reach: tuple[float, float],
    rng: np.random.Generator,
) -> Points:
    """``count`` points around ``origins`` (n, knobs), some near and some far.

    Numbers move by a normal step whose deviation, a share of the knob's range, is
    drawn evenly in the logarithm of ``reach``; choices are drawn anew.
    """
    points = np.clip(origins[rng.integers(len(origins), size=count)], 0.0, None)
    changed = rng.random(points.shape) < CHANGED_SHARE
    changed[np.arange(count), rng.integers(len(knobs), size=count)] = True
    low, high = np.log(reach)
    deviation = np.exp(rng.uniform(low, high, size=(count, 1)))
    moved = np.clip(points + deviation * rng.normal(size=points.shape), 0.0, 1.0)
    for column, knob in enumerate(knobs):
        if isinstance(knob, ChoiceKnob):
            moved[:, column] = rng.integers(len(knob.choices), size=count)
    return np.where(changed, moved, points)


def every(knobs: Sequence[Knob], *, limit: int) -> list[dict[str, Value]] | None:
    """All configurations of the space; None where they are more than ``limit``."""
    size, axes = 1, []
    for knob in knobs:
        count = _count(knob)
        if count is None or (size := size * count) > limit:
            return None
        axes.append(list(_axis(knob, count)))
    names = [k.name for k in knobs]
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*axes)
    ]


def _count(knob: Knob) -> int | None:
    if isinstance(knob, ChoiceKnob):
        return len(knob.choices)
    if knob.step is None:
        return 1 if knob.low == knob.high else None
    return grid_count(knob)


def _axis(knob: Knob, count: int) -> Iterator[Value]:
    if isinstance(knob, ChoiceKnob):
        yield from knob.choices
    else:
        yield from (grid_value(knob, i) for i in range(count))

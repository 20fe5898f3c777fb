"""What may vary: knobs, what holds in every trial, and rules between knobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.domain.settings import Value


@dataclass(frozen=True, slots=True)
class IntKnob:
    """A whole number between ``low`` and ``high``, both included.

    Attributes:
        name: The engine argument, dotted when nested.
        low: Smallest value.
        high: Largest value.
        step: Distance between neighbours; must be 1 when ``log`` is set.
        log: Draw evenly in the logarithm.
        affects_output: The setting can change what the model answers (lossy).
        needs_restart: The engine must be started anew to change it.
    """

    name: str
    low: int
    high: int
    step: int = 1
    log: bool = False
    affects_output: bool = False
    needs_restart: bool = True

    def accepts(self, value: object) -> bool:
        """Whether ``value`` lies on this knob's grid."""
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and self.low <= value <= self.high
            and (value - self.low) % self.step == 0
        )


@dataclass(frozen=True, slots=True)
class FloatKnob:
    """A real number between ``low`` and ``high``, both included."""

    name: str
    low: float
    high: float
    step: float | None = None
    log: bool = False
    affects_output: bool = False
    needs_restart: bool = True

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is a number inside the range."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= float(value) <= self.high  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ChoiceKnob:
    """One of ``choices``, without order."""

    name: str
    choices: tuple[Value, ...]
    affects_output: bool = False
    needs_restart: bool = True

    def accepts(self, value: object) -> bool:
        """Whether ``value`` is one of the choices, of the same type."""
        return any(value == c and type(value) is type(c) for c in self.choices)


Knob = IntKnob | FloatKnob | ChoiceKnob


@dataclass(frozen=True, slots=True)
class Rule:
    """A bound between two settings: ``left`` at most, or at least, ``right``.

    A side is the name of a setting or a number; the rule speaks only while every
    setting in ``when`` has the value given there, and only where both sides are
    known. Repair moves the left side.
    """

    left: str
    relation: Literal["at_most", "at_least"]
    right: str | int | float
    when: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Knobs to turn, and what every trial and the baseline are held to.

    Attributes:
        name: The file's name, for people.
        fixed: Engine arguments held in all trials and in the baseline.
        environment: Environment variables held likewise.
        knobs: What may vary, in the order given.
        rules: Bounds between settings, repaired before a proposal is launched.
    """

    name: str
    fixed: Mapping[str, Value]
    environment: Mapping[str, str]
    knobs: tuple[Knob, ...]
    rules: tuple[Rule, ...] = ()

    def knob(self, name: str) -> Knob | None:
        """The knob called ``name``, if the space turns it."""
        return next((k for k in self.knobs if k.name == name), None)

    def repair(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Move ``values`` (by knob name) until every rule holds, if it can.

        Fixed settings count as known. A repaired value is the nearest on its knob's
        grid; a rule that no value of its left side fulfils, or whose left side is
        fixed or unknown, is left to the engine to refuse.
        """
        repaired = dict(values)
        # Mending one rule can break another; a pass settles at least one of them.
        for _ in self.rules:
            before = dict(repaired)
            for rule in self.broken(repaired):
                knob = self.knob(rule.left)
                if knob is not None and not self.holds(rule, repaired):
                    bound = _side(rule.right, {**self.fixed, **repaired})
                    repaired[knob.name] = _nearest(
                        knob, rule.relation, bound, repaired[knob.name]
                    )
            if repaired == before:
                break
        return repaired

    def broken(self, values: Mapping[str, Value]) -> tuple[Rule, ...]:
        """Rules that ``values`` beside the fixed settings do not keep."""
        return tuple(r for r in self.rules if not self.holds(r, values))

    def holds(self, rule: Rule, values: Mapping[str, Value]) -> bool:
        """Whether ``values`` keep ``rule``, as far as it speaks and both sides are."""
        known = {**self.fixed, **values}
        left, right = known.get(rule.left), _side(rule.right, known)
        speaks = all(k in known and known[k] == v for k, v in rule.when.items())
        return not speaks or _in_order(left, rule.relation, right)


def _side(side: str | float, known: Mapping[str, Value]) -> Value:
    return known.get(side) if isinstance(side, str) else side


def _in_order(left: Value, relation: str, right: Value) -> bool:
    if left is None or right is None:
        return True
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return left <= right if relation == "at_most" else left >= right


def _nearest(knob: Knob, relation: str, bound: Value, current: Value) -> Value:
    """The knob's value closest to ``bound`` on its right side; ``current`` if none."""
    if isinstance(bound, str) or bound is None:
        return current
    if isinstance(knob, ChoiceKnob):
        numbers = [c for c in knob.choices if isinstance(c, int | float)]
        fit = [c for c in numbers if _in_order(c, relation, bound)]
        if not fit:
            return current
        return max(fit) if relation == "at_most" else min(fit)
    return _on_grid(knob, relation, bound)


def _on_grid(knob: IntKnob | FloatKnob, relation: str, bound: float) -> int | float:
    """The grid value nearest to ``bound`` on its right side, or the last before it."""
    if knob.step is None:
        return float(min(max(bound, knob.low), knob.high))
    steps = (bound - knob.low) / knob.step
    if isinstance(knob, FloatKnob):  # 0.3 / 0.1 is a hair below 3
        steps = round(steps, 9)
    last = math.floor((knob.high - knob.low) / knob.step + 1e-9)
    whole = math.floor(steps) if relation == "at_most" else math.ceil(steps)
    # 0.1 + 6 * 0.1 is a hair above 0.7
    return min(knob.low + min(max(whole, 0), last) * knob.step, knob.high)

"""Facts in; draws of Optuna's tree-structured Parzen estimator out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.domain.settings import Value
from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, Knob
from autotune.strategy.coordinates import grid_count, grid_value
from autotune.strategy.facts import Fact


PENALTY = 1000.0
"""Score of an infeasible trial whose violation is nought; up to ten times as much."""


def penalty(violation: float) -> float:
    """The score an infeasible trial is told: 1000 x (1 + min(violation, 9))."""
    return PENALTY * (1 + min(max(violation, 0.0), 9.0))


def distribution(knob: Knob) -> BaseDistribution:
    """Optuna's description of ``knob``; the same knob always gives the same one."""
    if isinstance(knob, ChoiceKnob):
        return CategoricalDistribution(knob.choices)
    if knob.step is None or (knob.log and isinstance(knob, FloatKnob)):
        return FloatDistribution(knob.low, knob.high, log=knob.log)
    high = grid_value(knob, grid_count(knob) - 1)
    if isinstance(knob, IntKnob):
        return IntDistribution(knob.low, int(high), log=knob.log, step=knob.step)
    return FloatDistribution(knob.low, high, step=knob.step)


class ShadowStudy:
    """An Optuna study in memory, made of facts, that draws and is told refusals.

    Facts that a knob does not accept (a baseline outside the ranges, or one that
    lacks a knob) have no place in it and are left out: Optuna would shrink the
    jointly sampled space to the knobs that every trial has.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        facts: Iterable[Fact],
        *,
        pending: Iterable[Mapping[str, Value]] = (),
        constraints: Iterable[str] = (),
        seed: int,
    ) -> None:
        self._knobs = knobs
        self._distributions = {k.name: distribution(k) for k in knobs}
        placed = [f for f in facts if self._accepts(f.values)]
        names = {name for f in placed for name in f.constraints}
        self._constraints = sorted(names | set(constraints))
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=1, multivariate=True, seed=seed
        )
        self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._study.add_trials([self._finished(f) for f in placed])
        self._study.add_trials([self._running(v) for v in pending if self._accepts(v)])

    def draw(self) -> tuple[optuna.Trial, dict[str, Value]]:
        """A new trial of the shadow, and its values by knob name."""
        trial = self._study.ask(self._distributions)
        return trial, {k.name: trial.params[k.name] for k in self._knobs}

    def refuse(self, trial: optuna.Trial, *, constraint: str, violation: float) -> None:
        """Tell the shadow, and only it, that ``trial`` must not be launched."""
        violated = max(violation, 1e-6)
        for name in self._constraints:
            trial.set_constraint(name, violated if name == constraint else 0.0)
        self._study.tell(trial, penalty(violated))

    def _accepts(self, values: Mapping[str, Value]) -> bool:
        return all(k.name in values and k.accepts(values[k.name]) for k in self._knobs)

    def _params(self, values: Mapping[str, Value]) -> dict[str, Value]:
        return {k.name: values[k.name] for k in self._knobs}

    def _finished(self, fact: Fact) -> FrozenTrial:
        violation = fact.violation
        return create_trial(
            params=self._params(fact.values),
            distributions=self._distributions,
            value=fact.score if violation <= 0 else penalty(violation),
            constraints={n: fact.constraints.get(n, 0.0) for n in self._constraints},
        )

    def _running(self, values: Mapping[str, Value]) -> FrozenTrial:
        return create_trial(
            state=TrialState.RUNNING,
            params=self._params(values),
            distributions=self._distributions,
        )

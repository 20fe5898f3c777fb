"""Facts in; the next configuration worth a launch out, all of it in the shadow.

Nothing here touches the user's study: candidates are drawn, repaired, compared with
what was tried, guarded and ranked in memory, from the stored facts alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace
from autotune.errors import AutotuneError
from autotune.strategy import candidates
from autotune.strategy.coordinates import Points, choice_mask, to_point, to_values
from autotune.strategy.facts import Fact
from autotune.strategy.feasibility import Correction, Forecast, Guard, correct
from autotune.strategy.ranking import Measurements, Ranking, by_violation
from autotune.strategy.tpe import ShadowStudy


Kind = Literal["gp", "tpe", "random"]
Values = dict[str, Value]

POOL = 256
"""Candidates drawn over the whole space, around the best, and in the refinement."""
SMALL_SPACE = 2048
"""Spaces of at most this many configurations are judged whole."""
LEADERS = 8
"""Most promising candidates around which the pool is refined once."""
SHORTLIST = 64
"""Admitted candidates among which the guard's chance decides the order."""
DRAWS = 96
"""Draws after which TPE and random give up on a configuration the guard admits."""
ADMITTED_CHANCE = 0.8
"""Chance to fit under which a configuration is not launched while others are left."""
CAUTION = 3.0
"""Exponent of the guard's chance to fit beside the promise of a candidate."""
FAR, NEAR = (0.01, 0.3), (0.005, 0.1)
"""Reach of the search around the best points, and of its refinement."""


class Exhausted(AutotuneError):
    """Every configuration of the space was tried, avoided or refused for certain."""


def values_key(values: Mapping[str, Value]) -> str:
    """Names ``values``: equal mappings have equal keys, True and 1 do not."""
    return json.dumps(dict(values), sort_keys=True)


class ShadowSampler:
    """Proposes configurations; keeps no state between proposals.

    Args:
        space: Knobs, fixed settings and rules; must not change within a study.
        seed: With the trial number, decides every draw: a resumed study goes on,
            it does not repeat.
        kind: ``gp`` ranks candidates by a Gaussian process, ``tpe`` asks Optuna's
            multivariate TPE, ``random`` draws evenly.
        guard: Forecasts whether a configuration fits, before it costs a launch.
        key: Names what a configuration effectively is; two with one key are the same.
            It is given knob values only, also of facts.
        cost_s: Predicted seconds of a launch; ``gp`` then ranks gain per second.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        kind: Kind = "gp",
        guard: Guard | None = None,
        key: Callable[[Mapping[str, Value]], Hashable] = values_key,
        cost_s: Callable[[Mapping[str, Value]], float] | None = None,
    ) -> None:
        self._space = space
        self._knobs = space.knobs
        self._choices = choice_mask(space.knobs)
        self._seed, self._kind = seed, kind
        self._guard: Guard = guard or (lambda _: None)
        self._key_of, self._cost_s = key, cost_s
        self._startup_count = len(space.knobs) + 2
        self._every = candidates.every(space.knobs, limit=SMALL_SPACE)

    def propose(
        self,
        facts: Sequence[Fact],
        *,
        number: int,
        avoid: Collection[Hashable] = (),
        pending: Sequence[Mapping[str, Value]] = (),
    ) -> Values:
        """The configuration to launch as trial ``number``, repaired and new.

        Args:
            facts: Every launch so far, in any order that is the same on each call.
            number: The trial's number in the user's study.
            avoid: Keys (see ``key``) that must not be proposed.
            pending: Configurations that are running now.

        Raises:
            Exhausted: Nothing is left that was neither tried nor refused.
        """
        taken = {self._key(f.values) for f in facts} | set(avoid)
        taken |= {self._key(v) for v in pending}
        call = _Call(
            facts=facts,
            pending=pending,
            taken=taken,
            correction=self._correction(facts),
            rng=np.random.default_rng([self._seed, number]),
        )
        proposal = self._first_choice(call) or self._last_resort(call)
        if proposal is None:
            raise Exhausted(
                f"search space {self._space.name}: every configuration was tried, or "
                "is sure not to fit; widen a range, or stop here"
            )
        return proposal

    def _key(self, values: Mapping[str, Value]) -> Hashable:
        knobs = (k.name for k in self._knobs)
        return self._key_of({name: values[name] for name in knobs if name in values})

    def _first_choice(self, call: _Call) -> Values | None:
        if self._kind == "random":
            return self._admitted(self._even_draws(call), call)
        if self._starting(call):
            return self._admitted(self._start_draws(), call)
        if self._kind == "tpe":
            return self._tpe_draw(call)
        return self._ranked(call)

    def _starting(self, call: _Call) -> bool:
        return len(call.facts) + len(call.pending) < self._startup_count

    def _correction(self, facts: Sequence[Fact]) -> Correction:
        forecasts = [(self._guard(f.values), f) for f in facts if self._complete(f)]
        known = [(g, f) for g, f in forecasts if g is not None]
        fitted = [f.constraints.get(g.constraint, 0.0) <= 0 for g, f in known]
        return correct([g for g, _ in known], fitted)

    def _complete(self, fact: Fact) -> bool:
        return all(k.name in fact.values for k in self._knobs)

    # Sources of candidates ----------------------------------------------------

    def _start_draws(self) -> list[Values]:
        """One even cover per study, walked from its start whatever was launched."""
        rng = np.random.default_rng([self._seed, 2**31])
        return self._repaired(candidates.cover(self._knobs, count=POOL, rng=rng))

    def _even_draws(self, call: _Call) -> list[Values]:
        points = call.rng.random((DRAWS, len(self._knobs)))
        for column, knob in enumerate(self._knobs):
            if self._choices[column]:
                size = len(knob.choices)  # type: ignore[union-attr]
                points[:, column] = np.floor(points[:, column] * size)
        return self._repaired(points)

    def _tpe_draw(self, call: _Call) -> Values | None:
        guarded = self._guard_constraint(call.facts)
        study = ShadowStudy(
            self._knobs,
            call.facts,
            pending=call.pending,
            constraints=guarded,
            seed=int(call.rng.integers(2**32)),
        )
        for _ in range(DRAWS):
            trial, drawn = study.draw()
            values = self._space.repair(drawn)
            forecast = self._guard(values)
            if call.chance(forecast) >= ADMITTED_CHANCE:
                if self._key(values) not in call.taken:
                    return values
                continue
            if forecast is not None:
                study.refuse(
                    trial, constraint=forecast.constraint, violation=forecast.shortfall
                )
        return None

    def _guard_constraint(self, facts: Iterable[Fact]) -> set[str]:
        forecasts = (self._guard(f.values) for f in facts if self._complete(f))
        return {f.constraint for f in forecasts if f is not None} or {"memory"}

    def _ranked(self, call: _Call) -> Values | None:
        measured = self._measurements(call.facts)
        if not measured.feasible.any():
            pool = self._fresh(self._pool(call, np.empty((0, len(self._knobs)))), call)
            return self._best(pool, by_violation(measured, self._points(pool)), call)
        ranking = Ranking(measured, pending=self._points(call.pending))
        pool = self._fresh(self._pool(call, ranking.origins), call)
        points = self._points(pool)
        promise = ranking.promise(points)
        if self._every is None:
            leaders = points[np.argsort(-promise, kind="stable")[:LEADERS]]
            near = self._fresh(self._around(leaders, NEAR, POOL // 2, call), call)
            promise = np.append(promise, ranking.promise(self._points(near)))
            pool += near
        return self._best(pool, promise, call)

    def _pool(self, call: _Call, origins: Points) -> list[Values]:
        if self._every is not None:
            return [self._space.repair(v) for v in self._every]
        pool = self._repaired(candidates.cover(self._knobs, count=POOL, rng=call.rng))
        return pool + self._around(origins, FAR, POOL, call)

    def _around(
        self, origins: Points, reach: tuple[float, float], count: int, call: _Call
    ) -> list[Values]:
        if not len(origins):
            return []
        points = candidates.neighbours(
            self._knobs, origins, count=count, reach=reach, rng=call.rng
        )
        return self._repaired(points)

    # Choosing -----------------------------------------------------------------

    def _best(
        self, pool: Sequence[Values], promise: np.ndarray, call: _Call
    ) -> Values | None:
        """The candidate of most promise per second, after the guard's word."""
        promise = promise - np.array([self._price(v) for v in pool])
        best, best_worth, admitted = None, -np.inf, 0
        for index in np.argsort(-promise, kind="stable"):
            chance = call.chance(self._guard(pool[index]))
            if chance < ADMITTED_CHANCE:
                continue
            worth = promise[index] + CAUTION * np.log(chance)
            if worth > best_worth:
                best, best_worth = pool[index], worth
            if (admitted := admitted + 1) >= SHORTLIST:
                break
        return best

    def _price(self, values: Mapping[str, Value]) -> float:
        return 0.0 if self._cost_s is None else float(np.log(self._cost_s(values)))

    def _admitted(self, draws: Iterable[Values], call: _Call) -> Values | None:
        return next(
            (
                v
                for v in draws
                if self._key(v) not in call.taken
                and call.chance(self._guard(v)) >= ADMITTED_CHANCE
            ),
            None,
        )

    def _last_resort(self, call: _Call) -> Values | None:
        """The likeliest to fit of what is left, when nothing is admitted."""
        pool = self._pool(call, np.empty((0, len(self._knobs))))
        left = self._fresh(pool, call)
        chances = [call.chance(self._guard(v)) for v in left]
        if not left or max(chances) <= 0:
            return None
        return left[int(np.argmax(chances))]

    def _fresh(self, pool: Iterable[Values], call: _Call) -> list[Values]:
        """What was not taken, each key once, in the order given."""
        fresh: dict[Hashable, Values] = {}
        for values in pool:
            fresh.setdefault(self._key(values), values)
        return [v for key, v in fresh.items() if key not in call.taken]

    # Values and points --------------------------------------------------------

    def _repaired(self, points: Points) -> list[Values]:
        return [self._space.repair(to_values(self._knobs, p)) for p in points]

    def _points(self, many: Iterable[Mapping[str, Value]]) -> Points:
        rows = [to_point(self._knobs, v) for v in many]
        placed = [r for r in rows if r is not None]
        return np.array(placed).reshape(len(placed), len(self._knobs))

    def _measurements(self, facts: Sequence[Fact]) -> Measurements:
        placed = [f for f in facts if to_point(self._knobs, f.values) is not None]
        return Measurements(
            points=self._points(f.values for f in placed),
            scores=np.array([f.score for f in placed]),
            violations=np.array([f.violation for f in placed]),
            choices=self._choices,
        )


class _Call:
    """What one proposal is made from."""

    def __init__(
        self,
        *,
        facts: Sequence[Fact],
        pending: Sequence[Mapping[str, Value]],
        taken: set[Hashable],
        correction: Correction,
        rng: np.random.Generator,
    ) -> None:
        self.facts, self.pending, self.taken = facts, pending, taken
        self.correction, self.rng = correction, rng

    def chance(self, forecast: Forecast | None) -> float:
        """Chance that what was forecast fits."""
        return self.correction.chance_to_fit(forecast)

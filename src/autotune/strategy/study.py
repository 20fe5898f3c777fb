"""Optuna's side of the file: trials begun, told and read back; launches only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace
from autotune.domain.trial import Score
from autotune.errors import InputError, StoreUnavailable
from autotune.strategy import Fact
from autotune.strategy.tpe import distribution


class OptunaStudy:
    """One study in the user's file, for Optuna's tools and dashboard.

    Trials enter by ``enqueue_trial`` and ``ask``, so their parameters are exactly
    what was launched.
    """

    def __init__(self, url: str, *, name: str, space: SearchSpace) -> None:
        """Open or create study ``name`` at ``url``.

        Raises:
            StoreUnavailable: The database cannot be opened.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._distributions = {k.name: distribution(k) for k in space.knobs}
        try:
            self._storage = RDBStorage(url, engine_kwargs=_engine_options(url))
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                sampler=optuna.samplers.RandomSampler(seed=0),
                load_if_exists=True,
            )
        except (sa.exc.SQLAlchemyError, ImportError, RuntimeError) as error:
            raise StoreUnavailable(f"--storage {url!r}: {error}") from error

    def release(self) -> None:
        """Close every connection, as must be done before the process forks."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def finished_count(self) -> int:
        """Trials told so far, feasible or not."""
        return len(self._trials(TrialState.COMPLETE))

    def next_number(self) -> int:
        """The number the next trial will get."""
        return len(self._study.get_trials(deepcopy=False))

    def begin(self, values: Mapping[str, Value]) -> int:
        """Enter a trial with exactly ``values``; its number.

        Values outside their knob's range are left out: Optuna could not hold them.

        Raises:
            InputError: A categorical knob's choices changed within the study.
        """
        known = {n: v for n, v in values.items() if self._holds(n, v)}
        distributions = {n: self._distributions[n] for n in known}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.enqueue_trial(known)
            try:
                return self._study.ask(distributions).number
            except ValueError as error:
                raise InputError(
                    f"the search space does not fit study {self._study.study_name!r}: "
                    f"{error}. Use another --study"
                ) from error

    def tell(self, number: int, score: Score, *, attributes: Mapping[str, Any]) -> None:
        """Finish trial ``number`` with its score and every constraint."""
        trial = self._trial(number)
        # A run that died while telling has set some; Optuna keeps those.
        known = self._study.get_trials(deepcopy=False)[number].constraints
        for key, value in score.constraints.items():
            if key not in known:
                trial.set_constraint(key, value)
        for key, value in attributes.items():
            trial.set_user_attr(key, value)
        self._study.tell(number, score.value)

    def abandon(self, number: int) -> None:
        """Finish trial ``number`` without a word on its settings."""
        self._study.tell(number, state=TrialState.FAIL)

    def drop_queued(self) -> None:
        """Take back trials that were queued by a run that died before asking.

        The next ``ask`` would pop them and take their values for its own.
        """
        for _ in self._trials(TrialState.WAITING):
            self.abandon(self._study.ask().number)

    def running_numbers(self) -> tuple[int, ...]:
        """Trials begun and not finished."""
        return tuple(t.number for t in self._trials(TrialState.RUNNING))

    def facts(self) -> tuple[Fact, ...]:
        """Every told trial, as the search sees it."""
        return tuple(
            Fact(dict(t.params), float(t.value), dict(t.constraints))
            for t in self._trials(TrialState.COMPLETE)
            if t.value is not None
        )

    def best_number(self) -> int | None:
        """The best feasible trial by Optuna's own rules; None when there is none."""
        try:
            return int(self._study.best_trial.number)
        except ValueError:
            return None

    def _holds(self, name: str, value: Value) -> bool:
        known = self._distributions.get(name)
        if known is None:
            return False
        try:
            return bool(known._contains(known.to_internal_repr(value)))  # noqa: SLF001
        except (ValueError, TypeError):
            return False

    def _trials(self, state: TrialState) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(state,))

    def _trial(self, number: int) -> optuna.Trial:
        frozen = self._study.get_trials(deepcopy=False)[number]
        return optuna.Trial(self._study, frozen._trial_id)  # noqa: SLF001 - no public way


def _engine_options(url: str) -> dict[str, Any]:
    if not url.startswith("sqlite"):
        return {}
    return {"connect_args": {"timeout": 30}}

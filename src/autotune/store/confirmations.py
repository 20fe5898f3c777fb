"""Rounds of finalists in, the same rounds out; beside the launches they are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from autotune.domain.outcome import Outcome
from autotune.domain.settings import Value
from autotune.domain.verdict import Verdict
from autotune.errors import InputError
from autotune.store import schema
from autotune.store.facts import FactStore
from autotune.store.rows import outcome_to_json


# State of a launch that belongs to a confirmation: no trial of the study.
LAUNCH_STATE = "confirmation"
State = Literal["running", "decided", "failed"]


@dataclass(frozen=True, slots=True)
class Run:
    """One member's start in one round.

    Attributes:
        round_number: From 1.
        member: Its name in the plan.
        epoch: The run of this program it belongs to; rounds stay inside one.
        score: Lower is better; None where it failed twice.
        metrics: Other measures by name.
        failure: Why it has no score.
    """

    round_number: int
    member: str
    epoch: int
    score: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class StoredConfirmation:
    """A confirmation as the database has it.

    Attributes:
        confirmation_id: Its key.
        plan: Plain JSON; an equal plan continues it.
        machine: Where it was begun.
        state: Whether rounds are still to come.
        verdicts: By reference, plain JSON; None before the end.
        sentence: What was said at the end.
    """

    confirmation_id: int
    plan: Mapping[str, Any]
    machine: Mapping[str, Any]
    state: State
    verdicts: Mapping[str, Any] | None
    sentence: str | None


class ConfirmationStore:
    """Confirmations of the studies in ``facts``' database."""

    def __init__(self, facts: FactStore) -> None:
        self._facts = facts

    def begin(
        self, study: str, *, plan: Mapping[str, Any], machine: Mapping[str, Any]
    ) -> int:
        """Note that a confirmation begins; its key."""
        with self._transaction() as connection:
            row = {
                "study_id": _study_id(connection, study),
                "plan": dict(plan),
                "machine": dict(machine),
                "state": "running",
                "started_at": datetime.now(UTC),
            }
            key = connection.execute(sa.insert(schema.CONFIRMATIONS), row)
            assert key.inserted_primary_key is not None  # noqa: S101 - it has one
            return int(key.inserted_primary_key[0])

    def of_study(self, study: str) -> tuple[StoredConfirmation, ...]:
        """Every confirmation of ``study``, in the order they were begun."""
        table = schema.CONFIRMATIONS
        with self._transaction() as connection:
            mine = table.c.study_id == _study_id(connection, study)
            query = sa.select(table).where(mine).order_by(table.c.id)
            rows = connection.execute(query).mappings().all()
        return tuple(
            StoredConfirmation(
                row["id"],
                row["plan"],
                row["machine"],
                row["state"],
                row["verdicts"],
                row["sentence"],
            )
            for row in rows
        )

    def record(
        self,
        launch: int,
        *,
        outcome: Outcome,
        effective: Mapping[str, Value],
        phases_s: Mapping[str, float],
        confirmation: int,
        run: Run | None,
    ) -> None:
        """Keep what became of a launch, and the run it completes if it does."""
        launches = schema.LAUNCHES
        values = {
            "state": LAUNCH_STATE,
            "outcome": outcome_to_json(outcome),
            "effective": dict(effective),
            "phases_s": dict(phases_s),
            "finished_at": datetime.now(UTC),
        }
        with self._transaction() as connection:
            mine = launches.c.id == launch
            connection.execute(sa.update(launches).where(mine).values(**values))
            if run is not None:
                row = _run_row(run) | {
                    "confirmation_id": confirmation,
                    "launch_id": launch,
                }
                connection.execute(sa.insert(schema.CONFIRMATION_RUNS), row)

    def runs(self, confirmation: int) -> tuple[Run, ...]:
        """Every run of a confirmation, rounds that were cut off included."""
        table = schema.CONFIRMATION_RUNS
        mine = table.c.confirmation_id == confirmation
        query = sa.select(table).where(mine).order_by(table.c.id)
        with self._transaction() as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            Run(
                row["round"],
                row["member"],
                row["epoch_id"],
                row["score"],
                row["metrics"],
                row["failure"],
            )
            for row in rows
        )

    def finish(
        self,
        confirmation: int,
        *,
        state: State,
        verdicts: Mapping[str, Verdict],
        sentence: str,
    ) -> None:
        """Note the end: the verdict against each reference, and what is said."""
        table = schema.CONFIRMATIONS
        values = {
            "state": state,
            "verdicts": {name: verdict_to_json(v) for name, v in verdicts.items()},
            "sentence": sentence,
            "finished_at": datetime.now(UTC),
        }
        with self._transaction() as connection:
            mine = table.c.id == confirmation
            connection.execute(sa.update(table).where(mine).values(**values))

    def _transaction(self) -> AbstractContextManager[sa.Connection]:
        return self._facts._engine.begin()  # noqa: SLF001 - the same room


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """The kind of a verdict and all it rests on; what is not finite becomes null."""
    kinds = {
        "WorthIt": "worth_it",
        "NotWorthIt": "not_worth_it",
        "NoneBeat": "none_beat",
        "Inconclusive": "inconclusive",
    }
    kind = kinds[type(verdict).__name__]
    return {"kind": kind, **_finite(asdict(verdict))}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _run_row(run: Run) -> dict[str, Any]:
    return {
        "round": run.round_number,
        "member": run.member,
        "epoch_id": run.epoch,
        "score": run.score,
        "metrics": dict(run.metrics),
        "failure": run.failure,
    }


def _study_id(connection: sa.Connection, study: str) -> int:
    query = sa.select(schema.STUDIES.c.id).where(schema.STUDIES.c.name == study)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise InputError(f"there is no study {study!r} in this database")
    return int(found)

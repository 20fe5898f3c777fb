"""A database's studies in, a summary of each, another name, or their absence out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from autotune.errors import InputError
from autotune.store import schema
from autotune.store.facts import FactStore


# Optuna's own table: only the name is touched, so that both halves change at once.
OPTUNA_STUDIES = sa.table("studies", sa.column("study_name"))


@dataclass(frozen=True, slots=True)
class StudySummary:
    """What a list of studies says of one.

    Attributes:
        name: The study's name.
        model: What the user called the model; empty if that was not kept.
        trial_count: Trials that were told.
        best_score: Lowest score of a feasible one; 1 is the baseline.
        created_at: When it was begun.
        at_work: Whether a living process is running one of its launches.
    """

    name: str
    model: str
    trial_count: int
    best_score: float | None
    created_at: datetime
    at_work: bool


def summarize_studies(store: FactStore) -> tuple[StudySummary, ...]:
    """Every study of the database, in the order they were begun."""
    query = sa.select(schema.STUDIES).order_by(schema.STUDIES.c.id)
    with _connection(store) as connection:
        rows = [dict(r) for r in connection.execute(query).mappings()]
        told = [_told(connection, row["id"]) for row in rows]
    return tuple(
        StudySummary(
            name=row["name"],
            model=str(row["spec"].get("model", "")),
            trial_count=len(scores),
            best_score=min((s for s, feasible in scores if feasible), default=None),
            created_at=_aware(row["created_at"]),
            at_work=at_work(store, row["name"]),
        )
        for row, scores in zip(rows, told, strict=True)
    )


def at_work(store: FactStore, study: str) -> bool:
    """Whether a living process is running a launch of ``study``."""
    return any(r.owner_alive for r in store.running_launches(study))


def rename_study(
    store: FactStore, study: str, new: str, *, logs: tuple[str, str] | None = None
) -> None:
    """Give ``study`` the name ``new``, for us and for Optuna, in one transaction.

    Args:
        store: The database.
        study: Its name so far.
        new: Its name from now on.
        logs: The folder of its logs before and after, to follow in the evidence.

    Raises:
        InputError: There is no such study, the name is taken, or it is at work.
    """
    refuse_at_work(store, study)
    if new in store.studies():
        raise InputError(f"there is a study {new!r} already; give another name")
    with _connection(store) as connection:
        key = _key(connection, study)
        table = schema.STUDIES
        ours = sa.update(table).where(table.c.id == key).values(name=new)
        connection.execute(ours)
        if sa.inspect(connection).has_table(OPTUNA_STUDIES.name):
            column = OPTUNA_STUDIES.c.study_name
            theirs = sa.update(OPTUNA_STUDIES).where(column == study)
            connection.execute(theirs.values(study_name=new))
        if logs is not None:
            _move_evidence(connection, key, *logs)


def delete_study(store: FactStore, study: str) -> None:
    """Remove every fact of ``study``; Optuna's half is ``strategy``'s to delete.

    Raises:
        InputError: There is no such study, or it is at work.
    """
    refuse_at_work(store, study)
    with _connection(store) as connection:
        key = _key(connection, study)
        for table in reversed(schema.METADATA.sorted_tables):
            belonging = _belonging(table, key)
            if belonging is not None:
                connection.execute(sa.delete(table).where(belonging))


def refuse_at_work(store: FactStore, study: str) -> None:
    """Leave a study alone that another process is working on.

    Raises:
        InputError: One is.
    """
    if at_work(store, study):
        raise InputError(
            f"study {study!r} is being worked on by another process; "
            "wait for it, or end it"
        )


def _connection(store: FactStore) -> AbstractContextManager[sa.Connection]:
    """One transaction on the store's database."""
    return store._engine.begin()  # noqa: SLF001 - the same room


def _belonging(table: sa.Table, study_id: int) -> sa.ColumnElement[bool] | None:
    """Which rows of ``table`` are the study's; None for a table of no study.

    Every table leads to the studies by its first foreign key, and theirs.
    """
    if table is schema.STUDIES:
        return table.c.id == study_id
    keys = (key for column in table.columns for key in column.foreign_keys)
    key = next(keys, None)
    if key is None:
        return None
    above = _belonging(key.column.table, study_id)
    if above is None:
        return None
    return key.parent.in_(sa.select(key.column).where(above))


def _told(connection: sa.Connection, study_id: int) -> list[tuple[float, bool]]:
    """Score and feasibility of each told trial."""
    table = schema.LAUNCHES
    query = sa.select(table.c.score, table.c.constraints).where(
        table.c.study_id == study_id,
        table.c.state == "finished",
        table.c.number.is_not(None),
        table.c.score.is_not(None),
    )
    return [
        (score, all(v <= 0 for v in (constraints or {}).values()))
        for score, constraints in connection.execute(query)
    ]


def _key(connection: sa.Connection, study: str) -> int:
    query = sa.select(schema.STUDIES.c.id).where(schema.STUDIES.c.name == study)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise InputError(f"there is no study {study!r} in this database")
    return int(found)


def _move_evidence(connection: sa.Connection, key: int, old: str, new: str) -> None:
    table = schema.LAUNCHES
    query = sa.select(table.c.id, table.c.outcome).where(table.c.study_id == key)
    for launch, outcome in connection.execute(query).all():
        moved = _moved(outcome, old, new)
        if moved is not None:
            connection.execute(
                sa.update(table).where(table.c.id == launch).values(outcome=moved)
            )


def _moved(
    outcome: Mapping[str, Any] | None, old: str, new: str
) -> dict[str, Any] | None:
    """The outcome with its log in the new folder; None when it had none there."""
    evidence = dict((outcome or {}).get("evidence") or {})
    path = evidence.get("log_path")
    if outcome is None or path is None or not path.startswith(f"{old}/"):
        return None
    evidence["log_path"] = new + path.removeprefix(old)
    return {**outcome, "evidence": evidence}


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def launch_ids(store: FactStore, study: str) -> dict[int, int]:
    """Which launch each told trial was, by trial number; its log is named after it."""
    table = schema.LAUNCHES
    with _connection(store) as connection:
        query = sa.select(table.c.number, table.c.id).where(
            table.c.study_id == _key(connection, study),
            table.c.state == "finished",
            table.c.number.is_not(None),
        )
        return {row.number: row.id for row in connection.execute(query)}

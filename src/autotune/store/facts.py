"""The store: studies, epochs, launches and their blocks over any SQLAlchemy URL."""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from autotune.domain.outcome import Outcome
from autotune.domain.settings import EngineSettings, Value
from autotune.domain.timing import Block, LevelResult
from autotune.domain.trial import Role, Score, Trial
from autotune.errors import InputError, StoreUnavailable
from autotune.store import schema
from autotune.store.rows import (
    block_from_rows,
    failure_to_row,
    outcome_from_json,
    outcome_to_json,
    timing_to_row,
)


BUSY_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class RunningLaunch:
    """A launch that was begun and not finished, and whose it is."""

    launch_id: int
    number: int | None
    settings: EngineSettings
    owner_alive: bool


class FactStore:
    """Keeps what was measured, before anyone judges it.

    Connections are opened as needed; ``release`` closes them all, which must be
    done before the process forks.
    """

    def __init__(self, url: str) -> None:
        """Open or create the database at ``url``.

        Raises:
            StoreUnavailable: It cannot be opened, or a later version wrote it.
        """
        try:
            self._engine = sa.create_engine(url)
            if self._engine.dialect.name == "sqlite":
                sa.event.listen(self._engine, "connect", _prepare_sqlite)
            with self._engine.begin() as connection:
                schema.migrate(connection)
                applied = schema.applied_migrations(connection)
        except (sa.exc.SQLAlchemyError, ImportError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise StoreUnavailable(
                f"--storage {shown(url)!r} cannot be opened: {reason}. "
                "Give a URL such as sqlite:///studies/mine.db"
            ) from error
        unknown = applied - {name for name, _ in schema.MIGRATIONS}
        if unknown:
            raise StoreUnavailable(
                f"{shown(url)!r} was written by a later version of autotune "
                f"({', '.join(sorted(unknown))}); update autotune to use it"
            )

    def release(self) -> None:
        """Close every connection; the next call opens a new one."""
        self._engine.dispose()

    def studies(self) -> tuple[str, ...]:
        """Names of the studies in this database."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(schema.STUDIES.c.name))
            return tuple(rows.scalars())

    def spec(self, study: str) -> dict[str, Any] | None:
        """What ``study`` was begun with; None when there is no such study."""
        query = sa.select(schema.STUDIES.c.spec).where(schema.STUDIES.c.name == study)
        with self._engine.connect() as connection:
            found = connection.execute(query).scalar_one_or_none()
            return dict(found) if found is not None else None

    def create_study(self, study: str, spec: Mapping[str, Any]) -> None:
        """Note a new study and what it is held to."""
        row = {
            "name": study,
            "spec": dict(spec),
            "capacities_rps": {},
            "created_at": datetime.now(UTC),
        }
        with self._engine.begin() as connection:
            connection.execute(sa.insert(schema.STUDIES), row)

    def capacities_rps(self, study: str) -> dict[str, float]:
        """Burst capacity by workload, as far as it has been frozen."""
        table = schema.STUDIES
        query = sa.select(table.c.capacities_rps).where(table.c.name == study)
        with self._engine.connect() as connection:
            return dict(connection.execute(query).scalar_one())

    def freeze_capacities(self, study: str, found: Mapping[str, float]) -> None:
        """Note capacities; one that is frozen already stays as it is."""
        frozen = {**found, **self.capacities_rps(study)}
        table = schema.STUDIES
        with self._engine.begin() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.name == study)
                .values(capacities_rps=frozen)
            )

    def begin_epoch(self, study: str, machine: Mapping[str, Any]) -> int:
        """Note a run on a machine; its id."""
        with self._engine.begin() as connection:
            row = {
                "study_id": _study_id(connection, study),
                "machine": dict(machine),
                "started_at": datetime.now(UTC),
            }
            return _insert(connection, schema.EPOCHS, row)

    def begin_launch(
        self,
        study: str,
        *,
        epoch: int,
        number: int | None,
        role: Role,
        settings: EngineSettings,
        changes: Mapping[str, Value],
    ) -> int:
        """Note that a launch is about to happen, in this process; its id."""
        me = psutil.Process()
        with self._engine.begin() as connection:
            row = {
                "study_id": _study_id(connection, study),
                "epoch_id": epoch,
                "number": number,
                "role": role,
                "state": "running",
                "settings": settings.to_json(),
                "changes": dict(changes),
                "started_at": datetime.now(UTC),
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "process_started_s": me.create_time(),
            }
            return _insert(connection, schema.LAUNCHES, row)

    def record_block(self, launch: int, block: Block) -> None:
        """Keep a block as soon as it is complete."""
        with self._engine.begin() as connection:
            row = {
                "launch_id": launch,
                "workload": block.workload,
                "level": block.level,
                "block": block.index,
                "started_at": block.started_at.astimezone(UTC),
                "duration_s": block.duration_s,
                "void": block.void,
                "counters": dict(block.counters),
            }
            block_id = _insert(connection, schema.BLOCKS, row)
            answered = [timing_to_row(block_id, t) for t in block.timings]
            failed = [failure_to_row(block_id, f) for f in block.failures]
            if answered:
                connection.execute(sa.insert(schema.REQUESTS), answered)
            if failed:
                connection.execute(sa.insert(schema.FAILED_REQUESTS), failed)

    def finish_launch(
        self,
        launch: int,
        *,
        outcome: Outcome,
        effective: Mapping[str, Value],
        phases_s: Mapping[str, float],
        score: Score | None,
        retried: bool = False,
    ) -> None:
        """Note what became of a launch, and what is thought of it.

        One that is to be run again (``retried``) is kept, not counted.
        """
        values = {
            "state": "retried" if retried else "finished",
            "outcome": outcome_to_json(outcome),
            "effective": dict(effective),
            "phases_s": dict(phases_s),
            "score": score.value if score else None,
            "constraints": dict(score.constraints) if score else None,
            "finished_at": datetime.now(UTC),
        }
        self._update_launch(launch, values)

    def abandon_launch(self, launch: int) -> None:
        """Note that a launch was cut off and says nothing."""
        self._update_launch(launch, {"state": "abandoned"})

    def running_launches(self, study: str) -> tuple[RunningLaunch, ...]:
        """Launches begun and not finished, dead owners included."""
        table = schema.LAUNCHES
        with self._engine.connect() as connection:
            query = sa.select(table).where(
                table.c.study_id == _study_id(connection, study),
                table.c.state == "running",
            )
            rows = [dict(r) for r in connection.execute(query).mappings()]
        return tuple(
            RunningLaunch(
                row["id"],
                row["number"],
                EngineSettings.from_json(row["settings"]),
                _owner_alive(row),
            )
            for row in rows
        )

    def trials(self, study: str, *, with_levels: bool = True) -> tuple[Trial, ...]:
        """Every finished launch of ``study`` in order; levels cost reading."""
        return self._launches(study, state="finished", with_levels=with_levels)

    def retried(self, study: str) -> tuple[Trial, ...]:
        """Launches that ended in a fault and were run again."""
        return self._launches(study, state="retried", with_levels=True)

    def _launches(
        self, study: str, *, state: str, with_levels: bool
    ) -> tuple[Trial, ...]:
        table = schema.LAUNCHES
        with self._engine.connect() as connection:
            query = (
                sa.select(table)
                .where(
                    table.c.study_id == _study_id(connection, study),
                    table.c.state == state,
                )
                .order_by(table.c.id)
            )
            rows = [dict(r) for r in connection.execute(query).mappings()]
            return tuple(
                _trial(row, _levels(connection, row["id"]) if with_levels else ())
                for row in rows
            )

    def machines(self, study: str) -> dict[int, dict[str, Any]]:
        """Machine of each epoch of ``study``, by epoch."""
        table = schema.EPOCHS
        with self._engine.connect() as connection:
            query = sa.select(table).where(
                table.c.study_id == _study_id(connection, study)
            )
            rows = connection.execute(query).mappings().all()
        return {row["id"]: dict(row["machine"]) for row in rows}

    def _update_launch(self, launch: int, values: Mapping[str, Any]) -> None:
        table = schema.LAUNCHES
        with self._engine.begin() as connection:
            connection.execute(
                sa.update(table).where(table.c.id == launch).values(**values)
            )


def shown(url: str) -> str:
    """The URL as it may be printed: without its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return url


def database_file(url: str) -> Path | None:
    """The file of a SQLite URL; None for other databases, and for no URL."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return None
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    return Path(parsed.database)


def forgets(url: str) -> bool:
    """Whether the URL is a SQLite database in memory."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return False
    in_memory = parsed.database in (None, "", ":memory:")
    return parsed.get_backend_name() == "sqlite" and in_memory


def holds_studies(path: Path) -> bool:
    """Whether ``path`` is a database with tables of ours; it is not changed."""
    if not path.is_file():
        return False
    uri = f"{path.absolute().as_uri()}?mode=ro"
    query = "select count(*) from sqlite_master where name = ?"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            row = connection.execute(query, (schema.STUDIES.name,)).fetchone()
    except sqlite3.Error:
        return False
    return bool(row[0])


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.close()


def _insert(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> int:
    result = connection.execute(sa.insert(table), dict(row))
    key = result.inserted_primary_key
    assert key is not None  # noqa: S101 - every table here has one
    return int(key[0])


def _study_id(connection: sa.Connection, study: str) -> int:
    query = sa.select(schema.STUDIES.c.id).where(schema.STUDIES.c.name == study)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise InputError(f"there is no study {study!r} in this database")
    return int(found)


def _owner_alive(row: Mapping[str, Any]) -> bool:
    """Whether the launch's process still runs; another host counts as alive."""
    if row["host"] != socket.gethostname():
        return True
    try:
        created = psutil.Process(row["pid"]).create_time()
    except psutil.NoSuchProcess:
        return False
    return abs(created - float(row["process_started_s"])) < 1.0


def _trial(row: Mapping[str, Any], levels: tuple[LevelResult, ...]) -> Trial:
    constraints, value = row["constraints"], row["score"]
    return Trial(
        number=row["number"],
        role=row["role"],
        settings=EngineSettings.from_json(row["settings"]),
        effective=row["effective"] or {},
        outcome=outcome_from_json(row["outcome"], levels),
        score=None if value is None else Score(value, constraints or {}),
        phases_s=row["phases_s"] or {},
        started_at=_aware(row["started_at"]),
        epoch=row["epoch_id"],
        changes=row["changes"],
    )


def _aware(moment: datetime) -> datetime:
    """SQLite forgets the zone; everything here was written as UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _levels(connection: sa.Connection, launch: int) -> tuple[LevelResult, ...]:
    grouped: dict[tuple[str, str], list[Block]] = {}
    for block in _blocks(connection, launch):
        if block.index >= 0:
            grouped.setdefault((block.workload, block.level), []).append(block)
    return tuple(LevelResult(w, v, tuple(b)) for (w, v), b in grouped.items())


def _blocks(connection: sa.Connection, launch: int) -> Iterator[Block]:
    table = schema.BLOCKS
    query = sa.select(table).where(table.c.launch_id == launch).order_by(table.c.id)
    for row in connection.execute(query).mappings().all():
        yield block_from_rows(
            {**row, "started_at": _aware(row["started_at"])},
            _of_block(connection, schema.REQUESTS, row["id"]),
            _of_block(connection, schema.FAILED_REQUESTS, row["id"]),
        )


def _of_block(
    connection: sa.Connection, table: sa.Table, block_id: int
) -> list[Mapping[str, Any]]:
    query = sa.select(table).where(table.c.block_id == block_id).order_by(table.c.id)
    return [dict(r) for r in connection.execute(query).mappings()]


@contextmanager
def opened(url: str) -> Iterator[FactStore]:
    """A store that is released on leaving the block."""
    store = FactStore(url)
    try:
        yield store
    finally:
        store.release()

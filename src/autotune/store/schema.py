"""The tables, and the migrations that make them; names start with ``autotune_``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import sqlalchemy as sa


METADATA = sa.MetaData()

MIGRATIONS_TABLE = sa.Table(
    "autotune_migrations",
    METADATA,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
)
STUDIES = sa.Table(
    "autotune_studies",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("spec", sa.JSON, nullable=False),
    # Burst capacity by workload, requests per second; frozen once measured.
    sa.Column("capacities_rps", sa.JSON, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
)
EPOCHS = sa.Table(
    "autotune_epochs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey(STUDIES.c.id), nullable=False, index=True),
    sa.Column("machine", sa.JSON, nullable=False),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
)
LAUNCHES = sa.Table(
    "autotune_launches",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey(STUDIES.c.id), nullable=False, index=True),
    sa.Column("epoch_id", sa.ForeignKey(EPOCHS.c.id), nullable=False),
    # Optuna's trial number; null for an epoch's repeated baseline.
    sa.Column("number", sa.Integer, nullable=True),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("changes", sa.JSON, nullable=False),
    sa.Column("effective", sa.JSON, nullable=True),
    sa.Column("outcome", sa.JSON, nullable=True),
    sa.Column("score", sa.Float, nullable=True),
    sa.Column("constraints", sa.JSON, nullable=True),
    sa.Column("phases_s", sa.JSON, nullable=True),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
    # Whose launch it is: a dead process is recognised by all three.
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process_started_s", sa.Float, nullable=False),
)
BLOCKS = sa.Table(
    "autotune_blocks",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("launch_id", sa.ForeignKey(LAUNCHES.c.id), nullable=False, index=True),
    sa.Column("workload", sa.String(200), nullable=False),
    sa.Column("level", sa.String(100), nullable=False),
    sa.Column("block", sa.Integer, nullable=False),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("duration_s", sa.Float, nullable=False),
    sa.Column("void", sa.Text, nullable=True),
    sa.Column("counters", sa.JSON, nullable=False),
)
REQUESTS = sa.Table(
    "autotune_requests",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("block_id", sa.ForeignKey(BLOCKS.c.id), nullable=False, index=True),
    sa.Column("request_id", sa.String(200), nullable=False),
    sa.Column("request_group", sa.Integer, nullable=False),
    sa.Column("scheduled_s", sa.Float, nullable=False),
    sa.Column("sent_s", sa.Float, nullable=False),
    sa.Column("first_token_s", sa.Float, nullable=False),
    sa.Column("last_token_s", sa.Float, nullable=False),
    # Little-endian float64 seconds, one per output token.
    sa.Column("token_offsets_s", sa.LargeBinary, nullable=False),
    sa.Column("prompt_tokens", sa.Integer, nullable=False),
    sa.Column("output_tokens", sa.Integer, nullable=False),
    sa.Column("cached_tokens", sa.Integer, nullable=True),
    sa.Column("finish_reason", sa.String(50), nullable=True),
)
FAILED_REQUESTS = sa.Table(
    "autotune_failed_requests",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("block_id", sa.ForeignKey(BLOCKS.c.id), nullable=False, index=True),
    sa.Column("request_id", sa.String(200), nullable=False),
    sa.Column("scheduled_s", sa.Float, nullable=False),
    sa.Column("sent_s", sa.Float, nullable=False),
    sa.Column("failed_s", sa.Float, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
CONFIRMATIONS = sa.Table(
    "autotune_confirmations",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "study_id",
        sa.ForeignKey(STUDIES.c.id, ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    # Who meets whom, after how many rounds is looked, and which draws are made;
    # the same plan continues an unfinished confirmation.
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("machine", sa.JSON, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    # By reference; scores and metrics of the rounds give the same again.
    sa.Column("verdicts", sa.JSON, nullable=True),
    sa.Column("sentence", sa.Text, nullable=True),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
    sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
)
# One member's start in one round; its blocks and requests are the launch's.
CONFIRMATION_RUNS = sa.Table(
    "autotune_confirmation_runs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column(
        "confirmation_id",
        sa.ForeignKey(CONFIRMATIONS.c.id, ondelete="CASCADE"),
        nullable=False,
        index=True,
    ),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("member", sa.String(100), nullable=False),
    sa.Column("epoch_id", sa.ForeignKey(EPOCHS.c.id), nullable=False),
    sa.Column("launch_id", sa.ForeignKey(LAUNCHES.c.id), nullable=False),
    # Null where the member failed twice and left the race.
    sa.Column("score", sa.Float, nullable=True),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("failure", sa.Text, nullable=True),
    sa.UniqueConstraint("confirmation_id", "round", "member", "epoch_id"),
)


def _first_tables(connection: sa.Connection) -> None:
    later = (CONFIRMATIONS, CONFIRMATION_RUNS)
    first = [t for t in METADATA.sorted_tables if t not in later]
    METADATA.create_all(connection, tables=first)


def _confirmations(connection: sa.Connection) -> None:
    METADATA.create_all(connection, tables=[CONFIRMATIONS, CONFIRMATION_RUNS])


# A migration is applied once, in the transaction that notes it.
MIGRATIONS: tuple[tuple[str, Callable[[sa.Connection], None]], ...] = (
    ("0001_first_tables", _first_tables),
    ("0002_confirmations", _confirmations),
)


def migrate(connection: sa.Connection) -> None:
    """Bring the database up to date; unknown later migrations are the caller's."""
    MIGRATIONS_TABLE.create(connection, checkfirst=True)
    applied = applied_migrations(connection)
    for name, apply in MIGRATIONS:
        if name not in applied:
            apply(connection)
            row = {"name": name, "applied_at": datetime.now(UTC)}
            connection.execute(sa.insert(MIGRATIONS_TABLE), row)


def applied_migrations(connection: sa.Connection) -> frozenset[str]:
    """Names of the migrations this database has had."""
    return frozenset(connection.execute(sa.select(MIGRATIONS_TABLE.c.name)).scalars())

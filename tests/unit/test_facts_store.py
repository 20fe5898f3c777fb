"""What goes into the database comes out of it as it was."""

import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.outcome import (
    EnvironmentFault,
    Evidence,
    Infeasible,
    Measured,
    OutOfMemory,
    Saturated,
)
from autotune.domain.settings import EngineSettings
from autotune.domain.timing import Block, LevelResult, RequestFailure, RequestTiming
from autotune.domain.trial import Score
from autotune.errors import InputError, StoreUnavailable
from autotune.store import schema
from autotune.store.facts import FactStore
from autotune.store.rows import outcome_from_json, outcome_to_json, pack, unpack


SECONDS = st.floats(0, 1e6)
WORDS = st.text(max_size=12)
COUNTS = st.integers(0, 2**31)
MAYBE_BYTES = st.none() | st.integers(0, 2**45)
EVIDENCE = st.builds(
    Evidence,
    failure_class=WORDS,
    blames=st.sampled_from(["settings", "environment", "request", "nobody"]),
    line=WORDS,
    advice=WORDS,
    log_path=st.none() | WORDS,
    exception=st.none() | WORDS,
    asked_bytes=MAYBE_BYTES,
    free_bytes=MAYBE_BYTES,
)
OUTCOMES = st.one_of(
    st.builds(Measured, st.just(())),
    st.builds(Saturated, st.floats(0, 1e4)),
    st.builds(OutOfMemory, WORDS, EVIDENCE, MAYBE_BYTES, MAYBE_BYTES),
    st.builds(Infeasible, EVIDENCE),
    st.builds(EnvironmentFault, EVIDENCE),
)
VALUES = st.none() | st.booleans() | st.integers(0, 2**40) | SECONDS | WORDS
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=ZONES)  # noqa: DTZ001 - hypothesis adds the zone


@st.composite
def levels(draw):
    blocks = []
    for index in range(draw(st.integers(1, 2))):
        place = {"workload": "w", "level": "8 at once", "block": index}
        timing = st.builds(
            RequestTiming,
            **{k: st.just(v) for k, v in place.items()},
            request_id=WORDS,
            group=COUNTS,
            scheduled_s=SECONDS,
            sent_s=SECONDS,
            first_token_s=SECONDS,
            last_token_s=SECONDS,
            token_offsets_s=st.lists(SECONDS, max_size=4).map(tuple),
            prompt_tokens=COUNTS,
            output_tokens=COUNTS,
            cached_tokens=st.none() | COUNTS,
            finish_reason=st.none() | WORDS,
        )
        failure = st.builds(
            RequestFailure,
            **{k: st.just(v) for k, v in place.items()},
            request_id=WORDS,
            scheduled_s=SECONDS,
            sent_s=SECONDS,
            failed_s=SECONDS,
            reason=WORDS,
        )
        blocks.append(
            Block(
                "w",
                "8 at once",
                index,
                draw(MOMENTS),
                draw(SECONDS),
                tuple(draw(st.lists(timing, max_size=3))),
                tuple(draw(st.lists(failure, max_size=2))),
                draw(st.none() | WORDS),
                draw(st.dictionaries(WORDS, st.none() | SECONDS, max_size=3)),
            )
        )
    return LevelResult("w", "8 at once", tuple(blocks))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'facts.db'}"


@pytest.fixture
def store(url):
    made = FactStore(url)
    made.create_study("s", {"model": "m"})
    yield made
    made.release()


def begin(store, epoch, *, number=0, role="trial"):
    return store.begin_launch(
        "s",
        epoch=epoch,
        number=number,
        role=role,
        settings=EngineSettings("m", {"a": 1}),
        changes={"a": 1},
    )


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_token_stamps_come_back_bit_for_bit(stamps):
    assert unpack(pack(stamps)) == tuple(stamps)
    assert len(pack(stamps)) == 8 * len(stamps)


@given(OUTCOMES)
def test_every_kind_of_outcome_comes_back_from_json(outcome):
    assert outcome_from_json(outcome_to_json(outcome), ()) == outcome


def test_an_outcome_of_a_kind_from_the_future_is_refused():
    with pytest.raises(ValueError, match="unknown kind"):
        outcome_from_json({"kind": "melted"}, ())


@settings(max_examples=15)
@given(
    outcome=OUTCOMES,
    level=levels(),
    effective=st.dictionaries(WORDS, VALUES, max_size=4),
    phases_s=st.dictionaries(WORDS, SECONDS, max_size=3),
    score=st.none()
    | st.builds(Score, SECONDS, st.dictionaries(WORDS, SECONDS, max_size=3)),
)
def test_a_trial_comes_back_from_its_rows(outcome, level, effective, phases_s, score):
    outcome = outcome_from_json(outcome_to_json(outcome), (level,))
    with tempfile.TemporaryDirectory() as folder:
        store = FactStore(f"sqlite:///{folder}/facts.db")
        store.create_study("s", {})
        epoch = store.begin_epoch("s", {})
        launch = begin(store, epoch)
        for block in level.blocks:
            store.record_block(launch, block)
        store.finish_launch(
            launch,
            outcome=outcome,
            effective=effective,
            phases_s=phases_s,
            score=score,
        )

        (trial,) = store.trials("s")
        store.release()

    assert trial.outcome == outcome
    assert trial.effective == effective
    assert trial.phases_s == phases_s
    assert trial.score == score
    assert trial.settings == EngineSettings("m", {"a": 1})
    assert (trial.number, trial.role, trial.epoch) == (0, "trial", epoch)
    assert trial.changes == {"a": 1}
    assert trial.started_at.tzinfo is not None


def test_the_warm_up_is_stored_and_belongs_to_no_level(store, url):
    launch = begin(store, store.begin_epoch("s", {}))
    for index in (-1, 0):
        block = Block("w", "l", index, datetime.now(UTC), 1.0, ())
        store.record_block(launch, block)
    finish(store, launch)

    (level,) = store.trials("s")[0].outcome.levels

    assert [b.index for b in level.blocks] == [0]
    assert count_rows(url, "autotune_blocks") == 2


def test_a_launch_that_was_retried_is_kept_and_not_counted(store, url):
    epoch = store.begin_epoch("s", {})
    finish(store, begin(store, epoch), retried=True)
    finish(store, begin(store, epoch))

    assert len(store.trials("s")) == 1
    assert count_rows(url, "autotune_launches") == 2


def test_a_running_launch_of_this_process_has_a_living_owner(store):
    launch = begin(store, store.begin_epoch("s", {}))

    (running,) = store.running_launches("s")

    assert (running.launch_id, running.owner_alive) == (launch, True)
    store.abandon_launch(launch)
    assert store.running_launches("s") == ()
    assert store.trials("s") == ()


@pytest.mark.parametrize(
    ("column", "value"), [("pid", 2**22 + 1), ("process_started_s", 1.0)]
)
def test_a_launch_of_a_dead_process_has_no_living_owner(store, url, column, value):
    begin(store, store.begin_epoch("s", {}))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        change = sa.update(schema.LAUNCHES).values({column: value})
        connection.execute(change)
    engine.dispose()

    (running,) = store.running_launches("s")

    assert not running.owner_alive


def test_a_study_remembers_what_it_was_begun_with(store):
    assert store.spec("s") == {"model": "m"}
    assert store.spec("other") is None
    assert store.studies() == ("s",)


def test_machines_are_kept_by_epoch(store):
    first = store.begin_epoch("s", {"host": "a"})
    second = store.begin_epoch("s", {"host": "b"})

    assert store.machines("s") == {first: {"host": "a"}, second: {"host": "b"}}


def test_facts_of_an_unknown_study_are_refused(store):
    with pytest.raises(InputError, match="no study 'other'"):
        store.trials("other")


def test_opening_twice_migrates_once(store, url):
    FactStore(url).release()

    assert count_rows(url, "autotune_migrations") == len(schema.MIGRATIONS)


def test_a_database_of_a_later_version_is_refused(store, url):
    engine = sa.create_engine(url)
    row = {"name": "9999_later", "applied_at": datetime.now(UTC)}
    with engine.begin() as connection:
        connection.execute(sa.insert(schema.MIGRATIONS_TABLE), row)
    engine.dispose()

    with pytest.raises(StoreUnavailable, match=r"later version.*9999_later"):
        FactStore(url)


@pytest.mark.parametrize(
    "broken",
    [
        "nonsense",
        "sqlite:////no/such/folder/x.db",
        "nosuchdatabase://host/x",
        "sqlite:///.",
    ],
)
def test_a_storage_that_cannot_be_opened_is_named(broken):
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        FactStore(broken)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("These are notes and not a database at all." * 30)
    before = path.read_bytes()

    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        FactStore(f"sqlite:///{path}")

    assert path.read_bytes() == before
    assert [p.name for p in Path(tmp_path).iterdir()] == ["notes.txt"]


def test_a_password_in_the_url_is_not_repeated_in_the_error():
    with pytest.raises(StoreUnavailable) as raised:
        FactStore("nosuchdatabase://me:hunter2@host/x")

    assert "hunter2" not in str(raised.value)


def finish(store, launch, *, retried=False):
    store.finish_launch(
        launch,
        outcome=Measured(()),
        effective={},
        phases_s={},
        score=None,
        retried=retried,
    )


def count_rows(url, table):
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        count = connection.execute(sa.text(f"select count(*) from {table}")).scalar()  # noqa: S608 - our own names
    engine.dispose()
    return count

"""Studies are listed, renamed and deleted, on both sides of the file."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from autotune.cli.studies import studies
from autotune.domain.outcome import Evidence, Infeasible, Measured
from autotune.domain.settings import EngineSettings
from autotune.domain.space import IntKnob, SearchSpace
from autotune.domain.timing import Block, RequestFailure, RequestTiming
from autotune.domain.trial import Score
from autotune.errors import InputError, StoreUnavailable
from autotune.store import schema
from autotune.store.facts import FactStore
from autotune.strategy.study import OptunaStudy


SPACE = SearchSpace("s", {}, {}, (IntKnob("knob", 1, 64),))
GOOD, BAD = {"settings": -1.0}, {"settings": 1.0}
# Number, score, constraints: the cheapest is not feasible.
TOLD = ((0, 1.0, GOOD), (1, 0.8, GOOD), (2, 0.5, BAD))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current directory with a studies folder."""
    monkeypatch.chdir(tmp_path)
    Path("studies").mkdir()
    return tmp_path


def block():
    timing = RequestTiming("r", "w", "l", 0, 0, 0, 0, 0.1, 0.2, (0.1,), 4, 2, None, "x")
    failure = RequestFailure("f", "w", "l", 0, 0.0, 0.0, 0.3, "refused")
    return Block("w", "l", 0, datetime.now(UTC), 1.0, (timing,), (failure,), None, {})


def make_study(name="s", *, url=None, told=TOLD):
    url = url or f"sqlite:///studies/{name}.db"
    store, study = FactStore(url), OptunaStudy(url, name=name, space=SPACE)
    store.create_study(name, {"model": "tiny-glm4"})
    epoch = store.begin_epoch(name, {})
    logs = Path("studies/logs") / name
    logs.mkdir(parents=True)
    for number, value, constraints in told:
        assert study.begin({"knob": number + 1}) == number
        launch = store.begin_launch(
            name,
            epoch=epoch,
            number=number,
            role="trial" if number else "baseline",
            settings=EngineSettings("m", {}, {}),
            changes={"knob": number + 1},
        )
        store.record_block(launch, block())
        log = logs / f"launch-{launch:04d}.log"
        log.write_text("x" * 1000)
        evidence = Evidence("invalid_config", "settings", "line", log_path=str(log))
        outcome = Measured(()) if constraints is GOOD else Infeasible(evidence)
        score = Score(value, constraints)
        store.finish_launch(
            launch, outcome=outcome, effective={}, phases_s={}, score=score
        )
        study.tell(number, score, attributes={})
    study.release()
    store.release()
    return url


def run(*words, typed=None):
    result = CliRunner().invoke(studies, words, input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rows(path):
    """Row counts of our tables."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            t.name: connection.execute(f"select count(*) from {t.name}").fetchone()[0]  # noqa: S608 - our own names
            for t in schema.METADATA.sorted_tables
        }


def optuna_names(url):
    storage = optuna.storages.RDBStorage(url)
    try:
        return [s.study_name for s in storage.get_all_studies()]
    finally:
        storage.remove_session()
        storage.engine.dispose()


def set_owner(path, **columns):
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        connection.execute(sa.update(schema.LAUNCHES).values(**columns))
    engine.dispose()


def test_the_list_names_model_trials_and_the_best_feasible_score():
    make_study("first")
    make_study("second", told=((0, 7.0, BAD),))

    found = json.loads(run("--json").output)

    assert [(s["name"], s["trial_count"], s["best_score"]) for s in found] == [
        ("first", 3, 0.8),
        ("second", 1, None),
    ]
    assert all(s["model"] == "tiny-glm4" for s in found)
    assert found[0]["size_bytes"] > 3000 + Path("studies/first.db").stat().st_size - 1
    table = run().output
    assert "first" in table
    assert "0.800" in table


def test_without_studies_the_list_says_how_to_begin_one():
    assert "autotune --model" in run().output


def test_files_that_hold_no_study_are_not_listed_and_not_changed():
    Path("studies/notes.db").write_bytes(b"not a database")

    assert "no studies here" in run().output
    assert Path("studies/notes.db").read_bytes() == b"not a database"


def test_a_study_of_a_later_version_is_listed_as_such():
    make_study("old")
    engine = sa.create_engine("sqlite:///studies/old.db")
    with engine.begin() as connection:
        row = {"name": "9999_later", "applied_at": sa.func.now()}
        connection.execute(sa.insert(schema.MIGRATIONS_TABLE).values(row))
    engine.dispose()

    (found,) = json.loads(run("--json").output)

    assert "later version" in found["problem"]


def test_a_study_of_an_earlier_version_is_migrated_by_being_read():
    engine = sa.create_engine("sqlite:///studies/early.db")
    name, apply = schema.MIGRATIONS[0]
    row = {"name": name, "applied_at": datetime.now(UTC)}
    study = {"name": "early", "spec": {}, "capacities_rps": {}}
    with engine.begin() as connection:
        schema.MIGRATIONS_TABLE.create(connection)
        apply(connection)
        connection.execute(sa.insert(schema.MIGRATIONS_TABLE), row)
        values = {**study, "created_at": datetime.now(UTC)}
        connection.execute(sa.insert(schema.STUDIES), values)
    engine.dispose()

    (found,) = json.loads(run("--json").output)

    assert (found["name"], found["trial_count"]) == ("early", 0)
    assert rows("studies/early.db")["autotune_migrations"] == len(schema.MIGRATIONS)


def test_another_optunas_file_is_refused_and_nothing_is_deleted():
    url = make_study("s")
    with closing(sqlite3.connect("studies/s.db")) as connection:
        connection.execute("update alembic_version set version_num = 'v9.9.9'")
        connection.commit()

    with pytest.raises(StoreUnavailable, match="installed Optuna"):
        run("delete", "s", "--storage", url, "--yes")

    assert rows("studies/s.db")["autotune_launches"] == 3


def test_a_study_at_work_is_marked():
    make_study()
    set_owner("studies/s.db", state="running")

    (found,) = json.loads(run("--json").output)

    assert found["at_work"]


def test_a_renamed_study_takes_file_logs_and_evidence_along():
    make_study("s")

    run("rename", "s", "t")

    assert not Path("studies/s.db").exists()
    assert not Path("studies/logs/s").exists()
    assert optuna_names("sqlite:///studies/t.db") == ["t"]
    store = FactStore("sqlite:///studies/t.db")
    evidence = store.trials("t")[2].outcome.evidence
    store.release()
    assert evidence.log_path == "studies/logs/t/launch-0003.log"
    assert Path(evidence.log_path).is_file()


def test_in_a_file_given_by_url_only_the_name_changes():
    url = make_study("s", url="sqlite:///mine.db")

    run("rename", "s", "t", "--storage", url)

    assert Path("mine.db").exists()
    assert optuna_names(url) == ["t"]


@pytest.mark.parametrize("new", ["../x", "a b", "-t", ""])
def test_a_name_that_is_no_file_name_is_refused(new):
    make_study("s")

    with pytest.raises(InputError, match="--study"):
        run("rename", "--", "s", new)


def test_a_name_that_is_taken_is_refused_and_nothing_moves():
    make_study("s")
    make_study("t")

    with pytest.raises(InputError, match="is there already"):
        run("rename", "s", "t")

    assert optuna_names("sqlite:///studies/s.db") == ["s"]
    assert Path("studies/logs/s").is_dir()


def test_a_file_shared_by_two_studies_is_not_moved():
    url = make_study("s")
    make_study("t", url=url)

    with pytest.raises(InputError, match=r"also holds t.*--storage"):
        run("rename", "s", "u")

    assert optuna_names(url) == ["s", "t"]


@pytest.mark.parametrize("words", [("rename", "s", "t"), ("delete", "s", "--yes")])
def test_a_study_at_work_is_left_alone(words):
    make_study()
    set_owner("studies/s.db", state="running")

    with pytest.raises(InputError, match="another process"):
        run(*words)

    assert rows("studies/s.db")["autotune_launches"] == 3


def test_a_deleted_study_leaves_only_its_exported_script():
    make_study()
    Path("studies/s-serve.sh").write_text("#!/bin/bash\n")

    run("delete", "s", "--yes")

    assert [str(p) for p in sorted(Path("studies").rglob("*"))] == [
        "studies/logs",
        "studies/s-serve.sh",
    ]


def test_deleting_asks_first_and_says_what_goes():
    make_study()

    refused = run("delete", "s", typed="n\n")

    assert refused.exit_code == 1
    assert "3 launches" in refused.output
    assert "studies/logs/s" in refused.output
    assert Path("studies/s.db").exists()

    assert run("delete", "s", typed="y\n").exit_code == 0
    assert not Path("studies/s.db").exists()


def test_deleting_one_of_two_studies_leaves_the_other_whole():
    url = make_study("s")
    before = rows("studies/s.db")
    make_study("t", url=url)

    run("delete", "t", "--storage", url, "--yes")

    assert rows("studies/s.db") == before
    assert optuna_names(url) == ["s"]


def test_no_row_of_a_deleted_study_is_left():
    url = make_study("s")

    run("delete", "s", "--storage", url, "--yes")

    left = rows("studies/s.db")
    assert left.pop("autotune_migrations") == len(schema.MIGRATIONS)
    assert set(left.values()) == {0}
    assert optuna_names(url) == []


def test_an_unknown_study_is_refused():
    with pytest.raises(InputError, match="no study 'x'"):
        run("delete", "x", "--yes")

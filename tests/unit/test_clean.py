"""Cleaning shows sizes first, asks, and takes only logs and caches."""

from pathlib import Path

import pytest
import sqlalchemy as sa
import typer
from typer.testing import CliRunner

from autotune.cli.clean import clean, retain_logs
from autotune.domain.settings import EngineSettings
from autotune.store import schema
from autotune.store.facts import FactStore


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A place with logs of two studies, three caches, a model and half of one."""
    monkeypatch.chdir(tmp_path)
    for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    for path, size in FILES.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(b"x" * size)
    return tmp_path


KEPT = {
    "studies/s-serve.sh": 10,
    "VLLM_CACHE_ROOT/other/x": 10,
    "cache/models/tiny/config.json": 10,
}
LOGS = {"studies/logs/s/launch-0001.log": 2048, "studies/logs/t/launch-0001.log": 5}
CACHES = {
    "VLLM_CACHE_ROOT/torch_compile_cache/a/b/c": 3 * 2**20,
    "TORCHINDUCTOR_CACHE_DIR/x": 7,
    "TRITON_CACHE_DIR/y": 7,
    "cache/models/.tiny-abc/half": 7,
}
FILES = KEPT | LOGS | CACHES


def run(*words, typed=None):
    app = typer.Typer()
    app.command()(clean)
    result = CliRunner().invoke(app, words, input=typed)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def present():
    return {p for p in FILES if Path(p).exists()}


def test_logs_and_caches_go_and_everything_else_stays():
    run("--yes")

    assert present() == set(KEPT)


def test_sizes_are_shown_before_the_question_and_a_no_keeps_everything():
    result = run(typed="n\n")

    shown, question = result.output.split("Remove")
    assert "3 MiB" in shown
    assert "2 KiB" in shown
    assert question.startswith(" 3 MiB?")
    assert result.exit_code == 1
    assert present() == set(FILES)


def test_without_anybody_to_ask_nothing_goes():
    assert run(typed="").exit_code == 1
    assert present() == set(FILES)


@pytest.mark.parametrize(("word", "gone"), [("--logs", LOGS), ("--caches", CACHES)])
def test_one_kind_can_be_chosen(word, gone):
    run(word, "--yes")

    assert present() == set(FILES) - set(gone)


def test_a_second_time_there_is_nothing_to_clean():
    run("--yes")

    assert "nothing to clean" in run("--yes").output


def test_what_a_running_study_uses_stays():
    store = FactStore("sqlite:///studies/s.db")
    store.create_study("s", {})
    store.begin_launch(
        "s",
        epoch=store.begin_epoch("s", {}),
        number=0,
        role="baseline",
        settings=EngineSettings("m", {}, {}),
        changes={},
    )
    store.release()

    output = run("--yes").output

    assert "stays: its study runs" in output
    left = {"studies/logs/s/launch-0001.log", *CACHES} - {"cache/models/.tiny-abc/half"}
    assert present() == {*KEPT, *left}


def test_a_study_whose_process_died_holds_nothing_back():
    test_what_a_running_study_uses_stays()
    engine = sa.create_engine("sqlite:///studies/s.db")
    with engine.begin() as connection:
        connection.execute(sa.update(schema.LAUNCHES).values(process_started_s=1.0))
    engine.dispose()

    run("--yes")

    assert present() == set(KEPT)


def test_links_are_not_followed_out_of_a_folder(here):
    outside = here / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (here / "studies/logs/s/link").symlink_to(outside)
    (here / "studies/logs/linked").symlink_to(outside)

    run("--yes")

    assert (outside / "kept").exists()


def test_the_newest_logs_are_retained(tmp_path):
    for number in (1, 2, 9, 10, 9999, 10000):
        (tmp_path / f"launch-{number:04d}.log").write_text("x")
    (tmp_path / "autotune.log").write_text("x")

    assert retain_logs(tmp_path, kept=2) == 4

    assert sorted(p.name for p in tmp_path.glob("*.log")) == [
        "autotune.log",
        "launch-10000.log",
        "launch-9999.log",
    ]
    assert retain_logs(tmp_path, kept=2) == 0
    assert retain_logs(tmp_path / "missing") == 0

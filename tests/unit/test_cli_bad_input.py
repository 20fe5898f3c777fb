"""Bad input ends in one line that names it and exit code 2, with nothing left."""

import gc
import sqlite3
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from autotune.cli import main
from autotune.domain.outcome import Measured
from autotune.domain.settings import EngineSettings
from autotune.domain.trial import Score
from autotune.engine.catalog.installed import installed_catalog
from autotune.store.facts import FactStore


# As much of vLLM as the checks before a study ask for.
PRETENDED_VLLM = {
    "__init__.py": "__version__ = '0.0'",
    "engine/__init__.py": "",
    "engine/arg_utils.py": """
        from dataclasses import dataclass

        @dataclass
        class Compilation:
            mode: int = 0

        @dataclass
        class AsyncEngineArgs:
            model: str = ""
            max_model_len: int = 0
            max_num_seqs: int = 0
            max_num_batched_tokens: int = 0
            compilation_config: Compilation | None = None
        """,
    "config/__init__.py": "class VllmConfig: pass",
    "usage/__init__.py": "",
    "usage/usage_lib.py": "class UsageContext: OPENAI_API_SERVER = 'server'",
    "platforms/__init__.py": """
        class current_platform:
            @staticmethod
            def is_cpu():
                return True
        """,
}


# The duplicate of the terminal stays open for the life of the process.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def autotune(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; exit code and standard error."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["autotune", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, capsys.readouterr().err

    gc.freeze()
    yield run
    gc.collect()  # so that the next test does not meet the warning


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "a-model"
    path.mkdir()
    (path / "config.json").write_text('{"vocab_size": 1000}')
    return path


@pytest.fixture
def pretended_vllm(tmp_path, monkeypatch):
    for name, text in PRETENDED_VLLM.items():
        path = tmp_path / "site" / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("autotune.engine.shape.vocabulary_size", lambda _: 1000)
    monkeypatch.setattr("autotune.engine.shape.model_configuration", lambda _: {})
    installed_catalog.cache_clear()
    yield
    installed_catalog.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] == "vllm"]:
        del sys.modules[name]


def left_behind():
    return sorted(str(p) for p in Path().rglob("*"))


def refused(answer, *words):
    code, said = answer
    assert code == 2, said
    assert "Traceback" not in said
    missing = [w for w in words if w not in said]
    assert not missing, said
    assert left_behind() == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--trials", "3"], ["--model is missing"]),
        (["--model", "smolm2-135m"], ["smolm2-135m", "did you mean 'smollm2-135m'"]),
        (["--model", "a/b/c"], ["a/b/c"]),
        (["--model", "..", "--study", "s"], ["config.json"]),
        (["--trials", "0"], ["--trials 0"]),
        (["--trials", "-4"], ["--trials -4"]),
        (["--trials", "many"], ["--trials"]),
        (["--workload", "talk"], ["'talk'", "smoke"]),
        (["--workload", "chat", "--workload", "chat"], ["twice"]),
        (["--rate", "0"], ["--rate 0"]),
        (["--rate", "nan"], ["--rate nan"]),
        (["--rate", "-1"], ["--rate -1"]),
        (["--fix", "max_num_seqs"], ["max_num_seqs", "knob=value"]),
        (["--fix", "a=1", "--fix", "a=2"], ["--fix a", "twice", "1", "2"]),
        (["--fix", "c=1", "--fix", "c.mode=2"], ["c.mode contradicts"]),
        (["--fix", "a=[1"], ["a=[1"]),
        (["--fix", "a=2024-13-45"], ["a=2024-13-45"]),
        (["--study", "../up"], ["--study '../up'"]),
        (["--study", "a?b"], ["--study 'a?b'"]),
        (["--study", ".."], ["--study '..'"]),
        (["--study", "x" * 200], ["--study"]),
        (["--study", "../up", "--storage", "sqlite:///x.db"], ["--study '../up'"]),
        (["--storage", "sqlite://"], ["in memory"]),
        (["--storage", "sqlite:///:memory:"], ["in memory"]),
        (["--nonsense"], ["nonsense"]),
    ],
    ids=" ".join,
)
def test_a_wrong_word_is_named_before_vllm_is_loaded(autotune, model, words, named):
    named_or_missing = "--model" in words or words == ["--trials", "3"]
    given_model = [] if named_or_missing else ["--model", model]

    loaded = "vllm" in sys.modules

    answer = autotune(*given_model, *words)

    refused(answer, *named)
    assert ("vllm" in sys.modules) == loaded


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--fix", "max_num_seq=4"], ["max_num_seq", "did you mean max_num_seqs?"]),
        (["--fix", "compilation_config.mod=4"], ["compilation_config.mode"]),
        (["--fix", "max_num_seqs=many"], ["max_num_seqs", "many"]),
        (["--space", "nosuch"], ["--space nosuch", "cpu"]),
        (["--space", "nosuch.yaml"], ["nosuch.yaml", "no such file"]),
        (["--storage", "nonsense"], ["nonsense", "cannot be opened"]),
        (["--storage", "sqlite:////no/such/x.db"], ["cannot be opened"]),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("pretended_vllm")
def test_what_only_vllm_or_a_file_can_tell_leaves_nothing_either(
    autotune, model, tmp_path, words, named
):
    space = tmp_path / "tiny.yaml"
    knob = {"type": "int", "low": 1, "high": 9}
    space.write_text(yaml.safe_dump({"name": "t", "knobs": {"max_num_seqs": knob}}))
    own = [] if "--space" in words else ["--space", space]

    refused(autotune("--model", model, *own, *words), *named)


@pytest.mark.usefixtures("pretended_vllm")
def test_a_malformed_space_is_named_with_file_key_and_value(autotune, model, tmp_path):
    space = tmp_path / "bad.yaml"
    space.write_text("name: t\nknobs: {max_num_seqs: {type: int, low: few, high: 9}}\n")

    answer = autotune("--model", model, "--space", space)

    refused(answer, str(space), "max_num_seqs", "low", "got few")


@pytest.mark.parametrize("command", ["trials", "export"])
@pytest.mark.parametrize(
    "storage",
    [
        None,
        "sqlite:///missing.db",
        "sqlite+pysqlite:///missing.db",
        "sqlite:///missing.db?timeout=3",
        "nonsense",
    ],
)
def test_a_look_at_a_study_that_is_not_there_makes_no_file(autotune, command, storage):
    given_storage = [] if storage is None else ["--storage", storage]

    refused(autotune(command, "--study", "nosuch", *given_storage))


@pytest.mark.parametrize("command", ["trials", "export"])
def test_a_database_of_somebody_else_is_left_as_it_was(autotune, tmp_path, command):
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table theirs (x)")
    connection.close()
    before = path.read_bytes()

    refused(autotune(command, "--study", "s", "--storage", f"sqlite:///{path}"))

    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["theirs.db"]


def test_an_unknown_study_beside_others_is_told_their_names(autotune, tmp_path):
    url = f"sqlite:///{tmp_path / 'known.db'}"
    store = FactStore(url)
    store.create_study("mine", {})
    store.release()

    refused(autotune("trials", "--study", "yours", "--storage", url), "yours", "mine")


def test_a_study_without_a_feasible_trial_has_nothing_to_export(autotune, tmp_path):
    url = f"sqlite:///{tmp_path / 'known.db'}"
    store = FactStore(url)
    store.create_study("mine", {})
    store.release()

    code, said = autotune("export", "--study", "mine", "--storage", url)

    assert code == 1
    assert "no feasible trial" in said
    assert left_behind() == []


def test_a_script_that_cannot_be_written_is_bad_input(autotune, tmp_path):
    url = f"sqlite:///{tmp_path / 'known.db'}"
    make_best_trial(url)

    answer = autotune("export", "--study", "s", "--storage", url, "-o", tmp_path)

    refused(answer, str(tmp_path))


def make_best_trial(url):
    machine = {"device": "CPU", "device_count": 0, "versions": {}}
    store = FactStore(url)
    store.create_study("s", {"model": "m"})
    epoch = store.begin_epoch("s", machine)
    launch = store.begin_launch(
        "s",
        epoch=epoch,
        number=0,
        role="baseline",
        settings=EngineSettings("m"),
        changes={},
    )
    store.finish_launch(
        launch,
        outcome=Measured(()),
        effective={},
        phases_s={},
        score=Score(1.0, {"memory": 0.0}),
    )
    store.release()

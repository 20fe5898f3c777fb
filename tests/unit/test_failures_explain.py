"""``autotune explain`` reads a log and prints its cause, for people and programs."""

import io
import json
from pathlib import Path

import pytest

from autotune.cli.explain import explain
from autotune.errors import InputError


LOG = Path(__file__).parents[1] / "data" / "failures" / "kv_too_large.log"


def test_json_holds_class_line_blame_and_advice(capsys):
    explain(str(LOG), as_json=True)

    printed = json.loads(capsys.readouterr().out)
    assert printed["class"] == "oom_kv_cache"
    assert printed["blames"] == "settings"
    assert printed["line"] in LOG.read_text()
    assert printed["advice"]
    assert printed["asked_bytes"] > printed["free_bytes"]


def test_people_are_told_class_and_amounts(capsys):
    explain(str(LOG))

    printed = capsys.readouterr().out
    assert printed.startswith("class   oom_kv_cache\n")
    assert "free    5.20 GiB" in printed


def test_a_dash_reads_standard_input(capsys, monkeypatch):
    data = io.BytesIO(LOG.read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(data))

    explain("-", as_json=True)

    assert json.loads(capsys.readouterr().out)["class"] == "oom_kv_cache"


def test_a_healthy_log_has_no_line(capsys, tmp_path):
    log = tmp_path / "fine.log"
    log.write_bytes(b"INFO all is well \xff\xfe")

    explain(str(log))

    assert capsys.readouterr().out.startswith("class   healthy\nblames  nobody\nadvice")


def test_a_log_that_cannot_be_read_says_which_and_what_to_do(tmp_path):
    with pytest.raises(
        InputError, match=r"cannot read .*nowhere\.log.* - for standard"
    ):
        explain(str(tmp_path / "nowhere.log"))

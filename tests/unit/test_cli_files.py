"""Study and workload files fill the options that the command line leaves open."""

import click
import pytest

from autotune.cli.request import defaults_from_file, study_name, workloads_of
from autotune.domain.workload import OpenLoop
from autotune.errors import InputError


def test_a_study_file_fills_open_options(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: m\ntrials: 3\nload: [0.5, 0.85]\nfix: {a: true, b: 0.5}\n")
    context = click.Context(click.Command("autotune"))

    assert defaults_from_file(context, path) == path

    assert context.default_map == {
        "study": "mine",
        "model": "m",
        "trials": 3,
        "load": "0.5,0.85",
        "fix": ["a=true", "b=0.5"],
    }


def test_a_study_file_with_an_unknown_key_names_it(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("model: m\ntrails: 3\n")

    with pytest.raises(InputError, match="trails"):
        defaults_from_file(click.Context(click.Command("autotune")), path)


def test_a_workload_file_is_a_workload(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(
        "name: short\nprompt_tokens: 8\noutput_tokens: 4\nrequests: 6\nrate: [2]\n"
    )

    (workload,) = workloads_of([str(path)], (), 7)

    assert workload.levels == (OpenLoop(2.0),)
    assert workload.seed == 7
    assert study_name("m", [str(path)]) == "m-short"

"""The published schemas are those of the files that are read."""

import json
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune.cli.schema import schema
from autotune.domain.workload import ClosedLoop, LoadShare
from autotune.errors import InputError
from autotune.files import json_schema, load_study_file, load_workload_file


FOLDER = Path(__file__).parents[2] / "search_spaces"
SPACES = sorted(FOLDER.glob("*.yaml"))
STUDY = {"model": "glm-4-9b-chat", "workload": ["chat"], "fix": {"a.b": "x"}}
WORKLOAD = {
    "name": "mine",
    "prompt_tokens": 100,
    "output_tokens": 20,
    "requests": 8,
    "at_once": [4],
}


def printed(*words):
    app = typer.Typer()
    app.command()(schema)
    return CliRunner().invoke(app, words)


def write(path, data):
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize("name", ["space", "study", "workload"])
def test_what_is_printed_is_a_valid_schema(name):
    found = json.loads(printed(name).output)

    jsonschema.Draft202012Validator.check_schema(found)
    assert found == json_schema(name)
    assert found["additionalProperties"] is False


@pytest.mark.parametrize("name", ["space", "study", "workload"])
def test_what_is_published_is_what_is_printed(name):
    """To refresh: autotune schema NAME > search_spaces/schemas/NAME.json."""
    published = (FOLDER / "schemas" / f"{name}.json").read_text()

    assert published == printed(name).output


def test_another_name_is_refused():
    assert printed("trial").exit_code == 2
    with pytest.raises(InputError, match="there are: space, study, workload"):
        json_schema("trial")


@pytest.mark.parametrize("path", SPACES, ids=lambda p: p.stem)
def test_every_space_that_ships_fits_its_schema(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema("space"))


def test_a_misspelt_key_does_not_fit():
    with pytest.raises(jsonschema.ValidationError, match="trails"):
        jsonschema.validate({**STUDY, "trails": 3}, json_schema("study"))


def test_a_study_file_says_only_what_it_says(tmp_path):
    path = write(tmp_path / "s.yaml", STUDY)

    assert load_study_file(path).options() == {
        "model": "glm-4-9b-chat",
        "workload": ("chat",),
        "fix": {"a.b": "x"},
    }


def test_a_workload_file_becomes_a_workload(tmp_path):
    path = write(tmp_path / "w.yaml", WORKLOAD)

    workload = load_workload_file(path).workload(seed=7)

    assert (workload.name, workload.seed) == ("mine", 7)
    assert workload.levels == (ClosedLoop(4),)
    assert workload.context_tokens == 120


def test_shares_of_capacity_stay_in_their_order(tmp_path):
    data = {**WORKLOAD, "load": [0.85, 0.5]}
    del data["at_once"]

    workload = load_workload_file(write(tmp_path / "w.yaml", data)).workload(seed=0)

    assert workload.levels == (LoadShare(0.85), LoadShare(0.5))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": [3]}, "give one of load, rate and at_once"),
        ({"at_once": []}, "give one of"),
        ({"requests": 0}, "requests: .*got 0"),
        ({"shared_prefix_tokens": 101}, "more than prompt_tokens"),
        ({"promt_tokens": 1}, "promt_tokens"),
    ],
)
def test_a_malformed_workload_names_file_and_key(tmp_path, change, said):
    path = write(tmp_path / "w.yaml", {**WORKLOAD, **change})

    with pytest.raises(InputError, match=rf"w\.yaml: .*{said}"):
        load_workload_file(path)


@pytest.mark.parametrize("text", ["model: [", "- a\n", "", "model: 3\nrate: .nan\n"])
def test_what_is_no_study_is_refused_with_its_file(tmp_path, text):
    path = tmp_path / "s.yaml"
    path.write_text(text)

    with pytest.raises(InputError, match=r"s\.yaml"):
        load_study_file(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml"):
        load_study_file(tmp_path / "none.yaml")


@given(
    data=st.fixed_dictionaries(
        {"model": st.text()},
        optional={
            "trials": st.integers(-2, 5),
            "seed": st.integers() | st.none(),
            "weights": st.sampled_from(["auto", "dummy", "half"]),
            "workload": st.lists(st.text(), max_size=2),
            "load": st.lists(st.floats(-1, 3), max_size=2),
            "fix": st.dictionaries(st.text(), st.integers() | st.booleans()),
        },
    )
)
def test_what_the_schema_takes_is_what_is_read(data, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("s") / "s.yaml", data)
    validator = jsonschema.Draft202012Validator(json_schema("study"))

    if validator.is_valid(yaml.safe_load(path.read_text())):
        load_study_file(path)
    else:
        with pytest.raises(InputError):
            load_study_file(path)

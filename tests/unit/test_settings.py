"""Settings survive JSON, and what is equal is named alike."""

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.settings import EngineSettings


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
NAMES = st.text("abcdefghij_.", min_size=1, max_size=12)
SETTINGS = st.builds(
    EngineSettings,
    st.text(min_size=1, max_size=20),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.dictionaries(NAMES, st.text(max_size=10), max_size=3),
)


@given(SETTINGS)
def test_settings_come_back_from_json_as_they_went(settings):
    text = json.dumps(settings.to_json())

    back = EngineSettings.from_json(json.loads(text))

    assert back == settings
    assert back.to_json() == settings.to_json()
    assert hash(back) == hash(settings)


@given(SETTINGS, SETTINGS)
def test_equal_settings_hash_alike_and_have_one_key(one, other):
    assert (one == other) == (one.key == other.key)
    assert one != other or hash(one) == hash(other)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False)])
def test_values_of_another_type_make_other_settings(one, other):
    left = EngineSettings("m", {"knob": one})
    right = EngineSettings("m", {"knob": other})

    assert left != right
    assert left.key != right.key


def test_the_order_of_arguments_does_not_matter():
    assert EngineSettings("m", {"a": 1, "b": 2}) == EngineSettings(
        "m", {"b": 2, "a": 1}
    )


def test_arguments_cannot_be_changed_from_outside():
    given_arguments = {"a": 1}
    settings = EngineSettings("m", given_arguments)
    key = settings.key

    given_arguments["a"] = 2

    assert settings.key == key
    with pytest.raises(TypeError):
        settings.arguments["a"] = 3


def test_changes_are_laid_over_the_arguments():
    settings = EngineSettings("m", {"a": 1, "b": 2}, {"E": "0"})

    changed = settings.with_arguments({"b": 3, "c": None})

    assert dict(changed.arguments) == {"a": 1, "b": 3, "c": None}
    assert dict(changed.environment) == {"E": "0"}
    assert dict(settings.arguments) == {"a": 1, "b": 2}


def test_settings_are_not_equal_to_their_json():
    settings = EngineSettings("m")

    assert settings != settings.to_json()


@pytest.mark.parametrize("broken", [{"arguments": [1]}, {"environment": "x"}])
def test_json_of_another_shape_is_refused(broken):
    data = {"model": "m", "arguments": {}, "environment": {}} | broken

    with pytest.raises(TypeError, match="as mappings"):
        EngineSettings.from_json(data)


@given(SETTINGS)
def test_settings_can_be_sent_to_another_process_and_copied(settings):
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - our own
    assert copy.deepcopy(settings) == settings

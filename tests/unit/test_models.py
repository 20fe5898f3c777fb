"""What is known of models, and the settings published for them."""

import json
import re
from pathlib import Path

import pytest

from autotune.domain.layout import layouts
from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, SearchSpace
from autotune.engine.catalog import Catalog
from autotune.errors import InputError
from autotune.models import KNOWN, RECIPES, first_trials, known, locate
from autotune.models.tiny import CONFIG


CATALOGS = Path(__file__).parents[1] / "data/catalogs"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
KNOBS = (
    IntKnob("max_num_batched_tokens", 2048, 32768, log=True),
    FloatKnob("gpu_memory_utilization", 0.8, 0.99, step=0.01),
    ChoiceKnob("block_size", (16, 32, 64)),
    ChoiceKnob("enable_chunked_prefill", (True, False)),
    ChoiceKnob("enable_prefix_caching", (True, False)),
)
FP8 = ChoiceKnob("kv_cache_dtype", ("auto", "fp8"), affects_output=True)


def space(*knobs, fixed=None):
    return SearchSpace("test", fixed or {}, {}, knobs)


def test_aliases_are_unique_and_can_be_typed():
    aliases = [m.alias for m in KNOWN]

    assert len(set(aliases)) == len(aliases)
    assert all(re.fullmatch(r"[a-z0-9.-]+", alias) for alias in aliases)


@pytest.mark.parametrize("model", KNOWN, ids=lambda m: m.alias)
def test_what_is_known_of_a_model_hangs_together(model):
    shape = model.shape

    assert model.source == "made" or HUB_ID.fullmatch(model.model_id)
    assert model.license
    assert shape.heads % shape.kv_heads == 0
    assert all(0 <= token < shape.vocabulary for token in model.stop_token_ids)
    assert set(model.recipes) <= {r.name for r in RECIPES}
    assert layouts(
        1, heads=shape.heads, kv_heads=shape.kv_heads, layers=shape.layers
    ) == ("tp1-pp1",)


def test_glm_4_runs_without_code_from_its_repository():
    native = known("glm-4-9b-chat")

    assert native.model_id.endswith("-hf")
    assert not native.needs_remote_code
    assert known("glm-4-9b-chat-remote").needs_remote_code
    assert native.stop_token_ids == (151329, 151336, 151338)


def test_the_tiny_model_is_described_as_it_is_made():
    shape = known("tiny-glm4").shape

    assert shape.layers == CONFIG["num_hidden_layers"]
    assert shape.heads == CONFIG["num_attention_heads"]
    assert shape.kv_heads == CONFIG["num_key_value_heads"]
    assert shape.vocabulary == CONFIG["vocab_size"]
    assert known("tiny-glm4").stop_token_ids == (CONFIG["eos_token_id"],)


def test_a_hub_alias_is_located_by_its_id(tmp_path):
    assert locate("glm-4-9b-chat", cache=tmp_path) == "zai-org/glm-4-9b-chat-hf"
    assert locate("someone/else", cache=tmp_path) == "someone/else"


def test_a_directory_is_located_by_its_path(tmp_path):
    (tmp_path / "config.json").write_text("{}")

    assert locate(str(tmp_path), cache=tmp_path) == str(tmp_path)


def test_a_model_that_must_be_fetched_says_how(tmp_path):
    with pytest.raises(InputError, match="autotune models fetch smollm2-135m"):
        locate("smollm2-135m", cache=tmp_path)


def test_a_mistyped_alias_gets_the_nearest(tmp_path):
    with pytest.raises(InputError, match="did you mean 'qwen3-8b'"):
        locate("qwen3-8bb", cache=tmp_path)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
@pytest.mark.parametrize("name", ["vllm_0.21.0_h200", "vllm_0.32.0_cpu"])
def test_recipes_are_written_in_arguments_that_exist_today(recipe, name):
    catalog = Catalog.from_json(json.loads((CATALOGS / f"{name}.json").read_text()))

    for argument, value in recipe.arguments.items():
        assert catalog.refusal(argument, value) is None


def test_recipes_that_change_answers_are_marked():
    assert {r.name for r in RECIPES if "kv_cache_dtype" in r.arguments} == {
        r.name for r in RECIPES if r.lossy
    }


def test_lossless_studies_start_from_lossless_recipes():
    names = known("glm-4-9b-chat").recipes

    trials = first_trials(names, space(*KNOBS), allow_lossy=False)

    assert [t.recipe.name for t in trials] == ["prefix-and-memory", "chunked"]
    assert trials[1].values == {
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 8192,
        "block_size": 32,
        "gpu_memory_utilization": 0.95,
        "enable_prefix_caching": True,
    }
    assert trials[1].left_out == ()


def test_what_a_space_does_not_turn_is_named():
    (trial,) = first_trials(
        ("chunked-eager-fp8",), space(*KNOBS, FP8), allow_lossy=True
    )

    assert trial.values["kv_cache_dtype"] == "fp8"
    assert trial.left_out == ("enforce_eager",)


def test_what_is_held_at_the_recipes_value_is_not_missing():
    held = space(*KNOBS, FP8, fixed={"enforce_eager": True})

    (trial,) = first_trials(("chunked-eager-fp8",), held, allow_lossy=True)

    assert trial.left_out == ()


def test_values_outside_a_knobs_range_are_left_out():
    narrow = space(IntKnob("max_num_batched_tokens", 128, 4096), KNOBS[2])

    (trial,) = first_trials(("chunked",), narrow, allow_lossy=False)

    assert trial.values == {"block_size": 32}
    assert "max_num_batched_tokens" in trial.left_out


def test_recipes_that_come_to_the_same_are_enqueued_once():
    only = space(KNOBS[1])

    trials = first_trials(("prefix-and-memory", "chunked"), only, allow_lossy=False)

    assert [t.values for t in trials] == [{"gpu_memory_utilization": 0.95}]

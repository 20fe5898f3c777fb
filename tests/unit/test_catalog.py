"""What a vLLM accepts, on snapshots of three of them."""

import json
from pathlib import Path

import pytest

from autotune.engine.catalog import Argument, Catalog


CATALOGS = Path(__file__).parents[1] / "data/catalogs"
NAMES = ("vllm_0.21.0_h200", "vllm_0.27.1_cpu", "vllm_0.32.0_cpu")


def snapshot(name):
    return Catalog.from_json(json.loads((CATALOGS / f"{name}.json").read_text()))


H200 = snapshot("vllm_0.21.0_h200")
CPU = snapshot("vllm_0.32.0_cpu")


@pytest.mark.parametrize("name", NAMES)
def test_a_catalog_survives_json_and_keeps_its_key(name):
    catalog = snapshot(name)

    again = Catalog.from_json(json.loads(json.dumps(catalog.to_json())))

    assert again == catalog
    assert again.key == catalog.key
    assert hash(again) == hash(catalog)
    assert len(catalog.arguments) > 300


def test_two_releases_have_different_keys():
    assert len({snapshot(name).key for name in NAMES}) == 3


def test_the_server_on_an_h200_batches_more_than_the_library_would():
    assert H200.device == "NVIDIA H200"
    assert H200.default("max_num_batched_tokens") == 8192
    assert H200.default("max_num_seqs") == 1024


def test_defaults_that_depend_on_the_model_come_from_a_resolved_launch():
    resolved = json.loads((CATALOGS / "vllm_0.21.0_h200_resolved.json").read_text())

    catalog = H200.with_defaults(resolved)

    assert H200.default("enable_prefix_caching") is None
    assert catalog.default("enable_prefix_caching") is True
    assert catalog.default("block_size") == 16
    assert catalog.default("compilation_config.max_cudagraph_capture_size") == 512
    assert "kv_blocks" not in catalog


def test_nested_configurations_have_dotted_names():
    argument = H200.arguments["compilation_config.cudagraph_mode"]

    assert argument.refusal("FULL_AND_PIECEWISE") is None
    assert argument.refusal("full_decode_only") is None
    assert "did you mean PIECEWISE" in argument.refusal("PIECEWIZE")


def test_a_literal_refuses_other_words_and_names_the_nearest():
    reason = H200.refusal("kv_cache_dtype", "fp8_e4m4")

    assert "did you mean fp8_e4m3" in reason


def test_a_word_that_one_release_has_another_may_not():
    assert CPU.refusal("kv_cache_dtype", "int4_per_token_head") is None
    assert H200.refusal("kv_cache_dtype", "int4_per_token_head") is not None


@pytest.mark.parametrize(
    ("value", "accepted"),
    [(0.9, True), (1, True), (1.0, True), (0, False), (0.0, False), (1.01, False)],
)
def test_declared_bounds_hold_at_their_edges(value, accepted):
    assert (H200.refusal("gpu_memory_utilization", value) is None) is accepted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 0),
        ("max_num_seqs", 1.5),
        ("max_num_seqs", True),
        ("max_num_seqs", "many"),
        ("enforce_eager", 1),
        ("enforce_eager", "yes"),
        ("enforce_eager", None),
        ("tensor_parallel_size", -1),
    ],
)
def test_values_of_another_type_are_refused(name, value):
    assert CPU.refusal(name, value)


def test_an_absent_value_is_accepted_where_vllm_decides():
    assert CPU.refusal("max_num_seqs", None) is None
    assert CPU.refusal("enable_prefix_caching", None) is None


def test_a_type_that_could_not_be_read_refuses_nothing():
    assert "any" in H200.arguments["quantization"].kinds
    assert H200.refusal("quantization", "whatever") is None


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("max_num_batched_token", "max_num_batched_tokens"),
        ("compilation_config.cudagraph_mod", "compilation_config.cudagraph_mode"),
    ],
)
def test_an_unknown_name_gets_the_nearest_of_its_depth(wrong, near):
    assert f"did you mean {near}?" in CPU.unknown(wrong)


def test_a_number_may_be_excluded_from_above():
    argument = Argument("share", frozenset({"float"}), high=1.0, high_excluded=True)

    assert argument.refusal(0.99) is None
    assert argument.refusal(1.0) == "1 is not below 1"

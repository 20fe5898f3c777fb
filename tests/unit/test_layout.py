"""How a model can be split over devices."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.layout import collapse, expand, layouts


SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def test_two_devices_split_layers_or_matrices():
    assert layouts(2) == ("tp2-pp1", "tp1-pp2")


def test_copies_are_offered_only_when_asked_for():
    assert layouts(2, replicas=True) == ("tp2-pp1", "tp1-pp2", "tp1-pp1-dp2")


def test_tensor_parallelism_must_divide_the_heads():
    """SmolLM2-135M has 9 heads: nothing even divides them."""
    assert layouts(2, heads=9, kv_heads=3, layers=30) == ("tp1-pp2",)
    assert layouts(3, heads=9, kv_heads=3, layers=30) == ("tp3-pp1", "tp1-pp3")


def test_key_value_heads_are_replicated_beyond_their_number():
    """GLM-4-9B has 32 heads and 2 KV heads: TP 4 copies each, and is allowed."""
    assert layouts(4, heads=32, kv_heads=2, layers=40)[0] == "tp4-pp1"


def test_key_value_heads_that_neither_divide_nor_are_divided_rule_a_split_out():
    assert "tp4-pp1" not in layouts(4, heads=24, kv_heads=6)


def test_every_pipeline_stage_needs_a_layer():
    assert layouts(8, heads=8, layers=2) == ("tp8-pp1", "tp4-pp2")


def test_one_device_leaves_one_layout():
    assert layouts(1, heads=32, layers=40) == ("tp1-pp1",)


def test_no_layout_fits_a_model_of_one_layer_on_seven_devices():
    assert layouts(7, heads=32, layers=1) == ()


@given(st.integers(1, 16), st.booleans())
def test_every_layout_uses_all_devices_and_reads_back(device_count, replicas):
    for layout in layouts(device_count, replicas=replicas):
        arguments = expand({"layout": layout, "block_size": 16})

        assert math.prod(arguments.get(s, 1) for s in SIZES) == device_count
        assert arguments["block_size"] == 16
        assert "layout" not in arguments
        assert collapse(arguments) == {"layout": layout}


@pytest.mark.parametrize("text", ["tp2", "tp0-pp2", "tp2-pp1-dp", "2x1", "tp-1-pp1"])
def test_a_layout_written_otherwise_is_refused(text):
    with pytest.raises(ValueError, match="tpN-ppM"):
        expand({"layout": text})


def test_what_is_not_known_to_have_run_has_no_layout():
    assert collapse({"tensor_parallel_size": 2}) == {}


def test_one_copy_that_ran_is_not_written():
    ran = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
    }

    assert collapse(ran) == {"layout": "tp2-pp1"}

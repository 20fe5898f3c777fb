"""The part of a search space that exists in a catalog."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain.space import ChoiceKnob, FloatKnob, IntKnob, Rule, SearchSpace
from autotune.engine.catalog import Catalog
from autotune.engine.catalog.dependencies import Dependencies
from autotune.engine.catalog.intersection import intersect


CATALOGS = Path(__file__).parents[1] / "data/catalogs"


def snapshot(name):
    return Catalog.from_json(json.loads((CATALOGS / f"{name}.json").read_text()))


H200 = snapshot("vllm_0.21.0_h200")
CPU = snapshot("vllm_0.32.0_cpu")


def space(*knobs, fixed=None, rules=()):
    return SearchSpace("test", fixed or {}, {}, knobs, tuple(rules))


def reasons(skipped):
    return {s.name: s.reason for s in skipped}


def test_a_knob_that_does_not_exist_is_named_with_what_is_close():
    asked = space(IntKnob("max_num_active_seqs", 1, 64), IntKnob("max_num_seqs", 1, 64))

    here, skipped = intersect(asked, H200)

    assert [k.name for k in here.knobs] == ["max_num_seqs"]
    assert (
        "vLLM 0.21.0 has no engine argument" in reasons(skipped)["max_num_active_seqs"]
    )
    assert intersect(asked, CPU)[0].knobs == asked.knobs


def test_choices_that_the_type_refuses_are_dropped_one_by_one():
    knob = ChoiceKnob("kv_cache_dtype", ("auto", "fp8", "fp16"), affects_output=True)

    here, skipped = intersect(space(knob), H200)

    assert here.knobs == (replace(knob, choices=("auto", "fp8")),)
    assert skipped[0].values == ("fp16",)


def test_a_knob_left_with_one_choice_is_nothing_to_turn():
    knob = ChoiceKnob("kv_cache_dtype", ("auto", "fp16"))

    here, skipped = intersect(space(knob), H200)

    assert here.knobs == ()
    assert "only 'auto' is left" in skipped[-1].reason


def test_block_sizes_follow_the_device():
    knob = ChoiceKnob("block_size", (8, 16, 32, 64))

    assert intersect(space(knob), CPU)[0].knobs[0].choices == (32, 64)
    assert intersect(space(knob), H200)[0].knobs[0].choices == (16, 32, 64)


def test_what_has_no_effect_on_the_cpu_is_not_turned_there():
    knob = ChoiceKnob("async_scheduling", (True, False))

    here, skipped = intersect(space(knob), CPU)

    assert here.knobs == ()
    assert "resets it silently" in skipped[0].reason
    assert intersect(space(knob), H200)[0].knobs == (knob,)


def test_a_fixed_setting_takes_the_effect_away_from_a_knob():
    asked = space(
        FloatKnob("gpu_memory_utilization", 0.8, 0.98),
        ChoiceKnob("compilation_config.cudagraph_mode", ("FULL", "PIECEWISE")),
        fixed={"kv_cache_memory_bytes": 1 << 28, "enforce_eager": True},
    )

    here, skipped = intersect(asked, H200)

    assert here.knobs == ()
    assert "fixes the KV cache" in reasons(skipped)["gpu_memory_utilization"]
    assert "eager" in reasons(skipped)["compilation_config.cudagraph_mode"]


def test_graphs_stay_when_eager_mode_is_fixed_off():
    knob = ChoiceKnob("compilation_config.cudagraph_mode", ("FULL", "PIECEWISE"))

    here, _ = intersect(space(knob, fixed={"enforce_eager": False}), H200)

    assert here.knobs == (knob,)


def test_ranges_are_cut_to_declared_bounds_on_their_own_grid():
    asked = space(
        IntKnob("max_num_seqs", 0, 100, step=10),
        FloatKnob("gpu_memory_utilization", 0.0, 1.2, step=0.1),
    )

    here, skipped = intersect(asked, H200)

    assert here.knobs[0] == replace(asked.knobs[0], low=10, high=100)
    assert (here.knobs[1].low, here.knobs[1].high) == (0.1, 1.0)
    assert len(skipped) == 2


def test_a_range_that_the_type_refuses_is_dropped():
    here, skipped = intersect(space(IntKnob("enforce_eager", 0, 1)), H200)

    assert here.knobs == ()
    assert "is not bool" in skipped[0].reason


def test_a_layout_needs_both_its_sizes():
    knob = ChoiceKnob("layout", ("tp2-pp1", "tp1-pp2"))
    arguments = {
        k: v for k, v in H200.arguments.items() if k != "pipeline_parallel_size"
    }
    without = Catalog("0", "NVIDIA H200", arguments)

    assert intersect(space(knob), H200)[0].knobs == (knob,)
    assert intersect(space(knob), without)[0].knobs == ()


def test_an_unknown_fixed_setting_of_the_space_is_skipped():
    here, skipped = intersect(space(fixed={"num_scheduler_steps": 8, "seed": 1}), CPU)

    assert dict(here.fixed) == {"seed": 1}
    assert skipped[0].name == "num_scheduler_steps"


def test_vllms_rules_join_the_spaces_own_once():
    own = Rule("max_num_seqs", "at_most", "max_num_batched_tokens")
    asked = space(
        IntKnob("max_num_batched_tokens", 128, 8192),
        IntKnob("max_num_seqs", 1, 1024),
        rules=[own],
    )

    here, _ = intersect(asked, H200)

    assert here.rules.count(own) == 1
    assert [r.left for r in here.rules] == ["max_num_seqs", "max_num_batched_tokens"]


def test_a_side_that_is_not_turned_stands_at_its_default():
    asked = space(
        ChoiceKnob("compilation_config.max_cudagraph_capture_size", (512, 16384))
    )

    here, _ = intersect(asked, H200)

    name = "compilation_config.max_cudagraph_capture_size"
    assert here.rules == (Rule(name, "at_most", 8192),)
    assert here.repair({name: 16384}) == {name: 512}


def test_turning_chunked_prefill_off_raises_the_token_budget_in_the_shadow():
    asked = space(
        IntKnob("max_num_batched_tokens", 128, 8192),
        ChoiceKnob("enable_chunked_prefill", (True, False)),
        fixed={"max_model_len": 4096},
    )

    here, _ = intersect(asked, H200)

    repaired = here.repair(
        {"max_num_batched_tokens": 512, "enable_chunked_prefill": False}
    )
    assert repaired["max_num_batched_tokens"] == 4096


def test_other_tables_can_be_given():
    bare = Dependencies(rules=(), overrides=(), limits={})
    knob = ChoiceKnob("block_size", (8, 16))

    here, skipped = intersect(space(knob), H200, dependencies=bare)

    assert here.knobs == (knob,)
    assert skipped == ()


@pytest.mark.parametrize("catalog", [H200, CPU])
def test_an_intersection_is_stable(catalog):
    asked = space(
        IntKnob("max_num_batched_tokens", 1024, 32768, log=True),
        IntKnob("max_num_seqs", 16, 1024, log=True),
        ChoiceKnob("block_size", (8, 16, 32, 64)),
        ChoiceKnob("kv_cache_dtype", ("auto", "fp8", "nonsense")),
    )

    once, _ = intersect(asked, catalog)
    twice, skipped = intersect(once, catalog)

    assert twice == once
    assert skipped == ()

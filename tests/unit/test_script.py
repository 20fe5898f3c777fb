"""The exported script is bash that a linter passes, whatever the values are."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain.settings import EngineSettings
from autotune.export.script import Provenance, flags, render


GOLDEN = Path(__file__).parents[1] / "golden"
PROVENANCE = Provenance(
    [
        ("study", "glm-4-9b-chat-chat, trial 17"),
        ("model", "glm-4-9b-chat"),
        ("machine", "NVIDIA H200 x 1"),
        ("versions", "python 3.11.7, vllm 0.21.0"),
    ],
    served_name="glm-4-9b-chat",
    python="/opt/venv/bin/python",
)
SCRIPTS = {
    "serve-gpu": EngineSettings(
        "zai-org/glm-4-9b-chat-hf",
        {
            "max_model_len": 640,
            "max_num_seqs": 256,
            "gpu_memory_utilization": 0.93,
            "enable_prefix_caching": False,
            "async_scheduling": True,
            "kv_cache_dtype": "auto",
            "quantization": None,
            "compilation_config.cudagraph_mode": "FULL_DECODE_ONLY",
            "compilation_config.max_cudagraph_capture_size": 4096,
        },
    ),
    "serve-cpu": EngineSettings(
        "/home/me/my models/smollm2",
        {"enforce_eager": True, "kv_cache_memory_bytes": 268435456},
        {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    ),
}
NASTY = st.text(
    st.sampled_from("ab'\"$`\\ \n;&|<>(){}[]*?~#!=-%\té/"), min_size=1, max_size=12
)


def bash(script, *words, **environment):
    return subprocess.run(
        ["bash", "-s", "--", *words],
        input=script,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], **environment},
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_is_the_one_in_the_golden_file(name):
    golden = GOLDEN / f"{name}.sh"
    rendered = render(SCRIPTS[name], PROVENANCE)
    if os.environ.get("REFRESH_GOLDEN"):
        golden.write_text(rendered)

    assert rendered == golden.read_text()


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_golden_script_parses_and_passes_shellcheck(name):
    path = GOLDEN / f"{name}.sh"

    parsed = subprocess.run(["bash", "-n", path], check=False, capture_output=True)
    assert parsed.returncode == 0, parsed.stderr
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    checked = subprocess.run(
        [shellcheck, "--severity=style", path],
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


@settings(max_examples=25)
@given(
    model=NASTY,
    value=NASTY,
    variable=NASTY,
    served=NASTY,
    line=NASTY,
    python=NASTY,
)
def test_no_value_escapes_its_quotes(*, model, value, variable, served, line, python):
    chosen = EngineSettings(model, {"knob_a": value, "b": True}, {"VARIABLE": variable})
    script = render(chosen, Provenance([(line, line)], served, python))
    # Run what sets variables and builds words; leave out the checks and the server.
    start = script.index("\nexport ")
    head = script[start : script.index("\n# Preflight")]
    words = script[script.index("\narguments=(") : script.index("\nexec ")]
    show = 'printf "%s\\0" "$VARIABLE" "$model" "${arguments[@]}"'

    ran = bash(f"set -euo pipefail{head}{words}\n{show}")

    assert ran.returncode == 0, ran.stderr
    got = ran.stdout.split("\0")[:-1]
    knob = [f"--knob-a={value}"] if value.startswith("-") else ["--knob-a", value]
    assert got == [
        variable,
        model,
        "--host",
        "127.0.0.1",
        "--port",
        "8000",
        "--served-model-name",
        served,
        "--b",
        *knob,
    ]
    comments = script[:start].splitlines()
    assert all(c.startswith(("#", "set -euo")) or not c for c in comments)


def test_the_script_passes_its_own_arguments_on_and_binds_where_told(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(
        "#!/usr/bin/env bash\n"
        'if [[ "$1" == -c ]]; then exit 0; fi\n'
        'printf "%s\\n" "$@"\n'
    )
    fake.chmod(0o755)
    script = render(EngineSettings("org/m", {"max_num_seqs": 4}), PROVENANCE)

    ran = bash(script, "--api-key", "k v", PYTHON=str(fake), PORT="8123")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        *("-m", "vllm.entrypoints.cli.main", "serve", "org/m"),
        *("--host", "127.0.0.1", "--port", "8123"),
        *("--served-model-name", "glm-4-9b-chat"),
        *("--max-num-seqs", "4", "--api-key", "k v"),
    ]


def test_without_vllm_the_script_says_so_and_exits_with_3():
    provenance = Provenance([], "m", "/no/such/python")
    script = render(EngineSettings("org/m"), provenance)

    ran = bash(script, PYTHON="/no/such/python")

    assert ran.returncode == 3
    assert "no Python with vLLM found" in ran.stderr


def test_a_model_that_is_gone_is_said_and_exits_with_3(tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/usr/bin/env bash\nexit 0\n")
    fake.chmod(0o755)
    script = render(EngineSettings(str(tmp_path / "gone")), PROVENANCE)

    ran = bash(script, PYTHON=str(fake))

    assert ran.returncode == 3
    assert f"the model is not at {tmp_path}/gone" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"a_b": 1}, [("--a-b", "1")]),
        ({"a_b": True}, [("--a-b",)]),
        ({"a_b": False}, [("--no-a-b",)]),
        ({"a_b": None}, []),
        ({"a_b": 0.5}, [("--a-b", "0.5")]),
        ({"a_b": -1}, [("--a-b=-1",)]),
        ({"a_b.c_d": True}, [("--a-b.c_d", "true")]),
        ({"a_b.c_d": "X"}, [("--a-b.c_d", "X")]),
    ],
)
def test_an_argument_becomes_the_servers_flag(arguments, words):
    assert flags(arguments) == words


def test_nested_json_stays_one_word():
    text = json.dumps({"a": [1, 2]})

    assert flags({"c": text}) == [("--c", text)]

"""The command as a user types it, to a script that serves."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest


pytestmark = pytest.mark.engine
COMMAND = [sys.executable, "-m", "autotune"]


def autotune(*words, check=True):
    done = subprocess.run(
        [*COMMAND, *words], check=False, capture_output=True, text=True, timeout=300
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_health(port, server, seconds=180):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert server.poll() is None, "the server ended before it was healthy"
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail("the server was not healthy in time")


def test_defaults_that_do_not_start_still_end_in_a_script_that_serves(tiny, workplace):
    """More sequences than the default batch holds: only some trials can start."""
    words = ["--model", "tiny-glm4", "--trials", "4", "--study", "s"]
    words += ["--fix", "max_num_seqs=3000"]

    done = autotune(*words)

    assert "vLLM's defaults do not start here" in done.stdout
    assert "invalid_config" in done.stdout
    listed = json.loads(autotune("trials", "--study", "s", "--json").stdout)
    assert len(listed) == 4
    assert listed[0]["outcome"] == "invalid_config"
    first = next(t for t in listed if t["outcome"] == "measured")
    assert first["score"] == 1.0
    assert first["levels"][0]["ttft_p95_ms"] > 0

    again = autotune(*words)
    assert len(json.loads(autotune("trials", "--study", "s", "--json").stdout)) == 4
    assert "serve script" in again.stdout

    script = Path(autotune("export", "--study", "s", "-o", "serve.sh").stdout.strip())
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)
    port = free_port()
    environment = {**os.environ, "PORT": str(port)}
    with Path("server.log").open("w") as log:
        server = subprocess.Popen(
            ["bash", script], env=environment, stdout=log, stderr=log
        )
    try:
        wait_for_health(port, server)
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/completions",
            json={"model": "tiny-glm4", "prompt": "token", "max_tokens": 5},
            timeout=60,
        ).json()
        assert answer["usage"]["completion_tokens"] <= 5
        assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    finally:
        server.terminate()
        server.wait(timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fix", "max_num_seq=4"], "did you mean max_num_seqs"),
        (["--workload", "smok"], "smok"),
        (["--space", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_ends_with_2_and_leaves_nothing(workplace, words, said):
    done = autotune("--model", "tiny-glm4", "--trials", "2", *words, check=False)

    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(workplace.iterdir()) == []

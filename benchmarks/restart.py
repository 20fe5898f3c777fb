"""Restart ready to ready, beside a cold server process; twenty restarts stay flat.

One run interleaves both, as machines drift. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil

from autotune.domain.request import PlannedRequest
from autotune.domain.settings import EngineSettings
from autotune.engine.capture import captured
from autotune.engine.local import VllmEngine
from autotune.engine.processes import descendants
from autotune.models.fetch import default_cache, fetch


MOST_RATIO = 0.30
MOST_GROWTH_MIB = 64
ARGUMENTS = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 * 2**20,
    "max_model_len": 128,
}
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
PROMPT = tuple(range(300, 332))


def restart(
    engine: VllmEngine, settings: EngineSettings, log: Path
) -> dict[str, float]:
    """Seconds by phase from asking for a start to the first answer, and the stop."""

    async def first_answer() -> dict[str, float]:
        began = time.perf_counter()
        with engine.start(settings) as running:
            request = PlannedRequest("r", 0, 0.0, PROMPT, 1)
            async for _ in running.stream(request):
                pass
            ready = time.perf_counter() - began
        return {"ready": ready, **running.phases_s}

    with captured(log):
        return asyncio.run(first_answer())


def cold_server(model: str, log: Path) -> float:
    """Seconds from starting a server process to its first answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", model, "--port", str(port), "--host", "127.0.0.1"]
    words += ["--enforce-eager", "--max-model-len", "128"]
    words += ["--kv-cache-memory-bytes", str(ARGUMENTS["kv_cache_memory_bytes"])]
    began = time.perf_counter()
    with log.open("w") as out:
        server = subprocess.Popen(
            words, stdout=out, stderr=out, env={**os.environ, **ENVIRONMENT}
        )
    try:
        return wait_for_answer(server, port, model, began)
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_for_answer(
    server: subprocess.Popen[bytes], port: int, model: str, began: float
) -> float:
    """Poll until the server completes one token."""
    body = {"model": model, "prompt": list(PROMPT), "max_tokens": 1}
    while time.perf_counter() - began < 300:
        if server.poll() is not None:
            raise SystemExit("the server process ended before it answered")
        try:
            url = f"http://127.0.0.1:{port}/v1/completions"
            if httpx.post(url, json=body, timeout=60).status_code == 200:
                return time.perf_counter() - began
        except httpx.TransportError:
            time.sleep(0.1)
    raise SystemExit("the server process was not ready in 300 s")


def main() -> None:
    """Print the figures and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--servers", type=int, default=3)
    options = parser.parse_args()
    model = str(fetch(options.model, cache=default_cache()))
    settings = EngineSettings(model, ARGUMENTS, ENVIRONMENT)
    engine, me = VllmEngine(), psutil.Process()
    every = max(options.restarts // max(options.servers, 1), 1)
    rows, cold, readings = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for index in range(options.restarts):
            rows.append(restart(engine, settings, Path(scratch, f"{index}.log")))
            readings.append((me.num_threads(), me.num_fds(), me.memory_info().rss))
            phases = ", ".join(f"{k} {v:.2f}" for k, v in rows[-1].items())
            print(
                f"restart {index}: {phases} s; threads, descriptors {readings[-1][:2]}"
            )
            if index % every == every - 1 and len(cold) < options.servers:
                cold.append(cold_server(model, Path(scratch, f"server-{index}.log")))
                print(f"cold server to its first answer: {cold[-1]:.2f} s")
    report(rows, cold, readings)


def report(
    rows: list[dict[str, float]],
    cold: list[float],
    readings: list[tuple[int, int, int]],
) -> None:
    """The last line, and the exit code."""
    ready_to_ready = [r["ready"] + r["stop"] for r in rows[1:]]
    ratio = statistics.median(ready_to_ready) / statistics.median(cold)
    early, last = readings[2], readings[-1]
    growth_mib = (last[2] - early[2]) / 2**20
    flat = last[0] <= early[0] and last[1] <= early[1] and growth_mib <= MOST_GROWTH_MIB
    ok = ratio <= MOST_RATIO and flat and not descendants()
    print(
        json.dumps(
            {
                "ready_to_ready_s": round(statistics.median(ready_to_ready), 3),
                "phases_s": {
                    k: round(statistics.median(r[k] for r in rows[1:]), 3)
                    for k in rows[0]
                },
                "cold_server_s": round(statistics.median(cold), 3),
                "ratio": round(ratio, 3),
                "threads": [early[0], last[0]],
                "descriptors": [early[1], last[1]],
                "rss_growth_mib": round(growth_mib, 1),
                "targets": {"ratio": MOST_RATIO, "rss_growth_mib": MOST_GROWTH_MIB},
                "ok": ok,
            }
        )
    )
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()

"""Whether our client and vLLM's own benchmark client read the same server alike.

    python benchmarks/parity.py [--model tiny-glm4] [--pairs 10] [--without-engine]

First a mock of exactly known latency: both clients must be within 1 % of what the mock
says it did, and of each other. Then one vLLM on this machine: alternating pairs of
runs, and the 95 % t interval of the ratio ours / theirs of mean TTFT and mean TPOT must
lie within 3 % of one; otherwise the answer is "inconclusive" and not ok. Both clients
run in this process, one after the other, with the same lengths, evenly spaced arrivals
and request fields; TTFT counts from the actual send, as vLLM has it. Ours sends token
ids and theirs text, as is their nature. Arrivals are spaced because vLLM's client
counts its own work on requests that leave together as their latency (eight at once
against the mock read 2.2 % long). The last line is one JSON object with figures,
targets and "ok".
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import httpx
from scipy import stats

from autotune.domain.timing import LevelResult
from autotune.domain.workload import OpenLoop, Workload
from autotune.load.generator import run_block
from autotune.load.http_target import HttpTarget
from autotune.load.lag import LagBounds
from autotune.load.mock_server import MockLatency, running_mock
from autotune.load.plan import plan_block
from autotune.models.fetch import default_cache, fetch
from autotune.score.bench_fields import bench_fields


MOCK_BOUND = 0.01
ENGINE_BOUND = 0.03
MOCK_PAIRS = 3
LEAST_PAIRS = 10
# Connections that are open before anything is measured.
WARM = 8
# vLLM spaces requests by a gamma distribution; of this shape, evenly.
EVENLY = "1000000"
START_S = 240.0
LATENCY = MockLatency()
# What our client sends beside vLLM's own fields; a server's work per token hangs on it.
SAME_FIELDS = {
    "temperature": 0,
    "skip_special_tokens": False,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of one client sends, evenly spaced."""

    rate_rps: float
    requests: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one client read, in milliseconds; TTFT from the actual send."""

    client: str
    mean_ttft_ms: float
    median_ttft_ms: float
    mean_tpot_ms: float
    completed: int
    failed: int
    void: str | None = None


MOCK_LOAD = Load(rate_rps=8.0, requests=64, prompt_tokens=64, output_tokens=32)
ENGINE_LOAD = Load(rate_rps=8.0, requests=24, prompt_tokens=256, output_tokens=32)
NAMES = ("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms")
RATIO_NAMES = ("mean_ttft_ms", "mean_tpot_ms")


def run_ours(url: str, model: str, load: Load, *, seed: int, vocabulary: int) -> Run:
    """One block of ours, read by vLLM's formulae."""
    level = OpenLoop(load.rate_rps)
    workload = Workload(
        "parity",
        load.prompt_tokens,
        load.output_tokens,
        requests=load.requests,
        blocks=1,
        levels=(level,),
        seed=seed,
    )
    requests = [
        replace(request, scheduled_s=index / load.rate_rps)
        for index, request in enumerate(
            plan_block(workload, level, block=0, vocabulary=vocabulary)
        )
    ]

    async def measure() -> LevelResult:
        async with HttpTarget(url, model=model, connections=WARM) as target:
            # As vLLM's client does: one request, then a burst.
            warm = plan_block(workload, level, block=1, vocabulary=vocabulary)
            together = [replace(r, scheduled_s=0.0) for r in warm[:WARM]]
            for first in (together[:1], together):
                await run_block(target, first, workload="parity", level=level, block=1)
            run = await run_block(
                target,
                requests,
                workload="parity",
                level=level,
                block=0,
                bounds=LagBounds(),
            )
            # A void block's figures are shown too, beside the reason.
            lost = [f.reason for f in run.block.failures]
            voids.append(run.block.void or (lost[0] if lost else None))
            if run.fault is not None:
                raise run.fault
            return LevelResult("parity", level.label, (replace(run.block, void=None),))

    voids: list[str | None] = []
    fields = bench_fields(asyncio.run(measure()))
    return _run("ours", fields, void=voids[0])


def run_theirs(url: str, model: str, load: Load, *, seed: int, tokenizer: str) -> Run:
    """One run of ``vllm bench serve``'s client."""
    from vllm.benchmarks.serve import add_cli_args, main_async

    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    words = [
        *("--backend", "openai", "--base-url", url, "--endpoint", "/v1/completions"),
        *("--model", model, "--tokenizer", tokenizer, "--dataset-name", "random"),
        *("--random-input-len", str(load.prompt_tokens)),
        *("--random-output-len", str(load.output_tokens)),
        *("--random-range-ratio", "0", "--num-prompts", str(load.requests)),
        *("--request-rate", str(load.rate_rps), "--burstiness", EVENLY),
        *("--num-warmups", str(WARM)),
        *("--seed", str(seed), "--disable-tqdm", "--ready-check-timeout-sec", "30"),
        *("--extra-body", json.dumps(_extra(load))),
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        found = asyncio.run(main_async(parser.parse_args(words)))
    return _run("vllm bench serve", found)


def _extra(load: Load) -> dict[str, Any]:
    return {**SAME_FIELDS, "min_tokens": load.output_tokens, "ignore_eos": True}


def _run(client: str, found: dict[str, Any], *, void: str | None = None) -> Run:
    figures = {name: float(found[name]) for name in NAMES}
    return Run(
        client,
        **figures,
        completed=found["completed"],
        failed=found["failed"],
        void=void,
    )


def compare_on_mock(tokenizer: str, vocabulary: int) -> dict[str, Any]:
    """Errors of both clients against what the mock did, and of one to the other."""
    rows: list[dict[str, Any]] = []
    with running_mock(LATENCY) as url:
        for pair in range(MOCK_PAIRS):
            clients: list[Callable[[], Run]] = [
                lambda s=pair: run_ours(
                    url, "mock", MOCK_LOAD, seed=s, vocabulary=vocabulary
                ),
                lambda s=pair: run_theirs(
                    url, "mock", MOCK_LOAD, seed=s, tokenizer=tokenizer
                ),
            ]
            for client in _alternating(clients, pair):
                _take_truth(url)
                run = client()
                truth = _take_truth(url)
                rows.append({**asdict(run), "truth": truth})
                _show("mock", run)
    ours = [r for r in rows if r["client"] == "ours"]
    theirs = [r for r in rows if r["client"] != "ours"]
    errors = {
        "ours_to_truth": {n: _error(ours, n) for n in RATIO_NAMES},
        "vllm_to_truth": {n: _error(theirs, n) for n in RATIO_NAMES},
        "ours_to_vllm": {
            n: fmean(r[n] for r in ours) / fmean(r[n] for r in theirs) - 1
            for n in RATIO_NAMES
        },
    }
    every = [error for kind in errors.values() for error in kind.values()]
    within = all(abs(error) <= MOCK_BOUND for error in every)
    answered = all(r["completed"] == MOCK_LOAD.requests for r in rows)
    return {"runs": rows, "errors": errors, "ok": within and answered}


def _error(rows: Sequence[dict[str, Any]], name: str) -> float:
    return fmean(r[name] / r["truth"][name] for r in rows) - 1


def _take_truth(url: str) -> dict[str, float] | None:
    """Means over what the mock did since the last call, measured requests alone.

    TTFT is from when it had read a request to its first write; the warm-up requests
    come first and are left out.
    """
    answers = httpx.get(f"{url}/ledger", trust_env=False).json()[-MOCK_LOAD.requests :]
    if not answers:
        return None
    gaps = MOCK_LOAD.output_tokens - 1
    return {
        "mean_ttft_ms": 1e3 * fmean(a["stamp_s"][0] - a["received_s"] for a in answers),
        "mean_tpot_ms": 1e3
        * fmean((a["stamp_s"][-1] - a["stamp_s"][0]) / gaps for a in answers),
    }


def compare_on_engine(
    model: str, *, pairs: int, vocabulary: int, until_s: float
) -> dict[str, Any]:
    """Intervals of the ratio ours / theirs over alternating pairs on one vLLM."""
    runs: list[tuple[Run, Run]] = []
    with running_vllm(model) as url, _off_the_first_core():
        for pair in range(-1, pairs):
            clients: list[Callable[[], Run]] = [
                lambda s=pair: run_ours(
                    url, model, ENGINE_LOAD, seed=1000 + s, vocabulary=vocabulary
                ),
                lambda s=pair: run_theirs(
                    url, model, ENGINE_LOAD, seed=1000 + s, tokenizer=model
                ),
            ]
            found = sorted(
                (client() for client in _alternating(clients, pair)),
                key=lambda r: r.client,
            )
            for run in found:
                _show("engine" if pair >= 0 else "discarded", run)
            if pair >= 0:  # the first pair warms the server up
                runs.append((found[0], found[1]))
            if time.monotonic() > until_s:
                break
    intervals = {n: _ratio_interval(runs, n) for n in RATIO_NAMES}
    enough = len(runs) >= LEAST_PAIRS
    within = all(
        i["low"] >= 1 - ENGINE_BOUND and i["high"] <= 1 + ENGINE_BOUND
        for i in intervals.values()
    )
    apart = any(
        i["high"] < 1 - ENGINE_BOUND or i["low"] > 1 + ENGINE_BOUND
        for i in intervals.values()
    )
    verdict = "apart" if apart else "alike" if within and enough else "inconclusive"
    return {
        "pairs": len(runs),
        "runs": [[asdict(r) for r in pair] for pair in runs],
        "ratios": intervals,
        "verdict": verdict,
        "ok": verdict == "alike",
    }


def _ratio_interval(runs: Sequence[tuple[Run, Run]], name: str) -> dict[str, float]:
    """Geometric mean ratio with its 95 % t interval over pairs."""
    logs = [math.log(getattr(o, name) / getattr(t, name)) for o, t in runs]
    if len(logs) < 2:
        return {"ratio": math.nan, "low": 0.0, "high": math.inf}
    half = stats.t.ppf(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    mean = fmean(logs)
    return {
        "ratio": math.exp(mean),
        "low": math.exp(mean - half),
        "high": math.exp(mean + half),
    }


def _alternating(
    clients: Sequence[Callable[[], Run]], pair: int
) -> Sequence[Callable[[], Run]]:
    """Who is first changes from pair to pair, so that drift favours nobody."""
    return clients if pair % 2 == 0 else list(reversed(clients))


@contextlib.contextmanager
def running_vllm(model: str) -> Iterator[str]:
    """``vllm serve`` for ``model`` in a process of its own; gives its base URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model, "--host", "127.0.0.1", "--port", str(port)),
        *("--max-model-len", "512", "--no-enable-prefix-caching"),
        *("--disable-uvicorn-access-log", "--enforce-eager"),
        *("--kv-cache-memory-bytes", "268435456"),
    ]
    settings = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        # One core computes; the clients have the others to themselves.
        "VLLM_CPU_OMP_THREADS_BIND": str(min(os.sched_getaffinity(0))),
    }
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=log, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_healthy(url, server, log)
            yield url
        finally:
            server.terminate()
            server.wait(timeout=60)


@contextlib.contextmanager
def _off_the_first_core() -> Iterator[None]:
    """Leave the core on which vLLM computes, where there is another."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, mine - {min(mine)} or mine)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def _wait_until_healthy(url: str, server: subprocess.Popen[bytes], log: Any) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and server.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", trust_env=False).is_success:
                return
        time.sleep(0.5)
    log.seek(0)
    sys.exit("vLLM did not come up:\n" + log.read().decode(errors="replace")[-4000:])


def _show(where: str, run: Run) -> None:
    print(
        f"{where:>9}  {run.client:>16}  TTFT mean {run.mean_ttft_ms:8.2f} median "
        f"{run.median_ttft_ms:8.2f} ms  TPOT {run.mean_tpot_ms:7.3f} ms  "
        f"{run.completed} answered" + (f"  (void: {run.void})" if run.void else ""),
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny-glm4", help="an alias known here")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--most-seconds", type=float, default=180.0)
    parser.add_argument("--without-engine", action="store_true")
    parser.add_argument("--without-mock", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    model = str(fetch(options.model, cache=default_cache()))
    config = json.loads((Path(model) / "config.json").read_text())
    vocabulary = int(config["vocab_size"])
    report: dict[str, Any] = {
        "benchmark": "parity",
        "model": options.model,
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "cpu_count": os.cpu_count(),
        "targets": {"mock_within": MOCK_BOUND, "engine_within": ENGINE_BOUND},
    }
    if not options.without_mock:
        report["mock"] = compare_on_mock(model, vocabulary)
    if not options.without_engine:
        report["engine"] = compare_on_engine(
            model,
            pairs=options.pairs,
            vocabulary=vocabulary,
            until_s=time.monotonic() + options.most_seconds,
        )
    parts = [report.get(name) for name in ("mock", "engine")]
    # A part that was left out was not shown.
    report["ok"] = all(part is not None and part["ok"] for part in parts)
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

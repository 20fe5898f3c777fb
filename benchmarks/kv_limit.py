"""A KV limit that starves launches, on real vLLM: ours beside random.

Both study the same space on tiny-glm4 (CPU); a KV cache too small for one request
cannot start. The last line is one JSON object with the launches that ran out.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from autotune.cli.assemble import assemble
from autotune.cli.request import Request
from autotune.cli.terminal import Terminal, open_terminal
from autotune.domain.outcome import OutOfMemory
from autotune.domain.workload import ClosedLoop, Workload
from autotune.engine.capture import captured
from autotune.models.fetch import default_cache, fetch
from autotune.strategy.shadow import ShadowSampler


LAUNCHES = 20
LEAST_RANDOM, MOST_OURS = 5, 2
WORKLOAD = Workload(
    "short",
    prompt_tokens=32,
    output_tokens=8,
    requests=8,
    blocks=1,
    levels=(ClosedLoop(8),),
)
SPACE = """
name: kv-limit
fixed: {enforce_eager: true, max_model_len: 2048}
environment: {VLLM_ENABLE_V1_MULTIPROCESSING: "0"}
knobs:
  kv_cache_memory_bytes: {type: int, low: 131072, high: 67108864, log: true}
  max_num_seqs: {type: int, low: 2, high: 256, log: true}
  block_size: {type: choice, choices: [32, 64, 128]}
rules: []
"""


def starved(kind: str, model: str, space: str, terminal: Terminal) -> int:
    """Out-of-memory launches of a study of ``LAUNCHES`` proposals."""
    request = Request(
        model=model,
        trials=LAUNCHES + 1,
        study=kind,
        url=f"sqlite:///{kind}.db",
        workloads=(WORKLOAD,),
        space=space,
        fixes={"max_model_len": 2048},
        allow_lossy=False,
        seed=1,
    )
    with captured(Path(f"{kind}.log")):
        tuner = assemble(request, model, Path("logs", kind), terminal)
        if kind == "random":
            strategy = ShadowSampler(tuner.plan.space, seed=1, kind="random")
            tuner = replace(tuner, strategy=strategy)
        trials = [t for t in tuner.run() if t.role == "trial"]
    return sum(isinstance(t.outcome, OutOfMemory) for t in trials)


def main() -> None:
    """Run both and print one JSON object."""
    terminal = open_terminal()
    model = str(fetch("tiny-glm4", cache=default_cache()))
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        Path("space.yaml").write_text(SPACE, encoding="utf-8")
        found = {
            k: starved(k, model, "space.yaml", terminal) for k in ("random", "ours")
        }
        os.chdir("/")
    ok = found["random"] >= LEAST_RANDOM and found["ours"] <= MOST_OURS
    targets = {"random_at_least": LEAST_RANDOM, "ours_at_most": MOST_OURS}
    figures = {"launches": LAUNCHES, "out_of_memory": found, "targets": targets}
    terminal.out.write(json.dumps({**figures, "ok": ok}) + "\n")
    terminal.out.flush()
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()

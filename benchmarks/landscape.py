"""A synthetic stand-in for tuning a 9B model on an 80 GB card: a memory cliff beside the optimum.

Not vLLM. A search benchmark counts only on this file unchanged. Needs numpy. `shift_gb` moves the cliff: 0 gives 34 %
infeasible space, EASY_SHIFT_GB about 8 %. A rejected proposal that was never launched does not count as a launch.

Origin: given to this project together with its first requirements, as the common ground on which searches were compared
before it began; copied without a change of behaviour, which is why it keeps its own layout.
"""

# ruff: noqa: E501, ANN, TC, ERA, I001 - kept as it came
# fmt: off
from __future__ import annotations

import math

import numpy as np


EASY_SHIFT_GB = 7.0
CHOICES = {"block_size": (16, 32, 64, 128), "fp8_kv": (False, True), "tensor_parallel": (1, 2, 4)}


def memory_gb(p: dict) -> tuple[float, float, float, float]:
    """Weights, activations, graphs and KV of one device, in GB."""
    weights = 63 / p["tensor_parallel"]
    activations = p["batched_tokens"] * 0.00042 / p["tensor_parallel"] ** 0.5
    graphs = 0.6 + p["sequences"] * 0.006 + (3.2 if p["fp8_kv"] else 0)
    return weights, activations, graphs, p["utilization"] * 80 - weights - 1.0


def shortfall_gb(p: dict, shift_gb: float = 0.0) -> float:
    """How much memory is missing; above 0 the launch runs out of memory."""
    _, activations, graphs, kv = memory_gb(p)
    outside = 80 - p["utilization"] * 80
    return max(0.9 * (activations + graphs) - outside, 2.0 - kv + 0.45 * activations) - shift_gb


def throughput(p: dict) -> float:
    """The noiseless objective, higher is better; meaningful only where shortfall_gb is at most 0."""
    _, activations, _, kv = memory_gb(p)
    tokens = max(kv - 0.45 * activations, 0.1) * (1.9 if p["fp8_kv"] else 1.0) * (1 if p["block_size"] <= 32 else 0.97)
    running = min(p["sequences"], tokens * 7)
    log_tokens = math.log2(p["batched_tokens"])
    prefill = 1 / (1 + math.exp(-(log_tokens - 11.3) * 1.4)) - 0.10 * max(0.0, log_tokens - 13.4)
    layout = {1: 1.0, 2: 1.28, 4: 1.18}[p["tensor_parallel"]]
    clash = 0.93 if p["fp8_kv"] and p["block_size"] == 16 else 1.0
    return running / (1 + running / 240) * prefill * layout * clash * (1 - 0.00013 * max(0, p["sequences"] - 384))


def random_point(rng: np.random.Generator) -> dict:
    """One uniform draw: utilization .70-.98, batched_tokens 512-32768 (log), sequences 16-1024 (log), and the choices."""
    return {
        "utilization": float(rng.uniform(0.70, 0.98)),
        "batched_tokens": int(2 ** rng.uniform(9, 15)),
        "sequences": int(2 ** rng.uniform(4, 10)),
        **{name: values[rng.integers(len(values))] for name, values in CHOICES.items()},
    }


def optimum(shift_gb: float = 0.0, draws: int = 200_000) -> tuple[float, float]:
    """Best feasible value and infeasible share over a fixed random sample."""
    rng = np.random.default_rng(0)
    points = [random_point(rng) for _ in range(draws)]
    short = np.array([shortfall_gb(p, shift_gb) for p in points])
    values = np.array([throughput(p) for p in points])
    return float(values[short <= 0].max()), float((short > 0).mean())


if __name__ == "__main__":
    for shift in (0.0, EASY_SHIFT_GB):
        best, share = optimum(shift)
        print(f"shift {shift:4.1f} GB: optimum {best:.1f}, infeasible {share:.0%}")

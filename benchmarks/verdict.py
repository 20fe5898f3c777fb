"""Studies with a known truth in, how often the verdict errs out.

Every study is decided round by round by ``autotune.score.verdict.decide``. One line
per scenario; the last line is one JSON object; exit code 1 when a target is missed.

    python benchmarks/verdict.py [--studies 2000] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.domain.verdict import Comparison, Continue, NotWorthIt, Verdict, WorthIt
from autotune.score.verdict import BASELINE, STANDARD, Plan, decide


NAMES = ("first", "second", "third")
FALSE_WINS_MOST = 0.06
COVERAGE_RANGE = (0.93, 0.97)
POWER_LEAST = 0.90


@dataclass(frozen=True, slots=True)
class Scenario:
    """A truth and its noise, all as fractions.

    Attributes:
        name: For the table.
        gains: True gain of each candidate over the baseline.
        start_cv: Between fresh starts of one configuration.
        block_cv: Between blocks within one start.
        blocks: Blocks averaged into one score.
        stall_share: Starts that something else on the machine slows by 30 %. Such
            tails widen intervals beyond their claim: coverage is then only reported.
        drift_sd: Of a factor that all configurations of one round share.
        is_power_target: Whether the first candidate has to be found.
    """

    name: str
    gains: tuple[float, ...]
    start_cv: float
    block_cv: float = 0.0
    blocks: int = 4
    stall_share: float = 0.0
    drift_sd: float = 0.0
    is_power_target: bool = False

    @property
    def is_null(self) -> bool:
        """Whether every win would be a false one."""
        return all(gain <= 0 for gain in self.gains)

    def scores(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Scores, shape (rounds, 1 + candidates), the baseline first."""
        shape = (rounds, 1 + len(self.gains))
        truth = np.array([1.0, *(1 - gain for gain in self.gains)])
        starts = truth * np.exp(rng.normal(0, self.start_cv, shape))
        starts *= np.where(rng.random(shape) < self.stall_share, 1.3, 1.0)
        starts *= np.exp(rng.normal(0, self.drift_sd, (rounds, 1)))
        # Gamma blocks: positive, skewed as latencies are, of the given CV.
        power = 1 / self.block_cv**2 if self.block_cv else np.inf
        if np.isinf(power):
            return starts
        blocks = rng.gamma(power, 1 / power, (*shape, self.blocks))
        return starts * blocks.mean(axis=2)


SCENARIOS = (
    Scenario("identical, 2 % between starts", (0, 0, 0), 0.02),
    Scenario("identical, 1 candidate", (0,), 0.02),
    Scenario("identical, 2 candidates", (0, 0), 0.02),
    Scenario("identical, 20 % block CV", (0, 0, 0), 0.0, block_cv=0.2),
    Scenario("identical, both", (0, 0, 0), 0.02, block_cv=0.2),
    Scenario("identical, drift 10 %", (0, 0, 0), 0.02, drift_sd=0.1),
    Scenario("identical, 5 % stalled", (0, 0, 0), 0.02, stall_share=0.05),
    Scenario("all 3 % worse", (-0.03, -0.03, -0.03), 0.02),
    Scenario("5 % gain, 2 % noise", (0.05, 0, 0), 0.02, is_power_target=True),
    Scenario("5 % gain, 2 % noise, alone", (0.05,), 0.02, is_power_target=True),
    Scenario("5 % gain, 5 % noise", (0.05, 0, 0), 0.05),
    Scenario("5 % gain, 20 % block CV", (0.05, 0, 0), 0.02, block_cv=0.2),
    Scenario("10 % gain, 20 % block CV", (0.1, 0, 0), 0.02, block_cv=0.2),
    Scenario("18 % gain, 20 % block CV", (0.18, 0, 0), 0.02, block_cv=0.2),
    Scenario("1 % gain, 5 % noise, alone", (0.01,), 0.05),
    Scenario("2 % gain, 2 % noise", (0.02, 0, 0), 0.02),
    Scenario("gains of 2, 3, 4 %, 2 % noise", (0.02, 0.03, 0.04), 0.02),
    Scenario("three gains of 5 %, 2 % noise", (0.05, 0.05, 0.05), 0.02),
    Scenario("18 % gain, 2 % noise", (0.18, 0.05, 0), 0.02),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Fractions of studies, and what they cost."""

    wins: float
    worth_it: float
    first_named: float
    coverage: float
    named_coverage: float | None
    kinds: Mapping[str, float]
    mean_rounds: float


def run_study(scores: np.ndarray, *, plan: Plan = STANDARD) -> Verdict:
    """One study: rounds as the verdict asks for them, dropped candidates left out."""
    names = NAMES[: scores.shape[1] - 1]
    changes = {name: place + 1 for place, name in enumerate(names)}
    kept, running = [], names
    for row in scores:
        values = dict(zip((BASELINE, *names), row.tolist(), strict=True))
        kept.append({name: values[name] for name in (BASELINE, *running)})
        answer = decide(kept, changes=changes, plan=plan)
        if not isinstance(answer, Continue):
            return answer
        running = answer.candidates
    raise AssertionError("the plan ended without a verdict")


def simulate(
    scenario: Scenario, *, studies: int, seed: int, plan: Plan = STANDARD
) -> Figures:
    """Run ``studies`` of ``scenario`` and count."""
    rng = np.random.default_rng(seed)
    verdicts = [
        run_study(scenario.scores(rng, plan.looks[-1]), plan=plan)
        for _ in range(studies)
    ]
    wins = [v for v in verdicts if isinstance(v, WorthIt | NotWorthIt)]
    kinds = [type(v).__name__ for v in verdicts]
    covered = [covers(v.comparison, scenario) for v in verdicts]
    return Figures(
        wins=len(wins) / studies,
        worth_it=kinds.count("WorthIt") / studies,
        first_named=sum(v.winner.name == NAMES[0] for v in wins) / studies,
        coverage=float(np.mean(covered)),
        named_coverage=named_coverage(wins, scenario),
        kinds={kind: kinds.count(kind) / studies for kind in sorted(set(kinds))},
        mean_rounds=float(np.mean([v.comparison.rounds_count for v in verdicts])),
    )


def covers(comparison: Comparison, scenario: Scenario) -> list[bool]:
    """For each candidate in order of name, whether its interval holds the truth."""
    found = {c.name: c.effect for c in comparison.candidates}
    effects = [found[name] for name in NAMES[: len(scenario.gains)]]
    pairs = zip(effects, scenario.gains, strict=True)
    return [e.low <= 1 - gain <= e.high for e, gain in pairs]


def named_coverage(
    wins: list[WorthIt | NotWorthIt], scenario: Scenario
) -> float | None:
    """Share of named winners whose interval holds the truth; selection included."""
    truth = {name: 1 - g for name, g in zip(NAMES, scenario.gains, strict=False)}
    held = [
        v.winner.effect.low <= truth[v.winner.name] <= v.winner.effect.high
        for v in wins
    ]
    return float(np.mean(held)) if held else None


def misses(scenario: Scenario, figures: Figures, *, slack: float = 0.0) -> list[str]:
    """Targets that ``figures`` miss by more than ``slack``."""
    low, high = COVERAGE_RANGE
    missed = []
    if scenario.is_null and figures.wins > FALSE_WINS_MOST + slack:
        missed.append(f"{scenario.name}: false wins {figures.wins:.4f}")
    if (
        scenario.stall_share == 0
        and not low - slack <= figures.coverage <= high + slack
    ):
        missed.append(f"{scenario.name}: coverage {figures.coverage:.4f}")
    if scenario.is_power_target and figures.first_named < POWER_LEAST - slack:
        missed.append(f"{scenario.name}: found {figures.first_named:.4f}")
    return missed


def main() -> int:
    """Run every scenario, print what was found, and say whether targets are met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    started_s = time.process_time()
    missed, results = [], {}
    for place, scenario in enumerate(SCENARIOS):
        seed = asked.seed * 1000 + place
        figures = simulate(scenario, studies=asked.studies, seed=seed)
        missed += misses(scenario, figures)
        kinds = " ".join(f"{k} {v:.3f}" for k, v in figures.kinds.items())
        print(
            f"{scenario.name:32} wins {figures.wins:.4f} found "
            f"{figures.first_named:.4f} coverage {figures.coverage:.4f} "
            f"rounds {figures.mean_rounds:5.2f}  {kinds}",
            flush=True,
        )
        results[scenario.name] = {
            "wins": figures.wins,
            "worth_it": figures.worth_it,
            "found": figures.first_named,
            "coverage": round(figures.coverage, 4),
            "named_coverage": figures.named_coverage,
            "mean_rounds": round(figures.mean_rounds, 2),
            "kinds": dict(figures.kinds),
        }
    report = {
        "benchmark": "verdict",
        "studies": asked.studies,
        "seed": asked.seed,
        "targets": {
            "false_wins_most": FALSE_WINS_MOST,
            "coverage": COVERAGE_RANGE,
            "power_least": POWER_LEAST,
        },
        "figures": results,
        "missed": missed,
        "cpu_seconds": round(time.process_time() - started_s, 1),
        "ok": not missed,
    }
    print(json.dumps(report))
    return 0 if not missed else 1


if __name__ == "__main__":
    sys.exit(main())

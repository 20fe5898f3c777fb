"""A short run of the verdict's benchmark, wide enough for chance, able to fail."""

import importlib.util
import pathlib
import sys

import pytest

from autotune.score.verdict import Plan


PATH = pathlib.Path(__file__).parents[2] / "benchmarks" / "verdict.py"


def load_benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_verdict", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bench = load_benchmark()
BY_NAME = {scenario.name: scenario for scenario in bench.SCENARIOS}


@pytest.mark.parametrize(
    "name",
    [
        "identical, 2 % between starts",
        "identical, 20 % block CV",
        "5 % gain, 2 % noise",
    ],
)
def test_short_simulations_meet_the_targets_within_chance(name):
    """Slack is 2.5 standard errors of a 5 % share over 300 studies."""
    figures = bench.simulate(BY_NAME[name], studies=300, seed=7)

    assert not bench.misses(BY_NAME[name], figures, slack=0.031)


def test_a_careless_rule_is_caught():
    """Spending 10 % on each candidate makes false wins that the target refuses."""
    scenario = BY_NAME["identical, 20 % block CV"]
    careless = Plan(family_alpha=0.3, candidate_alpha=0.1)

    figures = bench.simulate(scenario, studies=300, seed=7, plan=careless)

    assert any("false wins" in miss for miss in bench.misses(scenario, figures))

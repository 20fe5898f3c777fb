"""A search space in; a Sobol cover of it, launched and measured, out as a study.

    python benchmarks/cover.py --model DIR --space FILE --study NAME --launches 24

The study is the tool's own (baseline first, same store, ``autotune trials`` reads
it); only the proposals differ: they cover the space evenly instead of searching it,
so that strategies can be compared on the table afterwards. Levels are short: 15 s of
chat and 6 s of code at 85 % of the baseline's burst capacity.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.cli.assemble import assemble
from autotune.cli.narration import say_start, say_trial
from autotune.cli.request import DUMMY, Request, Weights
from autotune.cli.storage import STUDIES, storage_url
from autotune.cli.terminal import open_terminal
from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace
from autotune.domain.workload import LoadShare, Workload
from autotune.engine.capture import captured
from autotune.load.workloads import WORKLOADS
from autotune.models import locate
from autotune.models.fetch import default_cache
from autotune.strategy.candidates import cover
from autotune.strategy.coordinates import to_values
from autotune.strategy.facts import Fact
from autotune.strategy.shadow import Exhausted, values_key


POINTS = 256
MOST = (LoadShare(0.85),)


class Cover:
    """Proposes the points of one scrambled Sobol sequence in order, repaired."""

    def __init__(self, space: SearchSpace, *, seed: int) -> None:
        points = cover(space.knobs, count=POINTS, rng=np.random.default_rng([seed, 7]))
        self._draws = [space.repair(to_values(space.knobs, p)) for p in points]

    def propose(
        self,
        facts: Sequence[Fact],
        *,
        number: int,  # noqa: ARG002 - part of the seam
        avoid: Collection[Hashable] = (),
        pending: Sequence[Mapping[str, Value]] = (),
    ) -> dict[str, Value]:
        """The first point that was neither launched nor refused.

        Raises:
            Exhausted: All points were.
        """
        taken = {values_key(f.values) for f in facts} | set(avoid)
        taken |= {values_key(v) for v in pending}
        for values in self._draws:
            if values_key(values) not in taken:
                return dict(values)
        raise Exhausted(f"all {POINTS} points of the cover were launched")


def short_workloads(seed: int) -> tuple[Workload, ...]:
    """Chat and code, one short block each."""
    short: dict[str, Any] = {
        "levels": MOST,
        "seed": seed,
        "blocks": 1,
        "most_blocks": 0,
    }
    chat = replace(WORKLOADS["chat"], **short)
    code = replace(WORKLOADS["code"], block_s=6.0, **short)
    return chat, code


def main() -> None:
    """Launch the cover until the study has as many trials as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--space", required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--launches", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weights", type=Weights, default=Weights.DUMMY)
    given = parser.parse_args()
    request = Request(
        model=given.model,
        trials=given.launches,
        study=given.study,
        url=storage_url(None, given.study),
        workloads=short_workloads(given.seed),
        space=given.space,
        fixes=DUMMY.get(given.weights, {}),
        allow_lossy=False,
        seed=given.seed,
    )
    terminal = open_terminal()
    logs = STUDIES / "logs" / request.study
    path = locate(request.model, cache=default_cache())
    with captured(logs / "autotune.log"):
        tuner = assemble(request, path, logs, terminal)
        tuner = replace(
            tuner, strategy=Cover(tuner.plan.space, seed=given.seed), first=()
        )
        say_start(tuner, terminal)
        for trial in tuner.run():
            say_trial(trial, terminal)


if __name__ == "__main__":
    main()

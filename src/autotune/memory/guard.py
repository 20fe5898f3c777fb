"""A prediction in, whether the launch is worth its time out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from autotune.memory.precision import Abstain
from autotune.memory.prediction import Prediction


Verdict = Literal["allow", "explore", "refuse"]


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses launches that surely run out of memory.

    Inside the error band nothing is refused: such a launch is ``explore``, since
    its start teaches most. Of those not far outside, a few are let through all the
    same, so that a wrong model can be found out.

    Attributes:
        seed: Of the study.
        exploration: Share of refusals let through.
        reach: Only shortfalls within this many error bands are let through.
    """

    seed: int
    exploration: float = 0.05
    reach: float = 4.0

    def judge(self, prediction: Prediction | Abstain, *, number: int) -> Verdict:
        """The verdict on proposal ``number``; equal arguments, equal verdict."""
        if isinstance(prediction, Abstain) or not prediction.shortfall_bytes:
            return "allow"
        excess, band = prediction.shortfall_bytes, prediction.error_band_bytes
        if excess <= band:
            return "explore"
        drawn = random.Random(f"{self.seed}/{number}").random()  # noqa: S311 - a coin, no secret
        near = excess <= self.reach * band
        return "explore" if near and drawn < self.exploration else "refuse"

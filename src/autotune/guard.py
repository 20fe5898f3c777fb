"""Knob values in, the memory they are expected to lack out; learns from every log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.domain.settings import EngineSettings, Value
from autotune.memory import (
    Abstain,
    Device,
    MemoryModel,
    calibrate,
    read_observation,
    read_shape,
)
from autotune.strategy.feasibility import Forecast


# The model's band is about two standard deviations wide on either side.
BANDS_PER_DEVIATION = 2.0


@dataclass
class MemoryGuard:
    """Forecasts proposals before they cost a launch.

    Abstains, and so lets everything pass, where the model's architecture is unknown.

    Attributes:
        model: The memory model as far as it has learnt; None abstains.
        settings: Turns knob values into complete settings.
        defaults: What the engine uses where the settings say nothing.
    """

    model: MemoryModel | None
    settings: Callable[[Mapping[str, Value]], EngineSettings]
    defaults: Mapping[str, Value]

    def __call__(self, values: Mapping[str, Value]) -> Forecast | None:
        """The missing share of memory, negative where there is room."""
        if self.model is None:
            return None
        found = self.model.predict(self._arguments(self.settings(values)))
        if isinstance(found, Abstain):
            return None
        check = found.decisive
        needed = max(check.needed_bytes, 1)
        return Forecast(
            shortfall=-check.margin_bytes / needed,
            error=check.band_bytes / needed / BANDS_PER_DEVIATION,
            reason=found.reason,
        )

    def missing_share(self, settings: EngineSettings) -> float:
        """The share of memory that ``settings`` are expected to lack; 0 for none."""
        if self.model is None:
            return 0.0
        found = self.model.predict(self._arguments(settings))
        return 0.0 if isinstance(found, Abstain) else found.violation

    def learn(
        self, settings: EngineSettings, log_text: str, used_bytes: int | None
    ) -> None:
        """Correct the model by what a start, failed or not, said in its log.

        ``used_bytes`` is what the device held while it served, if anybody read it.
        """
        if self.model is not None:
            self.model = calibrate(
                self.model,
                read_observation(log_text, used_bytes=used_bytes),
                arguments=self._arguments(settings),
            )

    def _arguments(self, settings: EngineSettings) -> dict[str, Value]:
        return {**self.defaults, **settings.arguments}


def memory_model(
    config: Mapping[str, object], *, kind: str, memory_bytes: int
) -> MemoryModel | None:
    """The uncalibrated model; None where the architecture is unknown."""
    shape = read_shape(config)
    if isinstance(shape, Abstain):
        return None
    device = Device(kind="cpu" if kind == "cpu" else "cuda", memory_bytes=memory_bytes)
    return MemoryModel(shape, device)

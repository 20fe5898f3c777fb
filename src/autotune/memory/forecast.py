"""A shape, engine arguments and a device in, what the launch will need out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from autotune.memory.cache import CacheLayout, read_layout
from autotune.memory.coefficients import Coefficients, Row, prior
from autotune.memory.features import read_features
from autotune.memory.launch import Arguments, Device, Launch, read_launch
from autotune.memory.precision import Abstain
from autotune.memory.prediction import Check, Phase, Prediction
from autotune.memory.shape import ModelShape


# About 95 % of a Gaussian.
BAND_DEVIATIONS = 2.0


@dataclass(frozen=True, slots=True)
class Needs:
    """The rows of a launch, ready for any belief about the coefficients.

    Attributes:
        features: Bytes by name of coefficient.
        peak: Which feature is the peak of the profiling run.
    """

    features: Mapping[str, int]
    peak: Literal["forward", "sampler"]

    def row(self, *names: str) -> dict[str, float]:
        """The features of ``names`` alone."""
        return {name: float(self.features[name]) for name in names}


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """What is known of one model on one kind of device."""

    shape: ModelShape
    device: Device
    coefficients: Coefficients = field(default_factory=prior)

    def predict(self, arguments: Arguments) -> Prediction | Abstain:
        """What a launch with ``arguments`` will need."""
        launch = read_launch(self.shape, arguments, self.device)
        if isinstance(launch, Abstain):
            return launch
        if self.device.kind == "cpu":
            return self._on_host(launch)
        return self._on_accelerator(launch)

    def needs(self, launch: Launch) -> Needs:
        """The rows of ``launch``, with the peak that this belief expects."""
        features = read_features(self.shape, launch, self.device)
        forward, sampler = (
            self.coefficients.expect({name: features[name]})
            for name in ("forward", "sampler")
        )
        return Needs(features, "forward" if forward > sampler else "sampler")

    def _on_accelerator(self, launch: Launch) -> Prediction:
        needs, layout = self.needs(launch), read_layout(self.shape, launch)
        budget = round(launch.utilization * self.device.memory_bytes)
        kv_row = needs.row("weights", "fixed", needs.peak, "estimate")
        kv_bytes = budget - self._expect(kv_row)
        if launch.kv_cache_bytes is not None:
            kv_row, kv_bytes = {}, launch.kv_cache_bytes
        checks = (
            *self._free_checks(launch, budget=budget),
            *self._load_checks(needs),
            self._cache_check(launch, layout, kv_row=kv_row, kv_bytes=kv_bytes),
            *self._serve_checks(needs, kv_row=kv_row, kv_bytes=kv_bytes),
        )
        return self._prediction(
            needs, launch, layout, kv_row=kv_row, kv_bytes=kv_bytes, checks=checks
        )

    def _on_host(self, launch: Launch) -> Prediction:
        needs, layout = self.needs(launch), read_layout(self.shape, launch)
        budget = round(launch.utilization * self.device.memory_bytes)
        row = needs.row("weights", "process")
        kv_row, kv_bytes = row, budget - self._expect(row)
        if launch.kv_cache_bytes is not None:
            kv_row, kv_bytes = {}, launch.kv_cache_bytes
        free = self.device.memory_bytes
        if self.device.free_bytes is not None:
            free = min(free, self.device.free_bytes)
        checks = (
            self._cache_check(launch, layout, kv_row=kv_row, kv_bytes=kv_bytes),
            self._check("oom_host", row, free, extra=max(0, kv_bytes)),
        )
        return self._prediction(
            needs, launch, layout, kv_row=kv_row, kv_bytes=kv_bytes, checks=checks
        )

    def _free_checks(self, launch: Launch, *, budget: int) -> tuple[Check, ...]:
        # With KV bytes fixed by hand the engine does not look at what is free.
        free = self.device.free_bytes
        if free is None or launch.kv_cache_bytes is not None:
            return ()
        return (Check("memory_not_free", free - budget, budget, 0),)

    def _load_checks(self, needs: Needs) -> tuple[Check, Check]:
        loaded = needs.row("weights", "process")
        profiled = needs.row("weights", "process", "fixed", needs.peak)
        memory = self.device.memory_bytes
        return (
            self._check("oom_weights", loaded, memory),
            self._check("oom_profile", profiled, memory),
        )

    def _cache_check(
        self, launch: Launch, layout: CacheLayout, *, kv_row: Row, kv_bytes: int
    ) -> Check:
        needed = layout.request_bytes(launch.max_length)
        margin = kv_bytes - needed
        return Check("oom_kv_cache", margin, needed, self._band(kv_row))

    def _serve_checks(
        self, needs: Needs, *, kv_row: Row, kv_bytes: int
    ) -> tuple[Check, Check]:
        """After KV memory is taken: graphs are captured, then the sampler warms up."""
        captured = needs.row("process", "graphs", "weights", "fixed")
        sampled = captured | needs.row(needs.peak)
        return (
            self._full_check("oom_graph_capture", captured, kv_row, kv_bytes=kv_bytes),
            self._full_check("oom_profile", sampled, kv_row, kv_bytes=kv_bytes),
        )

    def _full_check(
        self, phase: Phase, used: Row, kv_row: Row, *, kv_bytes: int
    ) -> Check:
        needed = self._expect(used) + kv_bytes
        # KV memory is what the budget leaves, so what it is reckoned from cancels.
        names = used.keys() | kv_row.keys()
        band_row = {name: used.get(name, 0.0) - kv_row.get(name, 0.0) for name in names}
        margin = self.device.memory_bytes - needed
        return Check(phase, margin, needed, self._band(band_row))

    def _check(self, phase: Phase, row: Row, memory: int, *, extra: int = 0) -> Check:
        needed = self._expect(row) + extra
        return Check(phase, memory - needed, needed, self._band(row))

    def _prediction(
        self,
        needs: Needs,
        launch: Launch,
        layout: CacheLayout,
        *,
        kv_row: Row,
        kv_bytes: int,
        checks: tuple[Check, ...],
    ) -> Prediction:
        blocks = layout.blocks(kv_bytes)
        return Prediction(
            weights_bytes=self._expect(needs.row("weights")),
            activations_bytes=self._expect(needs.row(needs.peak)),
            graphs_bytes=self._expect(needs.row("graphs")),
            overhead_bytes=self._expect(needs.row("fixed", "process")),
            kv_bytes=kv_bytes,
            kv_blocks=blocks,
            kv_tokens=layout.tokens(blocks, length=launch.max_length),
            kv_band_bytes=self._band(kv_row),
            decisive=_decisive(checks),
        )

    def _expect(self, row: Row) -> int:
        return round(self.coefficients.expect(row))

    def _band(self, row: Row) -> int:
        return round(BAND_DEVIATIONS * self.coefficients.deviation(row))


def predict(
    shape: ModelShape, arguments: Arguments, device: Device
) -> Prediction | Abstain:
    """What a launch will need, before any start was seen."""
    return MemoryModel(shape, device).predict(arguments)


def _decisive(checks: tuple[Check, ...]) -> Check:
    """The first that surely fails, else the first that may, else the narrowest."""
    failing = [check for check in checks if check.margin_bytes < 0]
    sure = [check for check in failing if -check.margin_bytes > check.band_bytes]
    if failing:
        return (sure or failing)[0]
    return min(checks, key=lambda check: check.margin_bytes)

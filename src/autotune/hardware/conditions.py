"""A device in, what could slow it down at this moment out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.hardware.nvml import At, Nvml, Refused, fields, number


_SM_CLOCK, _MEMORY_CLOCK, _CORE_SENSOR = 1, 2, 0
_THROTTLE = {
    0x001: "idle",
    0x002: "clocks_set",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal",
    0x040: "hardware_thermal",
    0x080: "power_brake",
    0x100: "display_clocks",
}
SLOWING = frozenset(
    {"power_cap", "hardware_slowdown", "thermal", "hardware_thermal", "power_brake"}
)
"""Reasons that make a measurement slower than the next one might be."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a device says of itself now; None where it does not say.

    Attributes:
        sm_clock_mhz: Clock of the multiprocessors.
        memory_clock_mhz: Clock of the memory.
        power_w: What it draws.
        power_limit_w: What it may draw.
        temperature_c: Of the core.
        busy_percent: Share of the last moments in which some kernel ran.
        throttle: Why clocks are not higher, by name; empty when nothing holds
            them back.
    """

    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    busy_percent: int | None
    throttle: tuple[str, ...] | None

    @property
    def slowed(self) -> bool | None:
        """Whether heat or power holds it back; None where it does not say."""
        return None if self.throttle is None else bool(SLOWING & set(self.throttle))


@contextmanager
def watching(nvml: Nvml) -> Iterator[bool]:
    """Keep the library open for many readings; whether it opened at all."""
    opened = not isinstance(nvml.ask("nvmlInit"), Refused)
    try:
        yield opened
    finally:
        if opened:
            nvml.ask("nvmlShutdown")


def read_conditions(nvml: Nvml, index: int) -> Conditions:
    """Conditions of device ``index`` (in the driver's order) inside ``watching``."""
    at = At(index)
    busy = fields(nvml.ask("nvmlDeviceGetUtilizationRates", at)).get("gpu")
    return Conditions(
        sm_clock_mhz=number(nvml.ask("nvmlDeviceGetClockInfo", at, _SM_CLOCK)),
        memory_clock_mhz=number(nvml.ask("nvmlDeviceGetClockInfo", at, _MEMORY_CLOCK)),
        power_w=_watts(number(nvml.ask("nvmlDeviceGetPowerUsage", at))),
        power_limit_w=_watts(number(nvml.ask("nvmlDeviceGetEnforcedPowerLimit", at))),
        temperature_c=number(nvml.ask("nvmlDeviceGetTemperature", at, _CORE_SENSOR)),
        busy_percent=busy if isinstance(busy, int) else None,
        throttle=_throttle(nvml, at),
    )


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _throttle(nvml: Nvml, at: At) -> tuple[str, ...] | None:
    """Reasons by name; older drivers know them under the older question."""
    bits = number(nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", at))
    if bits is None:
        bits = number(nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", at))
    if bits is None:
        return None
    return tuple(name for bit, name in _THROTTLE.items() if bits & bit)

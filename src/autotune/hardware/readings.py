"""Devices in, a function that reads their conditions as plain numbers out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from autotune.hardware.conditions import Conditions, read_conditions, watching
from autotune.hardware.devices import Device, Inventory, read_devices
from autotune.hardware.nvml import Nvml


Readings = Callable[[], Mapping[str, float | None]]
HOLDERS = "holders"
"""Processes that hold memory of a device; ends the name of that reading."""


def device_readings(nvml: Nvml, *, environment: Mapping[str, str]) -> Readings:
    """What the visible devices say of themselves whenever the function is called.

    Names are ``gpu0_temperature_c`` and so on, devices counted as CUDA does; what a
    device does not say is None. Without devices there is nothing to read.
    """

    def read() -> dict[str, float | None]:
        with watching(nvml) as opened:
            found = read_devices(nvml, environment=environment) if opened else None
            if not isinstance(found, Inventory):
                return {}
            readings: dict[str, float | None] = {}
            for number, device in enumerate(found.devices):
                conditions = read_conditions(nvml, device.index)
                plain = _plain(conditions) | _memory(device)
                readings |= {f"gpu{number}_{k}": v for k, v in plain.items()}
            return readings

    return read


def _plain(conditions: Conditions) -> dict[str, float | None]:
    numbers = {k: v for k, v in asdict(conditions).items() if k != "throttle"}
    numbers["slowed"] = conditions.slowed
    return {k: None if v is None else float(v) for k, v in numbers.items()}


def _memory(device: Device) -> dict[str, float | None]:
    return {
        "used_bytes": float(device.used_bytes),
        HOLDERS: float(len(device.holders)),
    }

"""What this host is: devices through NVML, or its processor; a Machine out."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping

from autotune.domain.machine import Machine
from autotune.hardware.devices import Inventory, NoDevices, read_devices
from autotune.hardware.driver import DriverNvml
from autotune.hardware.host import (
    cpu_count,
    memory_bytes,
    package_versions,
    processor,
)
from autotune.hardware.limits import read_limits
from autotune.hardware.nvml import Nvml


__all__ = ["Inventory", "NoDevices", "inventory", "machine_of", "read_machine"]


def inventory(nvml: Nvml | None = None) -> Inventory | NoDevices:
    """The devices this process may use, or one line that says why there are none."""
    return read_devices(nvml or DriverNvml(), environment=os.environ)


def read_machine(versions: Mapping[str, str]) -> Machine:
    """This host, with its NVIDIA devices if it has any that answer."""
    return machine_of(inventory(), versions=versions)


def machine_of(found: Inventory | NoDevices, *, versions: Mapping[str, str]) -> Machine:
    """This host with ``found`` as its devices; without any, its processor.

    Devices of different sizes count with the smallest memory among them, less what
    the driver keeps for itself.
    """
    limits = read_limits()
    memory = memory_bytes(limits)
    own = {"python": platform.python_version(), **package_versions(), **versions}
    devices = found.devices if isinstance(found, Inventory) else ()
    driver = {"driver": found.driver} if isinstance(found, Inventory) else {}
    return Machine(
        host=socket.gethostname(),
        device=devices[0].name if devices else processor(),
        device_count=len(devices),
        device_memory_bytes=min(
            (d.total_bytes - (d.reserved_bytes or 0) for d in devices), default=memory
        ),
        cpu_count=cpu_count(limits),
        memory_bytes=memory,
        versions=own | driver,
    )

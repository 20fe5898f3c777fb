"""What this host is: devices through NVML, or its processor; a Machine out."""

from __future__ import annotations

import platform
import socket
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psutil

from autotune.domain.machine import Machine


def read_machine(versions: Mapping[str, str]) -> Machine:
    """This host, with its NVIDIA devices if it has any that answer."""
    devices, driver = _nvidia_devices()
    name, memory = devices[0] if devices else (_processor(), _host_memory())
    own = {"python": platform.python_version(), **_packages(), **versions}
    return Machine(
        host=socket.gethostname(),
        device=name,
        device_count=len(devices),
        device_memory_bytes=memory,
        cpu_count=len(psutil.Process().cpu_affinity() or [0]),
        memory_bytes=_host_memory(),
        versions=own | ({"driver": driver} if driver else {}),
    )


def _nvidia_devices() -> tuple[list[tuple[str, int]], str | None]:
    """Name and total bytes of each device; none where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(i)
            for i in range(pynvml.nvmlDeviceGetCount())
        ]
        devices = [
            (
                str(pynvml.nvmlDeviceGetName(h)),
                int(pynvml.nvmlDeviceGetMemoryInfo(h).total),
            )
            for h in handles
        ]
        return devices, str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return [], None
    finally:
        pynvml.nvmlShutdown()


def _packages() -> dict[str, str]:
    found = {}
    for name in ("torch", "optuna", "vllm-autotune"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (n.partition(":")[2].strip() for n in lines if n.startswith("model name"))
    return next(names, platform.machine())


def _host_memory() -> int:
    return int(psutil.virtual_memory().total)

"""Driver and environment in, the devices this process may use out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import psutil

from autotune.hardware.nvml import (
    DEVICE_LOST,
    DRIVER_NOT_LOADED,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    VERSION_MISMATCH,
    At,
    Nvml,
    Refused,
    fields,
    items,
    number,
    text,
)
from autotune.hardware.topology import Link, read_links
from autotune.hardware.visible import VARIABLE, visible_positions


MEMORY_V2 = 0x02000028
"""Asks for the memory structure that counts the driver's own share apart."""

_WITHOUT_INSTANCE = (
    "MIG is switched on and no instance exists; create one with nvidia-smi mig -cgi, "
    "or switch MIG off"
)

ProcessName = Callable[[int], str | None]
Why = Literal["no_driver", "broken_driver", "no_permission", "no_device", "hidden"]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a device.

    Attributes:
        pid: Its number as the driver knows it; in a container it may be the host's.
        name: Its program; None where it cannot be seen from here.
        used_bytes: What it holds; None where the driver does not say.
    """

    pid: int
    name: str | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or one MIG instance, that this process may use.

    Attributes:
        index: Its number in the driver's order (by PCI address).
        part: Number of the MIG instance; None for a whole device.
        total_bytes: All memory, the driver's own share included.
        free_bytes: What a new process can have.
        used_bytes: What processes hold.
        reserved_bytes: What the driver keeps for itself; None where unknown.
        holders: Who holds it, as far as the driver says.
        capability: Compute capability, (major, minor); None where unknown.
        mig: Whether it is a MIG instance; then CUDA gives a process only this one.
    """

    index: int
    part: int | None
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    used_bytes: int
    reserved_bytes: int | None
    holders: tuple[Holder, ...]
    capability: tuple[int, int] | None
    mig: bool


@dataclass(frozen=True, slots=True)
class Inventory:
    """Devices that answer.

    Attributes:
        driver: Version of the driver.
        cuda: Newest CUDA the driver serves, as ``12.8``; None where unknown.
        devices: Those visible here, in CUDA's order; at least one.
        links: How each pair of whole devices is connected.
        note: A line on what could mislead, or empty.
    """

    driver: str
    cuda: str | None
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class NoDevices:
    """Why there is no device to use.

    Attributes:
        why: What kind of reason.
        line: One sentence: what is wrong and what to do.
    """

    why: Why
    line: str


_REASONS: dict[int, tuple[Why, str]] = {
    LIBRARY_NOT_FOUND: (
        "no_driver",
        (
            "no NVIDIA driver: libnvidia-ml.so.1 is not found; install the driver, "
            "or start the container with --gpus all"
        ),
    ),
    DRIVER_NOT_LOADED: (
        "no_driver",
        (
            "the NVIDIA driver is installed but not loaded; try nvidia-smi, "
            "or modprobe nvidia"
        ),
    ),
    NO_PERMISSION: (
        "no_permission",
        (
            "no permission to use the NVIDIA driver; give this user or container "
            "access to /dev/nvidia*"
        ),
    ),
    VERSION_MISMATCH: (
        "broken_driver",
        (
            "the NVIDIA driver's library and its kernel module are of different "
            "versions; restart the host, or load the module anew"
        ),
    ),
}


def read_devices(
    nvml: Nvml,
    *,
    environment: Mapping[str, str],
    process_name: ProcessName | None = None,
) -> Inventory | NoDevices:
    """Every device this process may use, or the one reason why there is none."""
    started = nvml.ask("nvmlInit")
    if isinstance(started, Refused):
        return _no_driver(started)
    try:
        return _read(nvml, environment, process_name or _process_name)
    finally:
        nvml.ask("nvmlShutdown")


def _read(
    nvml: Nvml, environment: Mapping[str, str], process_name: ProcessName
) -> Inventory | NoDevices:
    count = nvml.ask("nvmlDeviceGetCount")
    if isinstance(count, Refused):
        return _no_driver(count)
    wholes = [At(index) for index in range(number(count) or 0)]
    if not wholes:
        return NoDevices("no_device", "the driver answers but sees no NVIDIA device")
    parts = [part for at in wholes if _is_cut(nvml, at) for part in _parts(nvml, at)]
    setting = environment.get(VARIABLE)
    positions = visible_positions(
        setting, _uuids(nvml, wholes), parts=_uuids(nvml, parts)
    )
    if not positions:
        return NoDevices("hidden", _hidden(setting, len(wholes)))
    places = [*wholes, *parts]
    chosen = _usable(nvml, [places[i] for i in positions], parts)
    if not chosen:
        return NoDevices("no_device", _WITHOUT_INSTANCE)
    devices = []
    for at in chosen:
        device = _device(nvml, at, process_name)
        if isinstance(device, Refused):
            return _no_answer(at, device)
        devices.append(device)
    whole = tuple(at for at in chosen if at.part is None)
    return Inventory(
        driver=text(nvml.ask("nvmlSystemGetDriverVersion")) or "unknown",
        cuda=_cuda(number(nvml.ask("nvmlSystemGetCudaDriverVersion"))),
        devices=tuple(devices),
        links=read_links(nvml, whole),
        note=_note(devices, environment),
    )


def _is_cut(nvml: Nvml, at: At) -> bool:
    mode = items(nvml.ask("nvmlDeviceGetMigMode", At(at.index)))
    return bool(mode) and mode[0] == 1


def _parts(nvml: Nvml, at: At) -> list[At]:
    most = number(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", at)) or 0
    parts = [At(at.index, part) for part in range(most)]
    return [p for p in parts if text(nvml.ask("nvmlDeviceGetUUID", p))]


def _uuids(nvml: Nvml, places: list[At]) -> list[str]:
    return [text(nvml.ask("nvmlDeviceGetUUID", at)) or "" for at in places]


def _usable(nvml: Nvml, chosen: list[At], parts: list[At]) -> list[At]:
    """What CUDA makes of the choice.

    A device that is cut into MIG instances stands for its first one, and a process
    is given one instance and then nothing else.
    """
    found: list[At] = []
    for at in chosen:
        if at.part is None and _is_cut(nvml, at):
            found.extend([p for p in parts if p.index == at.index][:1])
        else:
            found.append(at)
    cut = next((at for at in found if at.part is not None), None)
    return found if cut is None else [cut]


def _device(nvml: Nvml, at: At, process_name: ProcessName) -> Device | Refused:
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", at, MEMORY_V2)
    if isinstance(memory, Refused):
        memory = nvml.ask("nvmlDeviceGetMemoryInfo", at)
    if isinstance(memory, Refused):
        return memory
    amounts = {k: v for k, v in fields(memory).items() if isinstance(v, int)}
    capability = items(nvml.ask("nvmlDeviceGetCudaComputeCapability", At(at.index)))
    return Device(
        index=at.index,
        part=at.part,
        uuid=text(nvml.ask("nvmlDeviceGetUUID", at)) or "",
        name=text(nvml.ask("nvmlDeviceGetName", at)) or "NVIDIA device",
        total_bytes=amounts["total"],
        free_bytes=amounts["free"],
        used_bytes=amounts["used"],
        reserved_bytes=amounts.get("reserved"),
        holders=_holders(nvml, at, process_name),
        capability=_pair(capability),
        mig=at.part is not None,
    )


def _holders(nvml: Nvml, at: At, process_name: ProcessName) -> tuple[Holder, ...]:
    """Processes on the device, each once, the largest first."""
    found: dict[int, Holder] = {}
    for kind in ("Compute", "Graphics"):
        for process in items(nvml.ask(f"nvmlDeviceGet{kind}RunningProcesses", at)):
            facts = fields(process)
            pid = facts.get("pid")
            if isinstance(pid, int):
                used = facts.get("usedGpuMemory")
                held = used if isinstance(used, int) else None
                found[pid] = Holder(pid, process_name(pid), held)
    return tuple(sorted(found.values(), key=lambda h: -(h.used_bytes or 0)))


def _process_name(pid: int) -> str | None:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return None


def _pair(values: list[object]) -> tuple[int, int] | None:
    match values:
        case [int(major), int(minor)]:
            return major, minor
        case _:
            return None


def _cuda(version: int | None) -> str | None:
    """12080 is 12.8."""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _note(devices: list[Device], environment: Mapping[str, str]) -> str:
    """Numbers in ``CUDA_VISIBLE_DEVICES`` mean something else to CUDA, sometimes."""
    mixed = len({device.name for device in devices}) > 1
    if mixed and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return (
            "devices of several kinds: CUDA numbers the fastest first, the driver by "
            "PCI address; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name devices by UUID"
        )
    return ""


def _hidden(setting: str | None, count: int) -> str:
    return (
        f"{VARIABLE}={setting!r} shows none of the {count} devices of this host; "
        "unset it, or give their numbers (0,1) or UUIDs"
    )


def _no_answer(at: At, refused: Refused) -> NoDevices:
    if refused.code == NO_PERMISSION:
        return _no_driver(refused)
    lost = (
        "has fallen off the bus" if refused.code == DEVICE_LOST else "does not answer"
    )
    return NoDevices(
        "broken_driver",
        f"device {at.index} {lost} ({refused.text}); hide it with {VARIABLE}, "
        "or restart the host",
    )


def _no_driver(refused: Refused) -> NoDevices:
    known = _REASONS.get(refused.code)
    if known is not None:
        return NoDevices(*known)
    return NoDevices(
        "broken_driver", f"the NVIDIA driver does not answer: {refused.text}"
    )

"""Where trials run: what has to be equal for two numbers to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Machine:
    """One host as the study saw it.

    Attributes:
        host: Its name.
        device: Kind of accelerator, or the processor's name on CPU.
        device_count: Devices the study may use; 0 on CPU.
        device_memory_bytes: Memory of one device, or of the host on CPU.
        cpu_count: Logical processors.
        memory_bytes: Host memory.
        versions: Of Python, vLLM, torch, the driver and this package, by name.
    """

    host: str
    device: str
    device_count: int
    device_memory_bytes: int
    cpu_count: int
    memory_bytes: int
    versions: Mapping[str, str] = field(default_factory=dict)

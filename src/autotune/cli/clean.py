"""``autotune clean``: what logs and caches take, and their removal once agreed."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.storage import STUDIES
from autotune.cli.studies import delete_folder, folder_bytes, listed, size_text
from autotune.models.fetch import default_cache


# Decisive lines of failures are in the database; a whole log is for a closer look.
KEPT_LOGS = 500


@dataclass(frozen=True, slots=True)
class Removable:
    """A folder that may go.

    Attributes:
        what: What it holds, in words.
        folder: Where it is.
        price: What removing it costs.
        in_use: Why it must stay for now; empty if it need not.
    """

    what: str
    folder: Path
    price: str
    in_use: str = ""


def clean(
    *,
    logs: Annotated[
        bool, typer.Option("--logs", help="Only engine logs of the studies here.")
    ] = False,
    caches: Annotated[
        bool, typer.Option("--caches", help="Only compile caches and partial models.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show what logs and compile caches take, and remove them once agreed.

    Studies, exported scripts and fetched models stay.
    """
    found = tuple(removables(logs=logs or not caches, caches=caches or not logs))
    sizes = {r.folder: folder_bytes(r.folder) for r in found}
    if not found:
        print("nothing to clean")
        return
    for item in found:
        note = f"stays: {item.in_use}" if item.in_use else item.price
        size = size_text(sizes[item.folder])
        print(f"{size:>9}  {item.what:22} {item.folder}  ({note})")
    going = [r for r in found if not r.in_use]
    total = sum(sizes[r.folder] for r in going)
    if not going:
        return
    if not yes:
        typer.confirm(f"Remove {size_text(total)}?", abort=True)
    for item in going:
        delete_folder(item.folder)
    print(f"removed {size_text(total)}")


def removables(*, logs: bool, caches: bool) -> Iterator[Removable]:
    """What there is to remove, logs first."""
    working = _studies_at_work()
    if logs:
        yield from _logs(working)
    if caches:
        reason = f"{', '.join(sorted(working))} runs" if working else ""
        for what, folder in _cache_folders(os.environ).items():
            if folder.is_dir() and not folder.is_symlink():
                yield Removable(what, folder, "compiled again when needed", reason)
        for folder in sorted(default_cache().glob(".*-*")):
            if folder.is_dir():
                price = "left by a fetch that was cut off"
                yield Removable("partial model", folder, price)


def retain_logs(folder: Path, *, kept: int = KEPT_LOGS) -> int:
    """Remove all but the newest ``kept`` launch logs in ``folder``; how many went."""
    # Launch numbers only grow, and are padded: names sort as they were written.
    numbered = sorted(folder.glob("launch-*.log"), key=lambda p: (len(p.name), p.name))
    old = numbered[: max(len(numbered) - kept, 0)]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def _logs(working: frozenset[str]) -> Iterator[Removable]:
    for folder in sorted((STUDIES / "logs").glob("*")):
        if folder.is_dir() and not folder.is_symlink():
            reason = "its study runs" if folder.name in working else ""
            price = "decisive lines stay in the study"
            yield Removable("engine logs", folder, price, reason)


def _studies_at_work() -> frozenset[str]:
    summaries = (line.summary for line in listed(None))
    return frozenset(s.name for s in summaries if s is not None and s.at_work)


def _cache_folders(environment: Mapping[str, str]) -> dict[str, Path]:
    """Where compilers under vLLM keep what they made, as their variables say."""
    home = Path.home()
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    vllm = Path(environment.get("VLLM_CACHE_ROOT") or cache / "vllm")
    inductor = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    triton = home / ".triton" / "cache"
    return {
        "vLLM compile cache": vllm / "torch_compile_cache",
        "torch compile cache": Path(
            environment.get("TORCHINDUCTOR_CACHE_DIR") or inductor
        ),
        "Triton cache": Path(environment.get("TRITON_CACHE_DIR") or triton),
    }

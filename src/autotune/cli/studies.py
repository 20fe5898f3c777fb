"""``autotune studies``: list, rename and delete what ``./studies`` keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from autotune.cli.storage import STUDIES, existing_trials, storage_url
from autotune.cli.terminal import WIDTH_WITHOUT_TERMINAL
from autotune.errors import InputError, StoreUnavailable
from autotune.store.facts import FactStore, database_file, holds_studies, opened, shown
from autotune.store.holding import held, lock_file
from autotune.store.upkeep import (
    StudySummary,
    delete_study,
    refuse_at_work,
    rename_study,
    summarize_studies,
)


studies = typer.Typer()
StorageOption = Annotated[
    str | None, typer.Option(help="SQLAlchemy URL; default studies/STUDY.db.")
]
SUFFIXES = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list; ``problem`` stands where a file could not be read."""

    url: str
    summary: StudySummary | None
    size_bytes: int
    problem: str = ""


@studies.callback(invoke_without_command=True)
def studies_root(
    context: typer.Context,
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL; default all of ./studies.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array instead of a table.")
    ] = False,
) -> None:
    """List studies with their model, trials, best score and size."""
    if context.invoked_subcommand is None:
        _show(tuple(listed(storage)), as_json=as_json)


@studies.command("rename")
def rename(
    study: Annotated[str, typer.Argument(help="The study's name.")],
    new: Annotated[str, typer.Argument(help="Its name from now on.")],
    storage: StorageOption = None,
) -> None:
    """Rename a study; its file and its logs follow."""
    existing_trials(storage, study)
    url, new_url = storage_url(storage, study), storage_url(storage, new)
    source, target = database_file(url), database_file(new_url)
    moves_file = url != new_url and target is not None
    if moves_file and target is not None and target.exists():
        raise InputError(f"{target} is there already; give another name")
    old_logs, new_logs = log_folder(study), log_folder(new)
    if new_logs.exists():
        raise InputError(f"{new_logs} is there already; give another name")
    with held(url, study), opened(url) as store:
        others = [name for name in store.studies() if name != study]
        if moves_file and others:
            raise InputError(
                f"{source} also holds {', '.join(others)} and stays where it is; "
                f"give --storage {url}"
            )
        rename_study(store, study, new, logs=(str(old_logs), str(new_logs)))
    # The last connection is closed, so SQLite's side files are merged and gone.
    if moves_file and source is not None and target is not None:
        source.rename(target)
    _let_go(url, study)
    if old_logs.is_dir():
        old_logs.rename(new_logs)
    print(f"{study} is now {new}")


@studies.command("delete")
def delete(
    study: Annotated[str, typer.Argument(help="The study's name.")],
    storage: StorageOption = None,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a study with its trials and logs; exported scripts stay."""
    count = len(existing_trials(storage, study))
    url = storage_url(storage, study)
    logs = log_folder(study)
    with held(url, study), opened(url) as store:
        refuse_at_work(store, study)
        whole_file = storage is None and store.studies() == (study,)
        what = f"{count} launches in {shown(url)} ({size_text(file_bytes(url))})"
        if logs.is_dir():
            what += f" and the logs in {logs} ({size_text(folder_bytes(logs))})"
        if not yes:
            typer.confirm(f"Delete study {study!r}: {what}?", abort=True)
        if not whole_file:
            _delete_rows(store, url, study)
    if whole_file:
        _delete_file(url)
    _let_go(url, study)
    delete_folder(logs)
    print(f"deleted: {study}")


def listed(storage: str | None) -> Iterator[Listed]:
    """Every study of the URL given, or of the files in ``./studies``."""
    if storage is not None:
        path = database_file(storage)
        if path is not None and not path.is_file():
            raise InputError(f"--storage {shown(storage)!r}: {path} does not exist")
        yield from _studies_of(storage)
        return
    for path in sorted(STUDIES.glob("*.db")):
        if holds_studies(path):
            try:
                yield from _studies_of(f"sqlite:///{path}")
            except StoreUnavailable as error:
                url = f"sqlite:///{path}"
                yield Listed(url, None, file_bytes(url), str(error))


def log_folder(study: str) -> Path:
    """Where the logs of a study's launches lie."""
    return STUDIES / "logs" / study


def file_bytes(url: str) -> int:
    """Size of a SQLite database with its side files; 0 for another database."""
    path = database_file(url)
    if path is None:
        return 0
    files = (path.with_name(path.name + suffix) for suffix in SUFFIXES)
    return sum(f.stat().st_size for f in files if f.is_file())


def folder_bytes(folder: Path) -> int:
    """Size of all files below a folder; symbolic links are not followed."""
    return sum(
        p.lstat().st_size for p in folder.rglob("*") if p.is_file() or p.is_symlink()
    )


def delete_folder(folder: Path) -> None:
    """Remove a folder of ours; nothing happens where there is none."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    folder.rmdir()


def size_text(size_bytes: int) -> str:
    """A size as people read it."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:  # noqa: PLR2004 - the step between units
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _studies_of(url: str) -> Iterator[Listed]:
    size = file_bytes(url)  # before our own connection adds its side files
    with opened(url) as store:
        for summary in summarize_studies(store):
            logs = folder_bytes(log_folder(summary.name))
            yield Listed(url, summary, size + logs)


def _delete_rows(store: FactStore, url: str, study: str) -> None:
    """Optuna's half first: what is cut off in between can be deleted again."""
    from autotune.strategy.deletion import delete_from_optuna

    delete_from_optuna(url, study)
    delete_study(store, study)


def _delete_file(url: str) -> None:
    path = database_file(url)
    if path is not None:
        for suffix in SUFFIXES:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _let_go(url: str, study: str) -> None:
    """Remove the lock of a name that is no more."""
    lock = lock_file(url, study)
    if lock is not None:
        lock.unlink(missing_ok=True)


def _show(found: tuple[Listed, ...], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_to_json(line) for line in found], indent=1))
        return
    if not found:
        print("no studies here; begin one: autotune --model MODEL")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("study", "model", "trials", "best", "size", "begun", ""):
        table.add_column(name, overflow="fold")
    for line in found:
        table.add_row(*_row(line))
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH_WITHOUT_TERMINAL)
    console.print(table, markup=False, highlight=False)


def _row(line: Listed) -> list[str]:
    study = line.summary
    if study is None:
        return [line.url, "-", "-", "-", size_text(line.size_bytes), "-", line.problem]
    best = "-" if study.best_score is None else f"{study.best_score:.3f}"
    return [
        study.name,
        study.model or "-",
        str(study.trial_count),
        best,
        size_text(line.size_bytes),
        f"{study.created_at:%Y-%m-%d %H:%M}",
        "at work" if study.at_work else "",
    ]


def _to_json(line: Listed) -> dict[str, object]:
    study = line.summary
    known = {} if study is None else asdict(study)
    if study is not None:
        known["created_at"] = study.created_at.isoformat()
    return {
        "storage": shown(line.url),
        **known,
        "size_bytes": line.size_bytes,
        "problem": line.problem or None,
    }

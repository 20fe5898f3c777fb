"""Where a study lives: its URL from what the user gave, and a look inside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autotune.domain.trial import Trial
from autotune.errors import InputError
from autotune.store.facts import (
    database_file,
    forgets,
    holds_studies,
    opened,
    shown,
)


STUDIES = Path("studies")


def storage_url(storage: str | None, study: str) -> str:
    """The URL given, or the study's own SQLite file under ``./studies``.

    Raises:
        InputError: The name is unfit for a file, or the URL keeps nothing.
    """
    # The name is also that of the log folder and of the script.
    if re.fullmatch(r"\w[\w.+-]{0,99}", study) is None:
        raise InputError(
            f"--study {study!r}: give a name of letters, digits and . _ + - "
            "(at most 100, the first a letter or digit)"
        )
    if storage is None:
        return f"sqlite:///{STUDIES / study}.db"
    if forgets(storage):
        raise InputError(
            f"--storage {storage!r} is a database in memory, which keeps nothing; "
            "give a file: sqlite:///studies/mine.db"
        )
    return storage


def existing_trials(storage: str | None, study: str) -> Sequence[Trial]:
    """Finished trials of a study that exists.

    Raises:
        InputError: There is no such database, or no such study in it.
    """
    url = storage_url(storage, study)
    path = database_file(url)
    if path is not None and not holds_studies(path):
        raise InputError(
            f"there is no study {study!r}: {path} "
            + ("holds none" if path.is_file() else "does not exist")
        )
    with opened(url) as store:
        if store.spec(study) is None:
            names = ", ".join(store.studies()) or "none"
            raise InputError(
                f"there is no study {study!r} in {shown(url)}; there are: {names}"
            )
        return store.trials(study)


def prepare_folder(url: str) -> None:
    """Make ``./studies`` if that is where the database goes; nothing else."""
    path = database_file(url)
    if path is not None and path.parent == STUDIES:
        STUDIES.mkdir(exist_ok=True)

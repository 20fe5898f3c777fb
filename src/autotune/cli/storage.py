"""Where a study lives: its URL from what the user gave, and a look inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.domain.trial import Trial
from autotune.errors import InputError
from autotune.store.facts import opened


STUDIES = Path("studies")


def storage_url(storage: str | None, study: str) -> str:
    """The URL given, or the study's own SQLite file under ``./studies``."""
    if storage is not None:
        return storage
    if not study or "/" in study or study.startswith("."):
        raise InputError(f"--study {study!r}: give a name without slashes")
    return f"sqlite:///{STUDIES / study}.db"


def existing_trials(storage: str | None, study: str) -> Sequence[Trial]:
    """Finished trials of a study that exists.

    Raises:
        InputError: There is no such database, or no such study in it.
    """
    url = storage_url(storage, study)
    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.is_file():
        raise InputError(f"there is no study {study!r}: {path} does not exist")
    with opened(url) as store:
        if store.spec(study) is None:
            names = ", ".join(store.studies()) or "none"
            raise InputError(
                f"there is no study {study!r} in {url}; there are: {names}"
            )
        return store.trials(study)

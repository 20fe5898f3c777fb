"""A study's name in, Optuna's half of it gone."""

from __future__ import annotations

import optuna
from optuna.storages import RDBStorage

from autotune.errors import StoreUnavailable


def delete_from_optuna(url: str, study: str) -> None:
    """Remove Optuna's trials of ``study``; nothing happens where there are none.

    Raises:
        StoreUnavailable: Another version of Optuna wrote the file.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = RDBStorage(url)
    except RuntimeError as error:
        raise StoreUnavailable(
            f"Optuna's part of this database does not fit the installed Optuna: {error}"
        ) from error
    try:
        optuna.delete_study(study_name=study, storage=storage)
    except KeyError:
        return
    finally:
        storage.remove_session()
        storage.engine.dispose()

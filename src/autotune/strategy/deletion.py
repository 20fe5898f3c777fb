"""A study's name in, Optuna's half of it gone."""

from __future__ import annotations

import optuna
from optuna.storages import RDBStorage


def delete_from_optuna(url: str, study: str) -> None:
    """Remove Optuna's trials of ``study``; nothing happens where there are none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = RDBStorage(url)
    try:
        optuna.delete_study(study_name=study, storage=storage)
    except KeyError:
        return
    finally:
        storage.remove_session()
        storage.engine.dispose()

"""What is known of models: an alias in, a directory or hub id out."""

from __future__ import annotations

import difflib
from pathlib import Path

from autotune.errors import InputError
from autotune.models.glm import GLM
from autotune.models.known import KnownModel, Shape
from autotune.models.llama import LLAMA
from autotune.models.mistral import MISTRAL
from autotune.models.qwen import QWEN
from autotune.models.recipes import RECIPES, FirstTrial, Recipe, first_trials
from autotune.models.small import SMALL


__all__ = [
    "KNOWN",
    "RECIPES",
    "FirstTrial",
    "KnownModel",
    "Recipe",
    "Shape",
    "first_trials",
    "known",
    "locate",
]


KNOWN = (*SMALL, *GLM, *QWEN, *LLAMA, *MISTRAL)


def known(alias: str) -> KnownModel | None:
    """The model called ``alias``, if it is known."""
    return next((m for m in KNOWN if m.alias == alias), None)


def locate(name: str, *, cache: Path) -> str:
    """What vLLM is given for ``name``: an existing directory, or a hub id.

    An alias of a model that comes from a package, or is made locally, must have
    been fetched into ``cache`` before.

    Raises:
        InputError: There is no such model, or it is not here yet.
    """
    if Path(name).is_dir():
        return _checked_directory(Path(name))
    model = known(name)
    if model is None:
        return _hub_id(name)
    if model.source == "hub":
        return model.model_id
    directory = cache / model.alias
    if not (directory / "config.json").is_file():
        raise InputError(
            f"model {name!r} is not here yet; run: autotune models fetch {name}"
        )
    return str(directory)


def _checked_directory(directory: Path) -> str:
    if not (directory / "config.json").is_file():
        raise InputError(
            f"--model {directory} is a directory without config.json; "
            "give a directory in Hugging Face format"
        )
    return str(directory.resolve())


def _hub_id(name: str) -> str:
    owner, slash, repository = name.partition("/")
    parts_fit = slash and owner and repository and "/" not in repository
    if parts_fit and " " not in name and not name.startswith((".", "~")):
        return name
    near = difflib.get_close_matches(name, [m.alias for m in KNOWN], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    aliases = ", ".join(m.alias for m in KNOWN)
    raise InputError(
        f"unknown model {name!r}{hint} Known aliases: {aliases}. "
        "Or give a Hugging Face id (owner/name) or an existing directory."
    )

"""What is known of models: an alias in, a directory or hub id out."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.errors import InputError


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be named by an alias.

    Attributes:
        alias: What people type.
        model_id: Hugging Face id.
        parameters: Size, for people.
        source: How it gets here: from the hub, from a package, or made locally.
        license: SPDX identifier, or a name.
        stop_token_ids: Beyond the tokenizer's own, as served models need them.
    """

    alias: str
    model_id: str
    parameters: str
    source: Literal["hub", "package", "made"]
    license: str
    stop_token_ids: tuple[int, ...] = ()


KNOWN = (
    KnownModel(
        "smollm2-135m",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "135 M",
        "package",
        "Apache-2.0",
    ),
    KnownModel("tiny-glm4", "tiny-glm4", "3 M, random weights", "made", "none: random"),
    KnownModel(
        "glm-4-9b-chat",
        "zai-org/glm-4-9b-chat-hf",
        "9.4 B",
        "hub",
        "glm-4",
        stop_token_ids=(151329, 151336, 151338),
    ),
)


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
    hint = f"; did you mean {near[0]!r}?" if near else ""
    aliases = ", ".join(m.alias for m in KNOWN)
    raise InputError(
        f"unknown model {name!r}{hint} Known aliases: {aliases}. "
        "Or give a Hugging Face id (owner/name) or an existing directory."
    )

"""``autotune schema``: what editors complete and check YAML files by."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from autotune.files import json_schema


class Document(StrEnum):
    """The files people write."""

    SPACE = "space"
    STUDY = "study"
    WORKLOAD = "workload"


def schema(
    document: Annotated[Document, typer.Argument(help="Which kind of file.")],
) -> None:
    """Print the JSON schema of a search space, study or workload file.

    An editor that speaks YAML completes a file whose first line is
    ``# yaml-language-server: $schema=FILE``, FILE being this output.
    """
    print(json.dumps(json_schema(document.value), indent=2))

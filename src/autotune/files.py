"""YAML files of a study or a workload in, plain values out; and their JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autotune.domain.settings import Value
from autotune.domain.workload import (
    ClosedLoop,
    Level,
    LoadShare,
    OpenLoop,
    Workload,
)
from autotune.errors import InputError
from autotune.spec import SpaceModel


Scalar = bool | int | float | str | None
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
# Twice the capacity saturates anything.
Share = Annotated[float, Field(gt=0, le=2)]
FileT = TypeVar("FileT", bound="_File")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StudyFile(_File):
    """What a study is to do; each key is the option of the same name."""

    model: str = Field(description="Alias, Hugging Face id, or directory.")
    trials: Count = Field(20, description="Finished trials in all.")
    study: str | None = Field(None, description="Name; default the file's.")
    storage: str | None = Field(None, description="SQLAlchemy URL.")
    space: str | None = Field(None, description="Name or file of a search space.")
    workload: tuple[str, ...] = Field(
        ("smoke",), min_length=1, description="Names or files of workloads."
    )
    rate: Rate | None = Field(None, description="Requests per second, Poisson.")
    load: tuple[Share, ...] | None = Field(
        None, description="Shares of the baseline's burst capacity."
    )
    fix: dict[str, Scalar] = Field(
        {}, description="Settings held in all trials and the baseline."
    )
    allow_lossy: bool = Field(
        default=False, description="Also turn knobs that can change outputs."
    )
    weights: Literal["auto", "dummy"] = Field("auto", description="Where from.")
    seed: int = Field(0, description="Decides prompts and proposals.")

    @model_validator(mode="after")
    def _check_load(self) -> Self:
        if self.rate is not None and self.load is not None:
            raise ValueError("rate and load both say how much is sent; give one")
        return self

    def options(self) -> dict[str, Value | tuple[Scalar, ...] | Mapping[str, Scalar]]:
        """What the file says, by option; what it leaves out is left out."""
        return self.model_dump(exclude_unset=True)


class WorkloadFile(_File):
    """Requests of one length, and how densely they are sent."""

    name: str = Field(description="For tables and the database.")
    prompt_tokens: Count = Field(description="Length of each prompt.")
    output_tokens: Count = Field(description="Tokens each request generates.")
    requests: Count = Field(description="Requests in a block and in the burst.")
    blocks: Count = Field(1, description="Blocks kept per level.")
    load: tuple[Share, ...] = Field((), description="Shares of burst capacity.")
    rate: tuple[Rate, ...] = Field((), description="Requests per second.")
    at_once: tuple[Count, ...] = Field((), description="Requests in flight.")
    shared_prefix_tokens: int = Field(0, ge=0, description="Shared by all prompts.")
    block_s: float = Field(0.0, ge=0, description="Seconds of an open loop's block.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(map(bool, (self.load, self.rate, self.at_once))) != 1:
            raise ValueError("give one of load, rate and at_once")
        if self.shared_prefix_tokens > self.prompt_tokens:
            raise ValueError("shared_prefix_tokens is more than prompt_tokens")
        return self

    def workload(self, *, seed: int) -> Workload:
        """The workload; prompts and arrivals follow from ``seed``."""
        return Workload(
            self.name,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            requests=self.requests,
            blocks=self.blocks,
            levels=self._levels(),
            seed=seed,
            shared_prefix_tokens=self.shared_prefix_tokens,
            block_s=self.block_s,
        )

    def _levels(self) -> tuple[Level, ...]:
        return (
            *map(LoadShare, self.load),
            *map(OpenLoop, self.rate),
            *map(ClosedLoop, self.at_once),
        )


MODELS: Mapping[str, type[BaseModel]] = {
    "space": SpaceModel,
    "study": StudyFile,
    "workload": WorkloadFile,
}


def json_schema(name: str) -> dict[str, Any]:
    """The JSON schema of a ``space``, ``study`` or ``workload`` file.

    Raises:
        InputError: There is no schema of that name.
    """
    if name not in MODELS:
        raise InputError(f"no schema {name!r}; there are: {', '.join(MODELS)}")
    schema = MODELS[name].model_json_schema()
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **schema, "title": f"autotune {name}"}


def load_study_file(path: Path) -> StudyFile:
    """The study that ``path`` describes.

    Raises:
        InputError: It is unreadable or malformed; names file, key and value.
    """
    return _load(StudyFile, path)


def load_workload_file(path: Path) -> WorkloadFile:
    """The workload that ``path`` describes.

    Raises:
        InputError: It is unreadable or malformed; names file, key and value.
    """
    return _load(WorkloadFile, path)


def _load(model: type[FileT], path: Path) -> FileT:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise InputError(f"{path} is not readable YAML: {error}") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {_first_of(error)}") from error


def _first_of(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    given = json.dumps(first.get("input"), default=str)[:80]
    more = error.error_count() - 1
    return f"{key}: {first['msg']}, got {given}" + (f" (and {more} more)" * bool(more))

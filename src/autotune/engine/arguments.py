"""The installed vLLM's engine arguments; settings in, an engine configuration out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.domain.settings import EngineSettings, Value
from autotune.engine.catalog.installed import import_vllm, installed_catalog
from autotune.errors import InputError


__all__ = [
    "check_names",
    "check_values",
    "engine_configuration",
    "import_vllm",
    "nest",
]


def check_names(names: Iterable[str], *, where: str) -> None:
    """Refuse names the installed vLLM does not know, before anything starts.

    Raises:
        InputError: A name is unknown; says where it stood and what is close.
        EngineMissing: There is no vLLM to ask.
    """
    catalog = installed_catalog()
    for name in names:
        if name not in catalog:
            raise InputError(f"{where}: {catalog.unknown(name)}")


def check_values(values: Mapping[str, Value], *, where: str) -> None:
    """Refuse settings whose name or value the installed vLLM does not take.

    Raises:
        InputError: One is refused; says where it stood, why, and what is close.
        EngineMissing: There is no vLLM to ask.
    """
    catalog = installed_catalog()
    for name, value in values.items():
        if name not in catalog:
            raise InputError(f"{where}: {catalog.unknown(name)}")
        reason = catalog.refusal(name, value)
        if reason is not None:
            raise InputError(
                f"{where}: vLLM {catalog.version} refuses {name}={value!r}: {reason}"
            )


def nest(arguments: Mapping[str, Value]) -> dict[str, Any]:
    """Dotted names become nested dictionaries, as ``EngineArgs`` takes them."""
    nested: dict[str, Any] = {}
    for name, value in arguments.items():
        top, dot, field = name.partition(".")
        if dot:
            nested.setdefault(top, {})[field] = value
        else:
            nested[top] = value
    return nested


def engine_configuration(settings: EngineSettings) -> Any:
    """The configuration that ``vllm serve`` would make of ``settings``.

    The usage context is the API server's: without it vLLM falls back to smaller
    batch defaults than a server has, and the baseline would be a straw man.
    """
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    arguments = AsyncEngineArgs(model=settings.model, **nest(settings.arguments))
    return arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)

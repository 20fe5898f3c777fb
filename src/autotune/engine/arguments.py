"""The installed vLLM's engine arguments; settings in, an engine configuration out."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from autotune.domain.settings import EngineSettings, Value
from autotune.errors import EngineMissing, InputError


def import_vllm() -> str:
    """Import vLLM once, quietly enough for a terminal; its version.

    Raises:
        EngineMissing: It is not installed, or does not import.
    """
    try:
        import vllm
    except Exception as error:
        raise EngineMissing(
            f"vLLM does not import: {error}. Install it: "
            "pip install 'vllm-autotune[gpu]' with an NVIDIA driver, "
            "or 'make install' in a checkout for the CPU build"
        ) from error
    return str(vllm.__version__)


@cache
def argument_names() -> frozenset[str]:
    """Every engine argument the installed vLLM takes, by field name."""
    import_vllm()
    from vllm.engine.arg_utils import AsyncEngineArgs

    return frozenset(f.name for f in dataclasses.fields(AsyncEngineArgs))


@cache
def nested_names(argument: str) -> frozenset[str]:
    """Fields of a nested configuration; empty where ``argument`` has none."""
    import_vllm()
    from vllm.engine.arg_utils import AsyncEngineArgs

    hints = typing.get_type_hints(AsyncEngineArgs)
    for candidate in (hints.get(argument), *typing.get_args(hints.get(argument))):
        if dataclasses.is_dataclass(candidate):
            return frozenset(f.name for f in dataclasses.fields(candidate))
    return frozenset()


def check_names(names: Iterable[str], *, where: str) -> None:
    """Refuse names the installed vLLM does not know, before anything starts.

    Raises:
        InputError: A name is unknown; says where it stood and what is close.
    """
    for name in names:
        top, dot, nested = name.partition(".")
        pool = argument_names() if not dot else nested_names(top)
        wanted = nested if dot else top
        if wanted in pool and (not dot or top in argument_names()):
            continue
        near = difflib.get_close_matches(wanted, pool, n=1)
        prefix = f"{top}." if dot else ""
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        version = import_vllm()
        raise InputError(
            f"{where}: vLLM {version} has no engine argument {name!r}{hint}"
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

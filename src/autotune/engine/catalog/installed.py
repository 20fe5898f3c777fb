"""The installed vLLM in, its catalog for this device and its server out."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from autotune.domain.settings import Value
from autotune.engine.catalog import Argument, Catalog
from autotune.engine.catalog.hints import accepted, hints_of
from autotune.errors import EngineMissing


DEPTH = 2
"""Dots in a name at most: ``compilation_config.pass_config.fuse_norm_quant``."""

_BOUNDS = {
    "ge": ("low", "low_excluded", False),
    "gt": ("low", "low_excluded", True),
    "le": ("high", "high_excluded", False),
    "lt": ("high", "high_excluded", True),
}


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
def installed_catalog() -> Catalog:
    """What the installed vLLM accepts here, read once per process.

    Raises:
        EngineMissing: There is no vLLM, or it does not import.
    """
    return read_catalog()


def read_catalog() -> Catalog:
    """Names, types, literals, bounds and the server's defaults.

    Nothing is started and no device is initialised. Defaults that depend on the
    model stay None; ``Catalog.with_defaults`` takes them from a resolved launch.

    Raises:
        EngineMissing: There is no vLLM, or it does not import.
    """
    version = import_vllm()
    from vllm.engine.arg_utils import AsyncEngineArgs

    bounds = _configuration_bounds()
    found: dict[str, Argument] = {}
    for argument in _fields(AsyncEngineArgs, prefix="", depth=DEPTH):
        limits = bounds.get(argument.name, {})
        found[argument.name] = dataclasses.replace(argument, **limits)
    catalog = Catalog(version, _device(), found)
    return catalog.with_defaults(_batch_defaults(AsyncEngineArgs))


def _fields(owner: type, *, prefix: str, depth: int) -> Iterator[Argument]:
    """Arguments of a configuration class, its nested configurations included."""
    hints = hints_of(owner)
    limits = _bounds_of(owner)
    for spec in dataclasses.fields(owner):
        if not spec.init or spec.name.startswith("_"):
            continue
        name = prefix + spec.name
        takes = accepted(hints.get(spec.name, Any))
        yield Argument(
            name,
            takes.kinds,
            takes.literals,
            _plain(_default(spec)),
            **limits.get(spec.name, {}),
        )
        if takes.nested is not None and depth > 0:
            yield from _fields(takes.nested, prefix=f"{name}.", depth=depth - 1)


def _default(spec: Any) -> Any:
    """A field's default; pydantic keeps some of them one level down."""
    default = spec.default
    if hasattr(default, "default") and hasattr(default, "metadata"):
        default = default.default
    return None if default is dataclasses.MISSING else default


def _plain(value: Any) -> Value:
    if isinstance(value, enum.Enum):
        return str(value.name)
    return value if isinstance(value, bool | int | float | str) else None


def _bounds_of(owner: type) -> dict[str, dict[str, Any]]:
    """Declared limits of a configuration's fields, by field name."""
    fields = getattr(owner, "__pydantic_fields__", {})
    found = {name: _limits(info.metadata) for name, info in fields.items()}
    return {name: limits for name, limits in found.items() if limits}


def _limits(metadata: list[Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for constraint in metadata:
        for word, (side, excluded, is_excluded) in _BOUNDS.items():
            if hasattr(constraint, word):
                limits |= {side: getattr(constraint, word), excluded: is_excluded}
    return limits


def _configuration_bounds() -> dict[str, dict[str, Any]]:
    """Limits of the configurations behind the flat arguments, by field name.

    ``EngineArgs`` itself declares none: they stand on the class that a field ends
    up in, under the same name.
    """
    from vllm.config import VllmConfig

    found: dict[str, dict[str, Any]] = {}
    for hint in hints_of(VllmConfig).values():
        nested = accepted(hint).nested
        if nested is not None:
            found |= _bounds_of(nested)
    return found


def _device() -> str:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return "cpu"
    try:
        return str(current_platform.get_device_name())
    except Exception:  # noqa: BLE001 - a platform without its device still has arguments
        return str(current_platform.device_name or "unspecified")


def _batch_defaults(owner: Any) -> Mapping[str, Value]:
    """Batch sizes that vLLM chooses by device memory, for its server.

    Empty where this vLLM keeps them elsewhere: then they are not known here.
    """
    from vllm.usage.usage_lib import UsageContext

    choose = getattr(owner, "get_batch_defaults", None)
    if choose is None:
        return {}
    tokens, sequences = choose(1)
    usage = UsageContext.OPENAI_API_SERVER
    return {
        "max_num_batched_tokens": tokens.get(usage),
        "max_num_seqs": sequences.get(usage),
    }

"""One complete choice of how to start the engine, in and out as plain JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


Value = str | int | float | bool | None


@dataclass(frozen=True, eq=False)
class EngineSettings:
    """A model with the engine arguments and environment it is started under.

    Settings are equal when their JSON is: 1, 1.0 and true are three values.

    Attributes:
        model: What vLLM is given as ``model``: a directory or a hub id.
        arguments: Engine arguments by ``EngineArgs`` field name; a dotted name
            (``compilation_config.cudagraph_mode``) reaches into a nested
            configuration. What is absent keeps vLLM's default.
        environment: Variables that shape the engine.
    """

    model: str
    arguments: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Freeze the mappings, so that equal settings hash alike for ever."""
        for name in ("arguments", "environment"):
            frozen = MappingProxyType(dict(sorted(getattr(self, name).items())))
            object.__setattr__(self, name, frozen)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EngineSettings):
            return NotImplemented
        return self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[object, ...]:
        # A frozen mapping cannot be pickled, nor copied deeply.
        parts = (self.model, dict(self.arguments), dict(self.environment))
        return (EngineSettings, parts)

    @property
    def key(self) -> str:
        """Sixteen hexadecimal digits that name these settings across runs."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_arguments(self, changes: Mapping[str, Value]) -> EngineSettings:
        """The same settings with ``changes`` laid over the arguments."""
        arguments = {**self.arguments, **changes}
        return EngineSettings(self.model, arguments, self.environment)

    def to_json(self) -> dict[str, object]:
        """Plain JSON that ``from_json`` reads back to an equal value."""
        return {
            "model": self.model,
            "arguments": dict(self.arguments),
            "environment": dict(self.environment),
        }

    @staticmethod
    def from_json(data: Mapping[str, object]) -> EngineSettings:
        """Settings from what ``to_json`` wrote."""
        arguments, environment = data["arguments"], data["environment"]
        if not isinstance(arguments, Mapping) or not isinstance(environment, Mapping):
            raise TypeError("settings need arguments and environment as mappings")
        return EngineSettings(str(data["model"]), arguments, environment)

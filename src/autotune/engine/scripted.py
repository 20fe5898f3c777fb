"""A script of behaviours in, an engine that acts it out; for unit tests of the loop.

It is handed to the launcher as an argument and cannot be chosen on the command line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.domain.request import Chunk, PlannedRequest
from autotune.domain.settings import EngineSettings, Value
from autotune.engine import RunningEngine
from autotune.errors import EngineDied, RequestRefused, StartFailed


@dataclass(frozen=True, slots=True)
class Answers:
    """The engine starts and answers, one token per chunk.

    Attributes:
        ttft_s: Seconds from a request to its first token.
        itl_s: Seconds between its tokens.
        refuses: What every request is refused with, if it is.
    """

    ttft_s: float = 0.008
    itl_s: float = 0.001
    refuses: str | None = None


@dataclass(frozen=True, slots=True)
class FailsAtStart:
    """The engine does not come up.

    Attributes:
        text: What it says, as vLLM would.
        when_resolved: Already the configuration is refused.
    """

    text: str
    when_resolved: bool = False


@dataclass(frozen=True, slots=True)
class DiesUnderLoad:
    """The engine starts, answers as ``until_then`` does, and dies.

    Attributes:
        after_tokens: Tokens it yields in all before that.
        text: What it says, as vLLM would.
    """

    after_tokens: int
    text: str
    until_then: Answers = field(default_factory=Answers)


Behaviour = Answers | FailsAtStart | DiesUnderLoad


@dataclass(frozen=True, slots=True)
class Scene:
    """What the engine does under some settings.

    Attributes:
        behaviour: How it acts.
        when: Effective values under which it does; empty is always.
        starts: How many starts it holds for; None is all of them.
    """

    behaviour: Behaviour
    when: Mapping[str, Value] = field(default_factory=dict)
    starts: int | None = None


class ScriptedEngine:
    """Plays the first scene that fits its settings; notes every start in ``started``.

    Args:
        scenes: Tried in order; where none fits, the engine answers soon.
        defaults: Effective values of arguments that are not given.
    """

    def __init__(
        self,
        scenes: Sequence[Scene] = (),
        *,
        defaults: Mapping[str, Value] | None = None,
    ) -> None:
        self._scenes = tuple(scenes)
        self._defaults = dict(defaults or {})
        self._played = [0] * len(self._scenes)
        self.started: list[EngineSettings] = []

    def resolve(self, settings: EngineSettings) -> Mapping[str, Value]:
        """The defaults under the arguments given.

        Raises:
            StartFailed: The scene refuses the configuration.
        """
        effective = {**self._defaults, **settings.arguments}
        behaviour = self._behaviour(self._fitting(effective))
        if isinstance(behaviour, FailsAtStart) and behaviour.when_resolved:
            raise StartFailed(behaviour.text)
        return effective

    @contextmanager
    def start(self, settings: EngineSettings) -> Iterator[RunningEngine]:
        """Act out the next start under ``settings``.

        Raises:
            StartFailed: The scene says so.
        """
        effective = self.resolve(settings)
        index = self._fitting(effective)
        behaviour = self._behaviour(index)
        self.started.append(settings)
        if index is not None:
            self._played[index] += 1
        if isinstance(behaviour, FailsAtStart):
            raise StartFailed(behaviour.text)
        running = RunningScript(behaviour, effective)
        try:
            yield running
        finally:
            running.phases_s["stop"] = 0.0

    def _fitting(self, effective: Mapping[str, Value]) -> int | None:
        """The first scene for these values that has starts left."""
        for index, scene in enumerate(self._scenes):
            spent = scene.starts is not None and self._played[index] >= scene.starts
            if not spent and all(effective.get(k) == v for k, v in scene.when.items()):
                return index
        return None

    def _behaviour(self, index: int | None) -> Behaviour:
        return Answers() if index is None else self._scenes[index].behaviour


class RunningScript:
    """A started script; see ``engine.RunningEngine``."""

    def __init__(
        self, behaviour: Answers | DiesUnderLoad, effective: Mapping[str, Value]
    ) -> None:
        self._end: DiesUnderLoad | None = None
        if isinstance(behaviour, DiesUnderLoad):
            self._end, behaviour = behaviour, behaviour.until_then
        self._answers: Answers = behaviour
        self._yielded_count = 0
        self._answered_count = 0
        self.effective: Mapping[str, Value] = dict(effective)
        self.phases_s: dict[str, float] = {"start": 0.0}

    async def stream(self, request: PlannedRequest) -> AsyncIterator[Chunk]:
        """One chunk per token, paced by the script.

        Raises:
            RequestRefused: The script refuses requests.
            EngineDied: The script's engine has yielded its last token.
        """
        if self._answers.refuses is not None:
            raise RequestRefused(self._answers.refuses)
        for index in range(request.output_tokens):
            await asyncio.sleep(self._answers.itl_s if index else self._answers.ttft_s)
            self._die_in_time()
            self._yielded_count += 1
            last = index == request.output_tokens - 1
            yield Chunk(
                received_s=time.perf_counter(),
                token_count=1,
                prompt_tokens=len(request.prompt_token_ids),
                cached_tokens=0,
                finish_reason="length" if last else None,
            )
        self._answered_count += 1

    async def reset_caches(self) -> bool:
        """There is nothing to forget."""
        return True

    def counters(self) -> Mapping[str, float | None]:
        """Tokens yielded and requests answered since the start."""
        return {
            "generation_tokens": float(self._yielded_count),
            "finished": float(self._answered_count),
        }

    def _die_in_time(self) -> None:
        end = self._end
        if end is not None and self._yielded_count >= end.after_tokens:
            raise EngineDied(end.text)

"""Settings in, vLLM running under this process out; stopped on leaving the block."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

from autotune.domain.request import Chunk, PlannedRequest
from autotune.domain.settings import EngineSettings, Value
from autotune.engine.arguments import engine_configuration, import_vllm
from autotune.engine.counters import EngineCounters, stat_logger
from autotune.engine.deadline import deadline
from autotune.engine.effective import effective_values
from autotune.engine.forking import arm_children, engine_core_forked, warm_up
from autotune.engine.processes import descendants, end, wait_until_gone
from autotune.errors import (
    DeadlineExceeded,
    EngineDied,
    RequestRefused,
    StartFailed,
)


StartMethod = Literal["fork", "spawn"]
# Set once for the tuner: they shape reporting, not the engine.
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CONFIGURE_LOGGING": "1"}
# How long, and how often, caches are asked to empty before that counts as refused.
RESET_PATIENCE_S, RESET_PAUSE_S = 2.0, 0.05


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a start, one request and a stop may take, in seconds."""

    start_s: float = 900.0
    fork_s: float = 60.0
    request_s: float = 300.0
    stop_s: float = 30.0


class VllmEngine:
    """Starts vLLM with its engine core in a child of this process.

    Must be used from the main thread: the parent-death signal of the children
    follows the thread that made them, and the deadlines use SIGALRM.
    """

    def __init__(
        self,
        *,
        start_method: StartMethod | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        import_vllm()
        self._deadlines = deadlines or Deadlines()
        self._start_method = start_method or ("fork" if on_cpu() else "spawn")
        os.environ.update({k: v for k, v in QUIET.items() if k not in os.environ})
        if self._start_method == "fork":
            warm_up()
        arm_children()

    def resolve(self, settings: EngineSettings) -> Mapping[str, Value]:
        """What ``vllm serve`` would make of ``settings``; nothing is started.

        Raises:
            StartFailed: vLLM refuses them.
        """
        with _environment(settings.environment):
            return effective_values(_configure(settings))

    @contextmanager
    def start(self, settings: EngineSettings) -> Iterator[RunningVllm]:
        """Start vLLM and yield it ready; stop it and wait for its processes.

        Raises:
            StartFailed: It did not come up; the cause is in its log.
            DeadlineExceeded: It was not ready in time.
        """
        with _environment(settings.environment):
            before = descendants()
            phases: dict[str, float] = {}
            started = time.perf_counter()
            config = _configure(settings)
            phases["resolve"] = time.perf_counter() - started
            try:
                engine, counters = self._launch(config, before)
            except BaseException:
                end(descendants() - before)
                raise
            phases["start"] = time.perf_counter() - started - phases["resolve"]
            running = RunningVllm(
                engine, counters, phases, request_s=self._deadlines.request_s
            )
            try:
                yield running
            finally:
                self._stop(running, before)

    def _launch(
        self,
        config: Any,
        before: frozenset[int],
    ) -> tuple[Any, EngineCounters]:
        if self._start_method == "fork":
            try:
                with engine_core_forked():
                    return _build(config, seconds=self._deadlines.fork_s)
            except DeadlineExceeded:
                end(descendants() - before)  # a fork that hangs: spawn instead
        return _build(config, seconds=self._deadlines.start_s)

    def _stop(self, running: RunningVllm, before: frozenset[int]) -> None:
        """Close the engine; whatever of it outlives the deadline is killed."""
        started = time.perf_counter()
        pids = descendants() - before
        with suppress(DeadlineExceeded), deadline(self._deadlines.stop_s, what="stop"):
            running.close()
        left = wait_until_gone(pids, deadline_s=self._deadlines.stop_s)
        end(left)
        gc.collect()  # vLLM's closed sockets sit in reference cycles
        running.note_phase("stop", time.perf_counter() - started)


class RunningVllm:
    """A ready ``AsyncLLM``; see ``engine.RunningEngine``."""

    def __init__(
        self,
        engine: Any,
        counters: EngineCounters,
        phases: dict[str, float],
        *,
        request_s: float,
    ) -> None:
        self._engine = engine
        self._counters = counters
        self._phases = phases
        self._request_s = request_s
        self._effective = effective_values(engine.vllm_config)

    @property
    def effective(self) -> Mapping[str, Value]:
        """What the engine really uses."""
        return self._effective

    @property
    def phases_s(self) -> Mapping[str, float]:
        """Seconds by phase: resolve, start and, once stopped, stop."""
        return self._phases

    def note_phase(self, name: str, seconds: float) -> None:
        """Add a phase's time."""
        self._phases[name] = self._phases.get(name, 0.0) + seconds

    async def stream(self, request: PlannedRequest) -> AsyncIterator[Chunk]:
        """Generate exactly ``output_tokens``, greedily, and yield new tokens.

        Raises:
            RequestRefused: vLLM answered this request with an error.
            EngineDied: The engine core is gone.
            DeadlineExceeded: The request took too long.
        """
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        seen = 0
        outputs = self._engine.generate(
            {"prompt_token_ids": list(request.prompt_token_ids)},
            _sampling(request.output_tokens),
            request.request_id,
        )
        try:
            async with asyncio.timeout(self._request_s):
                async for output in outputs:
                    chunk = _chunk(output)
                    seen += chunk.token_count
                    yield chunk
        except EngineDeadError as error:
            raise EngineDied(f"the engine died under load: {error}") from error
        except TimeoutError as error:
            text = f"request {request.request_id} took over {self._request_s:g} s"
            raise DeadlineExceeded(f"{text}, {seen} tokens had come") from error
        except (ValueError, TypeError, EngineGenerateError) as error:
            raise RequestRefused(str(error.__cause__ or error)) from error

    async def reset_caches(self) -> bool:
        """Forget cached prefixes; False when requests still hold blocks.

        A step that is in flight when the last answer arrives may hold blocks a
        moment longer (asynchronous scheduling), so it is asked again for a while.

        Raises:
            EngineDied: The engine core is gone.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        until = time.perf_counter() + RESET_PATIENCE_S
        try:
            while not await self._engine.reset_prefix_cache():
                if time.perf_counter() > until:
                    return False
                await asyncio.sleep(RESET_PAUSE_S)
        except EngineDeadError as error:
            raise EngineDied(f"the engine died between blocks: {error}") from error
        return True

    def counters(self) -> Mapping[str, float | None]:
        """Counters since the start, peaks since the last call."""
        values = self._counters.read()
        self._counters.forget_peaks()
        return values

    def close(self) -> None:
        """Shut the engine down."""
        self._engine.shutdown()


def on_cpu() -> bool:
    """Whether the installed vLLM drives the CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def _configure(settings: EngineSettings) -> Any:
    try:
        return engine_configuration(settings)
    except Exception as error:  # pydantic, ValueError, OSError, AssertionError …
        raise StartFailed(f"{type(error).__name__}: {error}") from error


def _build(config: Any, *, seconds: float) -> tuple[Any, EngineCounters]:
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    counters = EngineCounters()
    with deadline(seconds, what="engine start"):
        try:
            engine = AsyncLLM.from_vllm_config(
                config,
                usage_context=UsageContext.OPENAI_API_SERVER,
                stat_loggers=[stat_logger(counters)],
                disable_log_stats=True,
            )
        except DeadlineExceeded:
            raise
        except Exception as error:
            raise StartFailed(f"{type(error).__name__}: {error}") from error
    return engine, counters


def _sampling(output_tokens: int) -> Any:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    return SamplingParams(
        temperature=0.0,
        max_tokens=output_tokens,
        min_tokens=output_tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _chunk(output: Any) -> Chunk:
    completion = output.outputs[0]
    return Chunk(
        received_s=time.perf_counter(),
        token_count=len(completion.token_ids),
        prompt_tokens=len(output.prompt_token_ids or ()),
        cached_tokens=output.num_cached_tokens,
        finish_reason=completion.finish_reason,
    )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, dict(variables)))
        yield

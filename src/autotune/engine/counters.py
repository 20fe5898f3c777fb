"""vLLM's per-step statistics in, counters since the start out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


SUMS = (
    "prefix_cache_queries",
    "prefix_cache_hits",
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "queued_s",
    "finished",
)
GAUGES = ("kv_cache_usage", "running", "waiting")


class EngineCounters:
    """Sums and latest values of one engine's scheduler and iteration statistics."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._latest: dict[str, float] = {}
        self._peaks: dict[str, float] = {}

    def read(self) -> dict[str, float | None]:
        """Totals since the start, latest gauges, and peaks since ``forget_peaks``.

        What the engine has not reported is None.
        """
        names = (*SUMS, *GAUGES, *(f"{name}_peak" for name in GAUGES))
        unread = dict.fromkeys(names)
        return {**unread, **self._sums, **self._latest, **self._peaks}

    def forget_peaks(self) -> None:
        """Start looking for peaks anew, at the start of a block."""
        self._peaks.clear()

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take one step's statistics; either may be None."""
        if scheduler is not None:
            self._gauge("kv_cache_usage", scheduler.kv_cache_usage)
            self._gauge("running", scheduler.num_running_reqs)
            self._gauge("waiting", scheduler.num_waiting_reqs)
            prefix = scheduler.prefix_cache_stats
            if prefix is not None:
                self._add("prefix_cache_queries", prefix.queries)
                self._add("prefix_cache_hits", prefix.hits)
        if iteration is not None:
            self._add("preemptions", iteration.num_preempted_reqs)
            self._add("prompt_tokens", iteration.num_prompt_tokens)
            self._add("generation_tokens", iteration.num_generation_tokens)
            for finished in iteration.finished_requests:
                self._add("queued_s", finished.queued_time)
                self._add("finished", 1)

    def _add(self, name: str, amount: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + float(amount)

    def _gauge(self, name: str, value: float) -> None:
        self._latest[name] = float(value)
        peak = f"{name}_peak"
        self._peaks[peak] = max(self._peaks.get(peak, 0.0), float(value))


def stat_logger(counters: EngineCounters) -> Callable[[Any, int], Any]:
    """A factory vLLM accepts in ``stat_loggers``, writing into ``counters``."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class CountingLogger(StatLoggerBase):  # type: ignore[misc]
        """Forwards each step's statistics."""

        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            """Nothing to set up: the counters live outside."""

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any
        ) -> None:
            """Called by vLLM after every step."""
            counters.record(scheduler_stats, iteration_stats)

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return CountingLogger


def difference(
    before: Mapping[str, float | None], after: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Counters over a block: totals subtracted, gauges and peaks as they stand.

    Two shares follow from them: ``prefix_hit_share``, of prompt tokens asked of the
    prefix cache (preempted requests ask again and hit their own tokens, so it is
    read beside ``preemptions``), and ``queue_mean_s``, per finished request.
    """
    result: dict[str, float | None] = {}
    for name, value in after.items():
        earlier = before.get(name)
        total = name not in GAUGES and not name.endswith("_peak")
        result[name] = (
            value - (earlier or 0.0) if total and value is not None else value
        )
    result["prefix_hit_share"] = _share(
        result.get("prefix_cache_hits"), result.get("prefix_cache_queries")
    )
    result["queue_mean_s"] = _share(result.get("queued_s"), result.get("finished"))
    return result


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole

"""What binds engine arguments to each other and to a device: data, and its reasons.

A row speaks only where its names exist in a catalog. Sources are vLLM's own checks
(its scheduler and cache configuration) and starts that were refused or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.domain.settings import Value
from autotune.domain.space import Rule


@dataclass(frozen=True, slots=True)
class Override:
    """``name`` has no effect while another setting is given, or has a value.

    Attributes:
        name: The setting without effect.
        by: The setting that overrides it.
        reason: Said to whoever asked for ``name``.
        value: The value of ``by`` that does; None where any value but None does.
    """

    name: str
    by: str
    reason: str
    value: Value = None


@dataclass(frozen=True, slots=True)
class Limit:
    """What one kind of device takes of a setting.

    Attributes:
        name: The setting.
        multiple_of: A number that values must be multiples of; None where any fits.
        works: False where the setting has no effect there.
        reason: Said to whoever asked.
    """

    name: str
    reason: str
    multiple_of: int | None = None
    works: bool = True


# In the order of repair: what raises the token budget comes first.
RULES = (
    Rule(
        "max_num_batched_tokens",
        "at_least",
        "max_model_len",
        when={"enable_chunked_prefill": False},
    ),
    Rule("max_num_seqs", "at_most", "max_num_batched_tokens"),
    Rule("max_num_active_seqs", "at_most", "max_num_seqs"),
    Rule("max_num_scheduled_tokens", "at_most", "max_num_batched_tokens"),
    Rule("long_prefill_token_threshold", "at_most", "max_model_len"),
    # Larger sizes are cut to the token budget: the trial would only look different.
    Rule(
        "compilation_config.max_cudagraph_capture_size",
        "at_most",
        "max_num_batched_tokens",
    ),
    Rule("max_cudagraph_capture_size", "at_most", "max_num_batched_tokens"),
)

_EAGER = "enforce_eager switches graphs and compiling off"
_BYTES = "kv_cache_memory_bytes fixes the KV cache, so the share is not used for it"

OVERRIDES = (
    Override("gpu_memory_utilization", "kv_cache_memory_bytes", _BYTES),
    *(
        Override(name, "enforce_eager", _EAGER, value=True)
        for name in (
            "compilation_config.cudagraph_mode",
            "compilation_config.max_cudagraph_capture_size",
            "max_cudagraph_capture_size",
        )
    ),
    Override(
        "max_cudagraph_capture_size",
        "compilation_config.max_cudagraph_capture_size",
        "compilation_config.max_cudagraph_capture_size is the same setting",
    ),
)

_NO_GRAPHS = "the CPU has no graphs to capture"

LIMITS: Mapping[str, tuple[Limit, ...]] = {
    "cpu": (
        Limit("async_scheduling", "the CPU build resets it silently", works=False),
        Limit("compilation_config.cudagraph_mode", _NO_GRAPHS, works=False),
        Limit("compilation_config.max_cudagraph_capture_size", _NO_GRAPHS, works=False),
        Limit("max_cudagraph_capture_size", _NO_GRAPHS, works=False),
        Limit(
            "block_size",
            "the CPU's attention takes multiples of 32; others die after the start",
            multiple_of=32,
        ),
    ),
    "gpu": (
        Limit(
            "block_size",
            "FlashAttention takes multiples of 16; others leave no attention backend",
            multiple_of=16,
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The tables together, so that another vLLM can be given others."""

    rules: tuple[Rule, ...] = RULES
    overrides: tuple[Override, ...] = OVERRIDES
    limits: Mapping[str, tuple[Limit, ...]] = field(default_factory=lambda: LIMITS)

    def limit(self, device: str, name: str) -> Limit | None:
        """What ``device`` (``cpu``, or an accelerator's name) takes of ``name``."""
        rows = self.limits.get("cpu" if device == "cpu" else "gpu", ())
        return next((row for row in rows if row.name == name), None)

"""A vLLM configuration in, the values it really uses out, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.domain.settings import Value


# By engine argument where there is one, so that a trial can be recorded under
# what ran; facts without an argument follow.
PATHS = {
    "block_size": "cache_config.block_size",
    "gpu_memory_utilization": "cache_config.gpu_memory_utilization",
    "kv_cache_memory_bytes": "cache_config.kv_cache_memory_bytes",
    "kv_cache_dtype": "cache_config.cache_dtype",
    "enable_prefix_caching": "cache_config.enable_prefix_caching",
    "max_num_batched_tokens": "scheduler_config.max_num_batched_tokens",
    "max_num_seqs": "scheduler_config.max_num_seqs",
    "enable_chunked_prefill": "scheduler_config.enable_chunked_prefill",
    "long_prefill_token_threshold": "scheduler_config.long_prefill_token_threshold",
    "async_scheduling": "scheduler_config.async_scheduling",
    "stream_interval": "scheduler_config.stream_interval",
    "max_model_len": "model_config.max_model_len",
    "dtype": "model_config.dtype",
    "quantization": "model_config.quantization",
    "enforce_eager": "model_config.enforce_eager",
    "seed": "model_config.seed",
    "tensor_parallel_size": "parallel_config.tensor_parallel_size",
    "pipeline_parallel_size": "parallel_config.pipeline_parallel_size",
    "data_parallel_size": "parallel_config.data_parallel_size",
    "compilation_config.cudagraph_mode": "compilation_config.cudagraph_mode",
    "compilation_config.max_cudagraph_capture_size": (
        "compilation_config.max_cudagraph_capture_size"
    ),
    "compilation_config.mode": "compilation_config.mode",
    "attention_config.backend": "attention_config.backend",
    "load_format": "load_config.load_format",
    "kv_blocks": "cache_config.num_gpu_blocks",
}


def effective_values(config: Any) -> dict[str, Value]:
    """Values by name; what this vLLM does not have is left out."""
    values: dict[str, Value] = {}
    for name, path in PATHS.items():
        found, value = _follow(config, path)
        if found:
            values[name] = _plain(value)
    blocks, size = values.get("kv_blocks"), values.get("block_size")
    if isinstance(blocks, int) and isinstance(size, int):
        values["kv_tokens"] = blocks * size
    return values


def silent_changes(
    asked: Mapping[str, Value], effective: Mapping[str, Value]
) -> dict[str, tuple[Value, Value]]:
    """Settings that run otherwise than asked, as (asked, effective) by name.

    ``auto`` and None leave the choice to vLLM, and what it does not report cannot be
    compared.
    """
    return {
        name: (value, effective[name])
        for name, value in asked.items()
        if name in effective
        and value not in (None, "auto")
        and _plainly(value) != _plainly(effective[name])
    }


def _plainly(value: Value) -> Value:
    """Numbers as they are; names without regard to case."""
    return value.lower() if isinstance(value, str) else value


def _follow(config: Any, path: str) -> tuple[bool, Any]:
    for name in path.split("."):
        if not hasattr(config, name):
            return False, None
        config = getattr(config, name)
    return True, config


def _plain(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return getattr(value, "name", value) if hasattr(value, "name") else value
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value).removeprefix("torch.")

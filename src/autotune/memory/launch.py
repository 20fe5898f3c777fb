"""Engine arguments in, the numbers memory depends on with vLLM's defaults out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from autotune.memory.precision import (
    Abstain,
    Quantization,
    cache_element_bytes,
    read_quantization,
)
from autotune.memory.shape import ModelShape


Arguments = Mapping[str, object]
T = TypeVar("T")

GIB = 1 << 30
DEFAULT_UTILIZATION = 0.92

# These bring weights, buffers or a KV pool that the shape says nothing about.
_BEYOND_THE_MODEL = (
    "speculative_config",
    "enable_lora",
    "cpu_offload_gb",
    "hf_overrides",
    "kv_transfer_config",
)
_NUMBERS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_model_len",
    "block_size",
)
_CAPTURE_CEILING = 512
_FINE_STRIDE_END = 256


@dataclass(frozen=True, slots=True)
class Device:
    """Where the engine will run.

    Attributes:
        kind: Accelerator, or the host's own processor and memory.
        memory_bytes: All memory of one device as the framework counts it.
        free_bytes: What is free before the launch; None if nobody looked.
        name: Its product name.
    """

    kind: Literal["cuda", "cpu"]
    memory_bytes: int
    free_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as far as memory is concerned.

    Attributes:
        utilization: Share of the device's memory the engine may claim.
        kv_cache_bytes: KV memory fixed by hand; None where it is what is left.
        batched_tokens: Tokens of one step at most.
        in_flight_tokens: Tokens of all steps that overlap.
        max_length: Longest request, in tokens.
        piecewise_sizes: Batch sizes captured as piecewise graphs.
        full_sizes: Batch sizes captured as full decode graphs.
    """

    utilization: float
    kv_cache_bytes: int | None
    batched_tokens: int
    in_flight_tokens: int
    sequences: int
    max_length: int
    block_size: int
    cache_element_bytes: int
    quantization: Quantization | None
    tensor: int
    pipeline: int
    piecewise_sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]


def read_launch(
    shape: ModelShape, arguments: Arguments, device: Device
) -> Launch | Abstain:
    """What ``arguments`` mean for memory; absent ones take the server's defaults."""
    for name in _BEYOND_THE_MODEL:
        if arguments.get(name):
            return Abstain(f"{name} adds memory that the memory model does not know")
    for name in _NUMBERS:
        if not _is_positive(arguments.get(name, 1)):
            return Abstain(f"{name} is {arguments[name]!r}, not a positive number")
    quantization = read_quantization(
        _given(arguments, "quantization", None), shape.quantization_config or {}
    )
    cache = _cache_element_bytes(shape, arguments)
    tensor = _given(arguments, "tensor_parallel_size", 1)
    if isinstance(quantization, Abstain):
        return quantization
    if isinstance(cache, Abstain):
        return cache
    if shape.head_count % tensor:
        return Abstain(f"{shape.head_count} heads do not divide over {tensor} devices")
    return _resolve(shape, arguments, device, quantization, cache)


def _resolve(
    shape: ModelShape,
    arguments: Arguments,
    device: Device,
    quantization: Quantization | None,
    cache: int,
) -> Launch:
    length = _given(arguments, "max_model_len", shape.max_positions)
    tokens, sequences = _batch(arguments, device, length=length)
    piecewise, full = _captures(arguments, device, tokens=tokens, sequences=sequences)
    return Launch(
        utilization=float(
            _given(arguments, "gpu_memory_utilization", DEFAULT_UTILIZATION)
        ),
        kv_cache_bytes=_given(arguments, "kv_cache_memory_bytes", None),
        batched_tokens=tokens,
        in_flight_tokens=tokens * _steps_in_flight(arguments, device),
        sequences=sequences,
        max_length=length,
        block_size=_block_size(shape, arguments, device),
        cache_element_bytes=cache,
        quantization=quantization,
        tensor=_given(arguments, "tensor_parallel_size", 1),
        pipeline=_given(arguments, "pipeline_parallel_size", 1),
        piecewise_sizes=piecewise,
        full_sizes=full,
    )


def _is_positive(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and value > 0)


def _block_size(shape: ModelShape, arguments: Arguments, device: Device) -> int:
    """Tokens per block; by default what the usual attention backend prefers."""
    if device.kind == "cpu" and shape.latent:
        return 16  # the only one there is: the engine overrides any other
    usual = 128 if device.kind == "cpu" else 64 if shape.latent else 16
    return _given(arguments, "block_size", usual)


def _given(arguments: Arguments, name: str, default: T) -> T:
    value = arguments.get(name)
    return default if value is None else value  # type: ignore[return-value]  # vLLM checks its own arguments' types


def _cache_element_bytes(shape: ModelShape, arguments: Arguments) -> int | Abstain:
    name = str(_given(arguments, "kv_cache_dtype", "auto"))
    return cache_element_bytes(name, model_element_bytes=shape.element_bytes)


def _batch(arguments: Arguments, device: Device, *, length: int) -> tuple[int, int]:
    """Batched tokens and sequences, as the server defaults them."""
    tokens, sequences = _batch_defaults(arguments, device)
    sequences = _given(arguments, "max_num_seqs", sequences)
    if arguments.get("enable_chunked_prefill") is False:
        tokens = max(tokens, length)
    tokens = _given(
        arguments, "max_num_batched_tokens", min(tokens, sequences * length)
    )
    if arguments.get("max_num_seqs") is None:
        sequences = min(sequences, tokens)
    return tokens, sequences


def _batch_defaults(arguments: Arguments, device: Device) -> tuple[int, int]:
    if device.kind == "cpu":
        world = _given(arguments, "tensor_parallel_size", 1) * _given(
            arguments, "pipeline_parallel_size", 1
        )
        return 2048 * world, 128 * world
    if device.memory_bytes >= 160 * GIB:
        return 16384, 1024
    if device.memory_bytes >= 70 * GIB and "a100" not in device.name.lower():
        return 8192, 1024
    return 2048, 256


def _steps_in_flight(arguments: Arguments, device: Device) -> int:
    stages = _given(arguments, "pipeline_parallel_size", 1)
    overlapped = (
        device.kind == "cuda" and arguments.get("async_scheduling") is not False
    )
    return max(stages, 2 if overlapped else 1)


def _captures(
    arguments: Arguments, device: Device, *, tokens: int, sequences: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes captured piecewise and in full."""
    mode = _compilation(arguments, "cudagraph_mode") or "FULL_AND_PIECEWISE"
    mode = str(getattr(mode, "name", mode)).upper()
    if device.kind == "cpu" or arguments.get("enforce_eager") or mode == "NONE":
        return (), ()
    sizes = _capture_sizes(arguments, tokens=tokens, sequences=sequences)
    decode = tuple(size for size in sizes if size <= sequences)
    piecewise = sizes if mode in {"PIECEWISE", "FULL_AND_PIECEWISE"} else ()
    full = {"PIECEWISE": (), "FULL": sizes}.get(mode, decode)
    return piecewise, full


def _capture_sizes(
    arguments: Arguments, *, tokens: int, sequences: int
) -> tuple[int, ...]:
    listed = arguments.get("cudagraph_capture_sizes") or _compilation(
        arguments, "cudagraph_capture_sizes"
    )
    if isinstance(listed, list | tuple):
        return tuple(sorted(int(size) for size in listed if int(size) <= tokens))
    asked = arguments.get("max_cudagraph_capture_size") or _compilation(
        arguments, "max_cudagraph_capture_size"
    )
    top = int(str(asked)) if asked else min(2 * sequences, _CAPTURE_CEILING)
    top = min(top, tokens)
    fine = range(8, min(top + 1, _FINE_STRIDE_END), 8)
    coarse = range(_FINE_STRIDE_END, top + 1, 16)
    return tuple(size for size in (1, 2, 4, *fine, *coarse) if size <= top)


def _compilation(arguments: Arguments, name: str) -> object:
    """A field of the compilation configuration, dotted or nested."""
    nested = arguments.get("compilation_config")
    inner = nested.get(name) if isinstance(nested, Mapping) else None
    return arguments.get(f"compilation_config.{name}", inner)

"""A class of failure in, whom it blames and what to change out."""

from __future__ import annotations

from typing import Final

from autotune.domain.outcome import Blame


BLAMES: Final[dict[str, Blame]] = {
    "oom_weights": "settings",
    "oom_kv_cache": "settings",
    "oom_profile": "settings",
    "oom_graph_capture": "settings",
    "oom_runtime": "settings",
    "oom_host": "settings",
    "memory_not_free": "environment",
    "invalid_config": "settings",
    "unsupported_hardware": "settings",
    "model_unavailable": "environment",
    "remote_code": "environment",
    "compile_error": "environment",
    "communication": "environment",
    "engine_dead": "settings",
    "port_in_use": "environment",
    "tokenizer": "environment",
    "other": "environment",
    "healthy": "nobody",
}

ADVICE: Final[dict[str, str]] = {
    "oom_weights": (
        "The weights do not fit on the device: use more devices"
        " (tensor_parallel_size), a quantized checkpoint, a smaller model, or"
        " cpu_offload_gb."
    ),
    "oom_kv_cache": (
        "Too little memory is left for the KV cache: lower max_model_len or"
        " max_num_seqs, raise gpu_memory_utilization (kv_cache_memory_bytes or"
        " VLLM_CPU_KVCACHE_SPACE on CPU), or use a smaller kv_cache_dtype."
    ),
    "oom_profile": (
        "Activations of the warm-up run do not fit: lower max_num_batched_tokens or"
        " max_num_seqs (the sampler sorts max_num_seqs rows of the vocabulary), or"
        " lower gpu_memory_utilization to leave room outside the pool."
    ),
    "oom_graph_capture": (
        "CUDA graphs do not fit beside the KV cache: lower gpu_memory_utilization,"
        " capture fewer or smaller sizes, lower max_num_seqs, or set enforce_eager."
    ),
    "oom_runtime": (
        "Memory ran out while serving: lower gpu_memory_utilization to leave"
        " headroom, or lower max_num_batched_tokens or max_num_seqs."
    ),
    "oom_host": (
        "The host ran out of memory: lower swap or offload space and the KV cache on"
        " CPU, enlarge /dev/shm or the container's limit, or load the model with"
        " fewer processes at once."
    ),
    "memory_not_free": (
        "Another process holds or moved device memory: find it (nvidia-smi), end a"
        " leftover engine or wait, then start again; the settings are not at fault."
    ),
    "invalid_config": (
        "The settings contradict each other, the model, or this vLLM: change the"
        " ones that the line names."
    ),
    "unsupported_hardware": (
        "This device, its driver or its backend cannot do what was asked: choose a"
        " dtype, quantization, kv_cache_dtype or attention_backend it supports, or"
        " another device."
    ),
    "model_unavailable": (
        "The model cannot be had: check the name or path, accept its licence and set"
        " HF_TOKEN if it is gated, check the network or HF_HUB_OFFLINE, and whether"
        " the files are complete."
    ),
    "remote_code": (
        "The model brings its own code: read it, then pass --trust-remote-code, or"
        " use a repository with native support (for GLM-4 the one ending in -hf);"
        " install the packages that its code names."
    ),
    "compile_error": (
        "Compiling kernels failed: install the compiler the line names (gcc and g++,"
        " nvcc with CUDA_HOME, Python headers), clear the compile cache, or set"
        " enforce_eager."
    ),
    "communication": (
        "The processes cannot talk to each other: check NCCL_SOCKET_IFNAME,"
        " GLOO_SOCKET_IFNAME, /dev/shm and the firewall; NCCL_DEBUG=INFO says more."
    ),
    "engine_dead": (
        "The engine died, hung or ran past a deadline and left no cause: look at the"
        " lines above it and at the kernel's log, and try smaller settings; a slow"
        " start may only need a longer deadline."
    ),
    "port_in_use": (
        "The port is taken: end the server that holds it, or choose another port."
    ),
    "tokenizer": (
        "The tokenizer or its chat template is missing, broken or not understood:"
        " complete its files, name another with --tokenizer or --chat-template, or"
        " install the package it needs."
    ),
    "other": (
        "No known class: read the line and the traceback above it; a broken or"
        " mismatched installation, or a model that this vLLM does not know, is"
        " likely."
    ),
    "healthy": "Nothing to change: the log states no failure.",
}

REQUEST_ADVICE: Final = (
    "One request was refused and the engine lives: shorten the prompt or the output,"
    " or correct the request."
)
CLASSES: Final = tuple(BLAMES)

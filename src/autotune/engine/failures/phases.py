"""How far a start had come: narration and traceback frames in, a phase out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from autotune.engine.failures.lines import Statement


Phase = Literal[
    "config", "device", "weights", "profile", "kv_cache", "graph_capture", "serving"
]

# What the engine says when it *enters* a phase, oldest wording beside newest.
_NARRATED: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        "serving",
        re.compile(
            r"Application startup complete|Uvicorn running on|init engine \(.*took"
            r"|throughput: [\d.]+ tokens/s|\"(?:POST|GET) /(?:v1|generate|health)"
            r"|Added request|Received request|Dumping (?:input data|scheduler output)"
            r"|init engine .{0,80}took",
            re.IGNORECASE,
        ),
    ),
    (
        "graph_capture",
        re.compile(
            r"Captur(?:e|ing)\b.{0,40}graph|Graph capturing finished|graph_capture"
            r"|ESTIMATE_CUDAGRAPHS",
            re.IGNORECASE,
        ),
    ),
    (
        "kv_cache",
        re.compile(
            r"Available KV cache memory|(?:GPU|CPU) KV cache size|# \w+ blocks: \d"
            r"|Maximum concurrency for",
            re.IGNORECASE,
        ),
    ),
    (
        "profile",
        re.compile(
            r"(?:Model loading|Loading model weights|Loading weights) took"
            r"|profil(?:e|ing) (?:run|results)|torch\.compile takes"
            r"|Dynamo bytecode transform|Compiling a graph|Profiling CUDA graph",
            re.IGNORECASE,
        ),
    ),
    (
        "weights",
        re.compile(
            r"Starting to load model|Loading .{0,30}(?:checkpoint|model|shards)"
            r"|Time spent downloading weights|Loading weights",
            re.IGNORECASE,
        ),
    ),
    (
        "device",
        re.compile(
            r"Initializing an? (?:V1 )?(?:LLM|engine)|world_size=|distributed_init",
            re.IGNORECASE,
        ),
    ),
    ("config", re.compile(r"Resolved architecture|Using max model len|Automatically")),
)

# Frames by function, file or quoted source; the first row that matches decides, so
# that a capture called from profiling counts as capture, and a dummy run as start-up.
_FRAMED: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        "graph_capture",
        re.compile(
            r"capture_model|_capture_\w*graph|capture_graph|graph_capture"
            r"|warmup_and_capture|profile_cudagraph|cuda_?graph(?:_runner|_wrapper)?\.py"
            r"|torch\.cuda\.graph\(|cuda/graphs\.py|CUDAGraphRunner",
            re.IGNORECASE,
        ),
    ),
    (
        "profile",
        re.compile(
            r"_dummy_sampler_run|profile_run|determine_available_memory"
            r"|determine_num_available_blocks|kernel_warmup|warming_?_?up|_dummy_run"
            r"|_run_workers\(\"profile",
            re.IGNORECASE,
        ),
    ),
    (
        "kv_cache",
        re.compile(
            r"allocate_kv_cache|initialize_kv_cache|initialize_cache|cache_engine\.py"
            r"|_init_cache_engine|_reshape_kv_cache|_allocate_gpu_cache",
            re.IGNORECASE,
        ),
    ),
    (
        "weights",
        re.compile(
            r"load_model|load_weights|model_loader|create_weights|weight_loader"
            r"|process_weights|initialize_model|make_layers|get_model\b|weight_utils"
            r"|safetensors_weights",
            re.IGNORECASE,
        ),
    ),
    (
        "serving",
        re.compile(
            r"sample_tokens|execute_model|run_busy_loop|run_engine_loop|engine_step"
            r"|step_async|_process_engine_step|process_input_queue|step_with_batch_queue"
            r"|serving_(?:chat|completion)|entrypoints/openai/serving",
            re.IGNORECASE,
        ),
    ),
    ("profile", re.compile(r"logits\.sort|compile_or_warm_up_model", re.IGNORECASE)),
)
_START_WRAPPERS = re.compile(
    r"EngineCore failed to start|Engine process failed to start"
    r"|Engine core initialization failed|WorkerProc failed to start"
)
TRACEBACK_LINES = 240
GIVEN: dict[str, Phase] = {
    "resolve": "config",
    "config": "config",
    "start": "profile",
    "load": "weights",
    "weights": "weights",
    "profile": "profile",
    "kv_cache": "kv_cache",
    "capture": "graph_capture",
    "graph_capture": "graph_capture",
    "warm-up": "serving",
    "warm_up": "serving",
    "warmup": "serving",
    "ready": "serving",
    "measure": "serving",
    "serve": "serving",
    "serving": "serving",
    "stop": "serving",
}


def phase_at(said: Sequence[Statement], index: int) -> Phase | None:
    """Phase in which statement ``index`` was made; None where nothing tells."""
    return framed_phase(said, index) or narrated_phase(said, index)


def framed_phase(said: Sequence[Statement], index: int) -> Phase | None:
    """Phase by the traceback that leads to statement ``index``."""
    around = traceback_of(said, index)
    for phase, pattern in _FRAMED:
        if any(pattern.search(line) for line in around):
            return phase
    return None


def traceback_of(said: Sequence[Statement], index: int) -> tuple[str, ...]:
    """Frames and quoted source above statement ``index``, of the same process.

    Excerpts may start in the middle of a traceback, or state its frames after the
    exception: when nothing stands above, the frames below count.
    """
    before = [
        s
        for s in said[max(0, index - TRACEBACK_LINES) : index]
        if s.frame or s.code or (s.complains and not s.exception)
    ]
    above = [s for s in before if s.tag == said[index].tag] or before
    below = [s for s in said[index + 1 : index + 8] if s.frame or s.code]
    return tuple(s.frame or s.text for s in above or below)


def framed(said: Sequence[Statement], index: int) -> tuple[str, ...]:
    """Frames of the traceback above statement ``index``, innermost last."""
    frames: list[str] = []
    for statement in reversed(said[max(0, index - TRACEBACK_LINES) : index]):
        if statement.text.startswith("Traceback"):
            break
        if statement.frame and statement.tag == said[index].tag:
            frames.append(statement.frame)
    return tuple(reversed(frames))


def narrated_phase(said: Sequence[Statement], index: int) -> Phase | None:
    """Phase by the last progress line up to ``index``, or one soon after it."""
    for statement in (*reversed(said[: index + 1]), *said[index + 1 : index + 4]):
        if statement.frame or statement.code:
            continue
        for phase, pattern in _NARRATED:
            if pattern.search(statement.text):
                return phase
    return None


def was_starting(said: Sequence[Statement]) -> bool:
    """Whether some line says that the engine did not come up."""
    return any(_START_WRAPPERS.search(s.text) for s in said)

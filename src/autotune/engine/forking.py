"""Start the engine core as a fork of this warm process instead of a cold spawn.

vLLM's CPU platform forces ``spawn``, which imports everything anew (8-16 s on two
cores). A fork inherits the imports and is ready in 2-3 s. It is safe on CPU only,
where nothing has touched a device, and only from the main thread.
"""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from autotune.engine.orphans import arm_children


__all__ = ["arm_children", "engine_core_forked", "warm_up"]

# vLLM modules that hold their own reference to ``get_mp_context``.
HOLDERS = (
    "vllm.v1.engine.utils",
    "vllm.v1.executor.multiproc_executor",
    "vllm.utils.system_utils",
)
# What the engine core of a CPU start imports; loaded here once, before forking.
WARM = (
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.glm4",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.structured_output",
)


def warm_up() -> None:
    """Import what a forked engine core will need."""
    for module in WARM:
        try:
            importlib.import_module(module)
        except ImportError:
            continue  # another vLLM release lays its modules out differently


@contextmanager
def engine_core_forked() -> Iterator[None]:
    """Inside the block, vLLM's child processes are forks of this one."""
    context = multiprocessing.get_context("fork")
    with ExitStack() as stack:
        for holder in HOLDERS:
            importlib.import_module(holder)
            stack.enter_context(patch(f"{holder}.get_mp_context", lambda: context))
        yield

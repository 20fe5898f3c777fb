"""Published settings in today's arguments; a search space in, a first trial out.

Recipes are where somebody else ended up, on another machine and another vLLM. They
are worth one trial each, and nothing more: the study decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from autotune.domain.layout import LAYOUT, collapse
from autotune.domain.settings import Value
from autotune.domain.space import SearchSpace


@dataclass(frozen=True)
class Recipe:
    """Settings that somebody published.

    Attributes:
        name: Short, for the table of trials.
        arguments: Engine arguments by name; what is absent keeps the default.
        lossy: Whether they can change what the model answers.
        note: What was written, and what became of it in translation.
    """

    name: str
    arguments: Mapping[str, Value]
    lossy: bool
    note: str

    def __post_init__(self) -> None:
        """Freeze the arguments."""
        frozen = MappingProxyType(dict(self.arguments))
        object.__setattr__(self, "arguments", frozen)


RECIPES = (
    Recipe(
        "prefix-and-memory",
        {"enable_prefix_caching": True, "gpu_memory_utilization": 0.95},
        lossy=False,
        note=(
            "Written: AWQ, prefix caching, utilisation 0.85 raised to 0.95, TP 2 on "
            "two cards. Prefix caching is vLLM's default by now. AWQ is another "
            "checkpoint: name it with --model. TP 2 is one choice of the layout knob, "
            "which the study tries by itself."
        ),
    ),
    Recipe(
        "chunked-eager-fp8",
        {
            "enable_chunked_prefill": True,
            "max_num_batched_tokens": 8192,
            "block_size": 32,
            "kv_cache_dtype": "fp8",
            "gpu_memory_utilization": 0.95,
            "enable_prefix_caching": True,
            "enforce_eager": True,
        },
        lossy=True,
        note=(
            "Written: chunked prefill with 8192 tokens, block size 32, prefix caching, "
            "utilisation 0.95, eager mode and --quantization kv_cache_fp8, which is no "
            "method: the KV cache's type is meant. --kv-cache-dtype fp16 stands beside "
            "it and contradicts it, so it is left out. A context of 131072 is left to "
            "the workload. Measured on an H200 with vLLM 0.21.0 at the articles' three "
            "workloads: TPOT p50 42, 29 and 38 ms, against 17, 13 and 19 ms at the "
            "defaults."
        ),
    ),
    Recipe(
        "chunked",
        {
            "enable_chunked_prefill": True,
            "max_num_batched_tokens": 8192,
            "block_size": 32,
            "gpu_memory_utilization": 0.95,
            "enable_prefix_caching": True,
        },
        lossy=False,
        note=(
            "chunked-eager-fp8 without what changes answers (the KV cache's type) and "
            "without eager mode, which gives up graphs."
        ),
    ),
)


@dataclass(frozen=True)
class FirstTrial:
    """A recipe as far as a search space can express it.

    Attributes:
        values: By knob name; other knobs keep the default.
        left_out: Arguments the space does not turn, or not to that value.
    """

    recipe: Recipe
    values: Mapping[str, Value]
    left_out: tuple[str, ...]


def recipe(name: str) -> Recipe | None:
    """The recipe called ``name``, if there is one."""
    return next((r for r in RECIPES if r.name == name), None)


def first_trials(
    names: tuple[str, ...], space: SearchSpace, *, allow_lossy: bool
) -> tuple[FirstTrial, ...]:
    """Recipes to enqueue before the search, each once and none without effect.

    A lossy recipe is left out unless lossy settings are allowed, even where the
    space has lost the knob that makes it lossy: it would no longer be that recipe.
    Arguments that are already held at the recipe's value count as expressed.
    """
    found: list[FirstTrial] = []
    for known in (recipe(name) for name in names):
        if known is None or (known.lossy and not allow_lossy):
            continue
        trial = _fit(known, space)
        if trial.values and trial.values not in [t.values for t in found]:
            found.append(trial)
    return tuple(found)


def _fit(known: Recipe, space: SearchSpace) -> FirstTrial:
    wanted = dict(known.arguments)
    if space.knob(LAYOUT) is not None:
        wanted |= collapse(wanted)
        for size in ("tensor_parallel_size", "pipeline_parallel_size"):
            wanted.pop(size, None)
    values, left_out = {}, []
    for name, value in wanted.items():
        knob = space.knob(name)
        if knob is not None and knob.accepts(value):
            values[name] = value
        elif knob is not None or space.fixed.get(name) != value:
            left_out.append(name)
    return FirstTrial(known, values, tuple(left_out))

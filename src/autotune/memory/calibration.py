"""A model of memory and what one start said in, a better model out."""

from __future__ import annotations

from dataclasses import replace

from autotune.memory.cache import read_layout
from autotune.memory.forecast import MemoryModel, Needs
from autotune.memory.launch import Arguments, Launch, read_launch
from autotune.memory.observation import Observation
from autotune.memory.precision import Abstain


# Logs print hundredths of a GiB; the model itself is good to about as much.
_STATED_NOISE_BYTES = float(5 << 20)
# Cold and warm compile caches alone differ by this in the profiling run.
_PROFILE_NOISE_BYTES = float(20 << 20)
_PROCESS_NOISE_BYTES = float(64 << 20)


def calibrate(
    model: MemoryModel, observation: Observation, *, arguments: Arguments
) -> MemoryModel:
    """``model`` after a start with ``arguments`` said ``observation``.

    What the start did not say teaches nothing; a launch the model abstains from
    leaves it as it was. Failed starts teach as far as they came.
    """
    launch = read_launch(model.shape, arguments, model.device)
    if isinstance(launch, Abstain):
        return model
    model = _with_stated(model, observation, model.needs(launch))
    if model.device.kind == "cpu":
        return model
    model = _with_profile(model, observation, launch)
    return _with_used(model, observation, launch)


def _with_stated(
    model: MemoryModel, observation: Observation, needs: Needs
) -> MemoryModel:
    """Learn the amounts that the log states one by one."""
    belief = model.coefficients
    stated = (
        ("weights", observation.weights_bytes),
        ("graphs", observation.graphs_bytes),
        ("estimate", observation.estimate_bytes),
    )
    for name, amount in stated:
        if amount is not None and needs.features[name]:
            belief = belief.learn(
                needs.row(name), amount, noise_bytes=_STATED_NOISE_BYTES
            )
    return replace(model, coefficients=belief)


def _with_profile(
    model: MemoryModel, observation: Observation, launch: Launch
) -> MemoryModel:
    """Learn from what the budget left for KV: everything else together."""
    kv_bytes = _kv_bytes(model, observation, launch)
    if kv_bytes is None or launch.kv_cache_bytes is not None:
        return model
    needs = model.needs(launch)
    row = needs.row("weights", "fixed", needs.peak, "estimate")
    taken = launch.utilization * model.device.memory_bytes - kv_bytes
    belief = model.coefficients.learn(row, taken, noise_bytes=_PROFILE_NOISE_BYTES)
    return replace(model, coefficients=belief)


def _with_used(
    model: MemoryModel, observation: Observation, launch: Launch
) -> MemoryModel:
    """Learn the process's own share from what the driver sees in use.

    The sampler's warm-up is the last peak before serving, and its buffers stay.
    """
    kv_bytes = _kv_bytes(model, observation, launch)
    if kv_bytes is None or observation.used_bytes is None:
        return model
    needs = model.needs(launch)
    row = needs.row("process", "graphs", "weights", "fixed", "sampler")
    belief = model.coefficients.learn(
        row, observation.used_bytes - kv_bytes, noise_bytes=_PROCESS_NOISE_BYTES
    )
    return replace(model, coefficients=belief)


def _kv_bytes(
    model: MemoryModel, observation: Observation, launch: Launch
) -> int | None:
    """KV memory, from the tokens where stated: they are exact to a block."""
    if observation.kv_tokens is None:
        return observation.kv_bytes
    layout = read_layout(model.shape, launch)
    blocks = layout.blocks_of_tokens(observation.kv_tokens, length=launch.max_length)
    return blocks * layout.block_bytes

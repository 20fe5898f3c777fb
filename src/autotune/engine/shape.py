"""A model's own configuration in, the little the load must know of it out."""

from __future__ import annotations

from typing import Any

from autotune.engine.arguments import import_vllm
from autotune.errors import InputError


def model_configuration(model: str) -> dict[str, Any]:
    """The model's Hugging Face configuration, nested text part included.

    Raises:
        InputError: It cannot be read.
    """
    return dict(_configuration(model).to_dict())


def vocabulary_size(model: str) -> int:
    """Size of the model's vocabulary; prompts are drawn below it.

    Raises:
        InputError: The model's configuration cannot be read.
    """
    config = _configuration(model)
    return int(config.get_text_config().vocab_size)


def _configuration(model: str) -> Any:
    import_vllm()
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model)
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"model {model!r}: its configuration cannot be read: {reason}. "
            "Check the name, the network and HF_HUB_OFFLINE, "
            "or give a directory with --model"
        ) from error

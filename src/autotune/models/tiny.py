"""Makes tiny-glm4: GLM-4's architecture with three million random parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


VOCABULARY = 2048
CONFIG: dict[str, Any] = {
    "architectures": ["Glm4ForCausalLM"],
    "model_type": "glm4",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n"
    "{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CORPUS = (
    "A study proposes settings, the engine is started, requests are sent, and the "
    "time to the first token and the time per output token are written down. "
    "0123456789 the quick brown fox jumps over the lazy dog, again and again; "
    "memory, block, batch, prefill, decode, cache, graph, layer, head, token."
)


def make_tiny_glm4(directory: Path, *, seed: int = 0) -> None:
    """Write configuration, seeded random weights and a small BPE tokenizer."""
    _save_tokenizer(directory)
    _save_weights(directory, seed)
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


def _save_weights(directory: Path, seed: int) -> None:
    import torch
    from transformers import Glm4Config, Glm4ForCausalLM

    torch.manual_seed(seed)
    options = {k: v for k, v in CONFIG.items() if not k.endswith("dtype")}
    model = Glm4ForCausalLM(Glm4Config(**options)).to(torch.bfloat16)
    model.save_pretrained(str(directory))


def _save_tokenizer(directory: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS], trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special[0],
        "eos_token": special[1],
        "pad_token": special[1],
        "model_max_length": CONFIG["max_position_embeddings"],
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(described) + "\n")

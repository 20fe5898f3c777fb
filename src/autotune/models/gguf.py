"""A Llama-architecture GGUF file in, a Hugging Face directory in bfloat16 out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def convert(gguf_path: Path, directory: Path) -> None:
    """Write configuration, weights and tokenizer of ``gguf_path`` to ``directory``.

    Weights are dequantized to bfloat16. GGUF stores the rows of the query and key
    projections interleaved for its own rotary embedding; that order is undone.
    """
    import gguf

    reader = gguf.GGUFReader(str(gguf_path))
    config = _config(reader)
    _save_weights(reader, config, directory)
    _save_tokenizer(gguf_path, config, directory)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _field(reader: Any, name: str) -> Any:
    return reader.fields[name].contents()


def _config(reader: Any) -> dict[str, Any]:
    def value(name: str) -> Any:
        return _field(reader, f"llama.{name}")

    hidden, heads = value("embedding_length"), value("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": value("context_length"),
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "rope_theta": value("rope.freq_base"),
        "vocab_size": len(_field(reader, "tokenizer.ggml.tokens")),
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _save_weights(reader: Any, config: dict[str, Any], directory: Path) -> None:
    import gguf
    import torch
    from safetensors.torch import save_file

    tensors = {}
    for tensor in reader.tensors:
        name = _hugging_face_name(tensor.name)
        weights = gguf.dequantize(tensor.data, tensor.tensor_type)
        array = torch.from_numpy(weights.copy())
        if tensor.name.endswith("attn_q.weight"):
            array = _undo_permutation(array, config["num_attention_heads"])
        if tensor.name.endswith("attn_k.weight"):
            array = _undo_permutation(array, config["num_key_value_heads"])
        tensors[name] = array.to(torch.bfloat16).contiguous()
    path = str(directory / "model.safetensors")
    save_file(tensors, path, metadata={"format": "pt"})


def _hugging_face_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if layer:
        return f"model.layers.{layer[1]}.{LAYER_NAMES[layer[2]]}.weight"
    return f"{TOP_NAMES[stem]}.weight"


def _undo_permutation(weights: Any, heads: int) -> Any:
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _save_tokenizer(gguf_path: Path, config: dict[str, Any], directory: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        str(gguf_path.parent), gguf_file=gguf_path.name
    )
    tokenizer.save_pretrained(str(directory))
    generation = {k: config[k] for k in ("bos_token_id", "eos_token_id")}
    (directory / "generation_config.json").write_text(json.dumps(generation) + "\n")

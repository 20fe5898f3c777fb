"""Shapes, weights and KV bytes against published parameter counts and known layouts."""

import pytest

from autotune.memory import Abstain, Device, ModelShape, predict, read_shape
from autotune.memory.cache import read_layout
from autotune.memory.launch import read_launch
from autotune.memory.precision import Quantization, read_quantization
from autotune.memory.weights import weights_bytes


H200 = Device("cuda", round(139.8 * 2**30), name="NVIDIA H200")

LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
SMOLLM2_135M = LLAMA_8B | {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
MIXTRAL_8X7B = LLAMA_8B | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_30B_A3B = LLAMA_8B | {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
DEEPSEEK_V3 = LLAMA_8B | {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GPT_OSS_20B = LLAMA_8B | {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
GEMMA3_1B = LLAMA_8B | {
    "model_type": "gemma3_text",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 262144,
    "tie_word_embeddings": True,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}


def shape_of(config):
    shape = read_shape(config)
    assert isinstance(shape, ModelShape), shape
    return shape


def token_bytes(config, **arguments):
    shape = shape_of(config)
    layout = read_layout(shape, read_launch(shape, arguments, H200))
    return layout.block_bytes * len(layout.windows) // layout.block_size


@pytest.mark.parametrize(
    ("config", "parameters_billion"),
    [
        (LLAMA_8B, 8.03),
        (SMOLLM2_135M, 0.1345),
        (MIXTRAL_8X7B, 46.7),
        (QWEN3_30B_A3B, 30.5),
        (DEEPSEEK_V3, 671.0),
        (GPT_OSS_20B, 20.9),
        (GEMMA3_1B, 1.0),
    ],
)
def test_weights_match_the_published_number_of_parameters(config, parameters_billion):
    parameters = weights_bytes(shape_of(config)) / 2

    assert parameters / 1e9 == pytest.approx(parameters_billion, rel=0.01)


def test_tying_embeddings_saves_exactly_one_matrix():
    tied = LLAMA_8B | {"tie_word_embeddings": True}

    saved = weights_bytes(shape_of(LLAMA_8B)) - weights_bytes(shape_of(tied))

    assert saved == 128256 * 4096 * 2


def test_quantization_leaves_the_embeddings_alone():
    shape = shape_of(LLAMA_8B)
    embeddings = 2 * 128256 * 4096 * 2

    halved = weights_bytes(shape, quantization=Quantization("fp8", 1.0))

    assert 2 * (halved - embeddings) == weights_bytes(shape) - embeddings


def test_experts_only_quantization_leaves_attention_alone():
    shape = shape_of(GPT_OSS_20B)
    everything = weights_bytes(shape, quantization=Quantization("x", 0.5))

    experts = weights_bytes(
        shape, quantization=Quantization("x", 0.5, experts_only=True)
    )

    assert everything < experts < weights_bytes(shape)


def test_kv_bytes_count_the_kv_heads_only():
    assert token_bytes(LLAMA_8B) == 32 * 2 * 8 * 128 * 2


def test_one_kv_head_is_the_smallest_cache_there_is():
    assert token_bytes(LLAMA_8B | {"num_key_value_heads": 1}) == 32 * 2 * 128 * 2


def test_absent_kv_heads_mean_one_per_attention_head():
    config = {k: v for k, v in LLAMA_8B.items() if k != "num_key_value_heads"}

    assert token_bytes(config) == 32 * 2 * 32 * 128 * 2


def test_eight_bit_kv_halves_the_cache():
    assert token_bytes(LLAMA_8B, kv_cache_dtype="fp8") * 2 == token_bytes(LLAMA_8B)


def test_kv_heads_are_replicated_beyond_their_number():
    four, eight = (
        token_bytes(QWEN3_30B_A3B, tensor_parallel_size=size) for size in (4, 8)
    )

    assert four == eight == token_bytes(QWEN3_30B_A3B) // 4


def test_latent_attention_caches_one_vector_whatever_the_layout():
    alone = token_bytes(DEEPSEEK_V3)

    assert alone == 61 * (512 + 64) * 2
    assert token_bytes(DEEPSEEK_V3, tensor_parallel_size=8) == alone


def test_pipeline_stages_divide_the_cache_by_layers():
    assert token_bytes(LLAMA_8B, pipeline_parallel_size=2) * 2 == token_bytes(LLAMA_8B)


def test_hybrid_layers_are_cut_into_groups_of_one_size():
    shape = shape_of(GPT_OSS_20B)

    layout = read_layout(shape, read_launch(shape, {}, H200))

    assert (layout.group_size, layout.windows) == (12, (128, None))


def test_sliding_layers_stop_growing_with_the_request():
    shape = shape_of(GPT_OSS_20B)
    arguments = {"max_num_batched_tokens": 1024, "async_scheduling": False}
    layout = read_layout(shape, read_launch(shape, arguments, H200))

    growth = layout.blocks_per_request(64000) - layout.blocks_per_request(32000)

    assert growth == 32000 // 16


def test_gemma_patterns_are_read_without_a_layer_list():
    windows = shape_of(GEMMA3_1B).windows

    assert windows[:6] == (512, 512, 512, 512, 512, None)
    assert windows.count(None) == 4


def test_a_window_that_is_switched_off_is_none():
    config = LLAMA_8B | {
        "model_type": "qwen2",
        "sliding_window": 4096,
        "use_sliding_window": False,
    }

    assert set(shape_of(config).windows) == {None}


def test_old_chatglm_names_mean_the_same_shape():
    modern = LLAMA_8B | {"model_type": "chatglm", "head_dim": 128}
    old = {
        "model_type": "chatglm",
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "num_layers": 32,
        "num_attention_heads": 32,
        "multi_query_attention": True,
        "multi_query_group_num": 8,
        "kv_channels": 128,
        "padded_vocab_size": 128256,
        "seq_length": 131072,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }

    assert shape_of(old) == shape_of(modern)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"model_type": "jamba"}, "jamba"),
        ({"model_type": None}, "None"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"hidden_size": None}, "hidden_size"),
        ({"torch_dtype": "complex64"}, "complex64"),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(change, word):
    answer = read_shape(LLAMA_8B | change)

    assert isinstance(answer, Abstain)
    assert word in answer.reason


@pytest.mark.parametrize(
    ("method", "config", "element_bytes"),
    [
        (None, {}, None),
        ("fp8", {}, 1.0),
        (None, {"quant_method": "fp8"}, 1.0),
        ("int8_per_channel_weight_only", {}, 1.0),
        (None, {"quant_method": "awq", "bits": 4}, 0.52),
        (None, {"quant_method": "gptq", "bits": 8}, 1.02),
        ("bitsandbytes", {}, 0.5625),
        (None, {"quant_method": "mxfp4"}, 0.53125),
        (
            None,
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8}}},
            },
            1.0,
        ),
    ],
)
def test_quantization_methods_have_a_size_per_weight(method, config, element_bytes):
    found = read_quantization(method, config)

    if element_bytes is None:
        assert found is None
    else:
        assert found.element_bytes == pytest.approx(element_bytes, abs=0.005)


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("a_new_one", {}),
        ("awq", {}),
        (None, {"quant_method": "compressed-tensors", "config_groups": {}}),
    ],
)
def test_an_unknown_quantization_abstains(method, config):
    assert isinstance(read_quantization(method, config), Abstain)


@pytest.mark.parametrize(
    "arguments",
    [
        {"quantization": "a_new_one"},
        {"kv_cache_dtype": "a_new_one"},
        {"tensor_parallel_size": 3},
        {"speculative_config": {"method": "ngram"}},
        {"cpu_offload_gb": 4},
        {"max_model_len": -1},
        {"max_num_seqs": "many"},
    ],
)
def test_arguments_beyond_the_model_abstain(arguments):
    assert isinstance(predict(shape_of(LLAMA_8B), arguments, H200), Abstain)

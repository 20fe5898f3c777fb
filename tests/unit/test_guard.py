"""The guard forecasts from a model's shape, grades failures and learns from logs."""

from autotune.domain.outcome import Evidence, OutOfMemory
from autotune.domain.settings import EngineSettings
from autotune.guard import MemoryGuard, memory_model
from autotune.score.scoring import score


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
DEFAULTS = {"max_model_len": 2048, "max_num_seqs": 8, "max_num_batched_tokens": 2048}


def guard(config=LLAMA):
    model = memory_model(config, kind="cpu", memory_bytes=16 * 2**30)
    return MemoryGuard(model, lambda v: EngineSettings("m", v), DEFAULTS)


def test_a_cache_too_small_for_one_request_is_forecast_as_short():
    forecast = guard()({"kv_cache_memory_bytes": 2**20})

    assert forecast.shortfall > 0
    assert guard().missing_share(EngineSettings("m", {"kv_cache_memory_bytes": 2**20}))


def test_a_large_cache_is_forecast_to_fit():
    forecast = guard()({"kv_cache_memory_bytes": 2**30})

    assert forecast.shortfall < 0
    assert not guard().missing_share(
        EngineSettings("m", {"kv_cache_memory_bytes": 2**30})
    )


def test_an_unknown_architecture_lets_everything_pass():
    unknown = guard({"architectures": ["NobodyKnows"], "model_type": "nobody"})

    assert unknown({"kv_cache_memory_bytes": 1}) is None
    unknown.learn(EngineSettings("m", {}), "any log", None)


def test_a_failure_that_says_no_amount_is_graded_by_the_prediction():
    evidence = Evidence("oom_kv_cache", "settings", "No available memory")

    mild = score(OutOfMemory("oom_kv_cache", evidence, predicted_fraction=0.1), None)
    grave = score(OutOfMemory("oom_kv_cache", evidence, predicted_fraction=0.9), None)

    assert mild.value < grave.value
    assert mild.constraints["memory"] < grave.constraints["memory"]

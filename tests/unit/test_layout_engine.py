"""What the installed vLLM makes of copies of a dense model."""

import pytest

from autotune.domain.layout import collapse, expand
from autotune.domain.settings import EngineSettings
from autotune.engine.arguments import engine_configuration
from autotune.engine.effective import effective_values
from autotune.models.tiny import make_tiny_glm4


pytestmark = [
    pytest.mark.engine,
    # vLLM imports parts of torch that torch is about to retire.
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]
HELD = {
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 26,
    "gpu_memory_utilization": 0.92,
    "max_model_len": 256,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    make_tiny_glm4(directory)
    return str(directory)


def test_two_copies_of_a_dense_model_live_inside_one_engine(tiny):
    arguments = HELD | expand({"layout": "tp1-pp1-dp2"})

    config = engine_configuration(EngineSettings(tiny, arguments))

    assert collapse(effective_values(config)) == {"layout": "tp1-pp1-dp2"}
    assert not config.parallel_config.data_parallel_external_lb


def test_a_dense_model_refuses_copies_balanced_from_outside(tiny):
    arguments = HELD | {"data_parallel_size": 2, "data_parallel_rank": 0}

    with pytest.raises(ValueError, match="do not support external data parallel"):
        engine_configuration(EngineSettings(tiny, arguments))

"""The baseline is what ``vllm serve`` would make of this machine."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import pytest

from autotune.domain.settings import EngineSettings
from autotune.engine.arguments import check_values
from autotune.engine.local import VllmEngine
from autotune.errors import InputError, StartFailed


pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("default")]


@contextmanager
def pretending_to_be_an_h200():
    """vLLM chooses its batch defaults as if on a card of 140 GiB."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform

    platform, choose = type(current_platform), EngineArgs.get_batch_defaults.__func__

    def on_a_gpu(cls, world_size):
        with ExitStack() as stack:
            for name, answer in (
                ("is_cpu", False),
                ("get_device_total_memory", 140 * 2**30),
                ("get_device_name", "NVIDIA H200"),
            ):
                fake = patch.object(platform, name, lambda *_, a=answer: a)
                stack.enter_context(fake)
            return choose(cls, world_size)

    with patch.object(EngineArgs, "get_batch_defaults", classmethod(on_a_gpu)):
        yield


def test_a_large_gpu_gets_the_servers_defaults(tiny):
    """Without the server's usage context these would be 2048 and 128."""
    engine = VllmEngine()

    with pretending_to_be_an_h200():
        effective = engine.resolve(EngineSettings(tiny, {"enforce_eager": True}, {}))

    assert effective["max_num_batched_tokens"] == 8192
    assert effective["max_num_seqs"] == 1024


def test_an_unknown_argument_is_refused_before_anything_starts():
    with pytest.raises(InputError, match=r"max_num_seq.*did you mean max_num_seqs"):
        check_values({"max_num_seq": 4}, where="--fix")


def test_an_unknown_nested_argument_is_refused():
    with pytest.raises(InputError, match=r"compilation_config\.cudagraph_mode"):
        check_values({"compilation_config.cudagraph_mod": "NONE"}, where="--fix")


def test_a_configuration_that_vllm_refuses_says_why(tiny):
    settings = EngineSettings(
        tiny, {"max_num_batched_tokens": 8, "max_num_seqs": 16}, {}
    )

    with pytest.raises(StartFailed, match="max_num_seqs"):
        VllmEngine().resolve(settings)

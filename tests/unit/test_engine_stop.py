"""What broke, or could break, on a real GPU, tried without one."""

import asyncio
import sys
from multiprocessing import resource_tracker
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from autotune.domain.request import PlannedRequest
from autotune.engine import local
from autotune.engine.counters import EngineCounters
from autotune.engine.local import RunningVllm
from autotune.engine.processes import descendants
from autotune.errors import EngineDied, RequestRefused


class DeadError(Exception):
    """The engine core is gone."""


class GenerateError(Exception):
    """One request failed in the front end."""


@pytest.fixture(autouse=True)
def vllm_exceptions(monkeypatch):
    """The names of vLLM that a running engine needs; vLLM itself loads slowly."""
    module = ModuleType("vllm.v1.engine.exceptions")
    module.EngineDeadError = DeadError
    module.EngineGenerateError = GenerateError
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(local, "_sampling", lambda output_tokens: output_tokens)


class Core:
    """An engine whose caches empty only after ``busy`` refusals."""

    vllm_config = SimpleNamespace()

    def __init__(self, *, busy=0, dies=None):
        self.busy, self.dies, self.asked = busy, dies, 0

    async def reset_prefix_cache(self):
        self.asked += 1
        if self.dies:
            raise self.dies
        return self.asked > self.busy

    async def generate(self, *_):
        raise self.dies
        yield  # pragma: no cover - makes this a generator


def running(core):
    return RunningVllm(core, EngineCounters(), {}, request_s=5.0)


def test_blocks_held_by_a_step_in_flight_are_waited_for(monkeypatch):
    monkeypatch.setattr(local, "RESET_PAUSE_S", 0.001)
    core = Core(busy=3)

    assert asyncio.run(running(core).reset_caches())
    assert core.asked == 4


def test_caches_that_never_empty_are_told_so(monkeypatch):
    monkeypatch.setattr(local, "RESET_PAUSE_S", 0.001)
    monkeypatch.setattr(local, "RESET_PATIENCE_S", 0.01)

    assert not asyncio.run(running(Core(busy=10**9)).reset_caches())


def test_an_engine_that_died_between_blocks_is_an_engine_failure():
    with pytest.raises(EngineDied, match="between blocks"):
        asyncio.run(running(Core(dies=DeadError("gone"))).reset_caches())


def request():
    return PlannedRequest("r", 0, 0.0, (1, 2), 4)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (DeadError("gone"), EngineDied),
        (GenerateError("odd"), RequestRefused),
        (ValueError("too long"), RequestRefused),
    ],
)
def test_errors_of_a_stream_are_told_apart(raised, expected):
    async def drain():
        async for _ in running(Core(dies=raised)).stream(request()):
            pass

    with pytest.raises(expected):
        asyncio.run(drain())


def test_pythons_resource_tracker_is_not_waited_for():
    """It lives as long as this process and ignores SIGTERM."""
    resource_tracker.ensure_running()
    tracker = resource_tracker._resource_tracker._pid

    below = {p.pid for p in psutil.Process().children()}

    assert tracker in below
    assert tracker not in descendants()

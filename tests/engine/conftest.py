"""Real vLLM on the CPU with tiny-glm4; every test here starts it."""

import os
from pathlib import Path

import pytest

from autotune.models.fetch import default_cache, fetch


os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """vLLM logs to the stream it finds; pytest's own would bypass our capture."""
    capture = pyfuncitem.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return (yield)


@pytest.fixture(scope="session")
def tiny():
    return str(fetch("tiny-glm4", cache=default_cache()))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty current directory, as a user has it."""
    monkeypatch.chdir(tmp_path)
    return Path(tmp_path)

"""Only one process works on a study; whoever is killed lets go of it."""

import os
import signal
import subprocess
import sys

import pytest

from autotune.errors import InputError, StoreUnavailable
from autotune.store.holding import held, lock_file


HOLDER = """
import sys, time
from autotune.store.holding import held
with held(sys.argv[1], "s"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture
def holder(url):
    """Another process that holds the study."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_study_that_another_process_holds_is_refused_with_its_pid(url, holder):
    said = rf"another process \({holder.pid}\)"

    with pytest.raises(InputError, match=said), held(url, "s"):
        pytest.fail("two at once")


def test_a_killed_holder_lets_go(url, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()

    with held(url, "s"):
        assert lock_file(url, "s").read_text() == f"{os.getpid()}\n"


def test_the_other_studies_of_a_file_are_free(url, holder):
    with held(url, "t"):
        pass


def test_it_is_free_again_after_the_block(url):
    for _ in range(2):
        with held(url, "s"):
            pass


def test_a_child_spawned_meanwhile_does_not_hold_on(url):
    with held(url, "s"):
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
        )

    with held(url, "s"):
        pass
    child.communicate(b"\n")


def test_in_a_database_on_a_server_nothing_is_locked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with held("postgresql://me@host/x", "s"), held("postgresql://me@host/x", "s"):
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    url = f"sqlite:///{tmp_path}/nowhere/s.db"

    with pytest.raises(StoreUnavailable, match="nowhere"), held(url, "s"):
        pytest.fail("held in no folder")

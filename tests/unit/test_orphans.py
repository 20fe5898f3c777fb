"""What a killed process started dies with it: forks, spawns, and their children."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest


FAMILY = """
    import multiprocessing, os, sys, threading, time
    from autotune.engine.orphans import arm_children

    def rest(methods, pids):
        pids.send(os.getpid())
        if methods:
            multiprocessing.get_context(methods[0]).Process(
                target=rest, args=(methods[1:], pids)
            ).start()
        time.sleep(60)

    if __name__ == "__main__":
        arm_children()
        methods = sys.argv[1:]
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context(methods[0]).Process(
            target=rest, args=(methods[1:], there)
        )
        {start}
        for _ in methods:
            print(here.recv(), flush=True)
        {then}
"""
ON_THE_MAIN_THREAD = "child.start()"
ON_ANOTHER_THREAD = (
    "t = threading.Thread(target=child.start); t.start(); t.join(); del t"
)


@pytest.fixture
def family(tmp_path):
    """Starts a process with the given line of descent; it and their pids."""
    started = []

    def begin(*methods, start=ON_THE_MAIN_THREAD, then="time.sleep(60)"):
        script = tmp_path / "family.py"
        script.write_text(textwrap.dedent(FAMILY).format(start=start, then=then))
        process = subprocess.Popen(
            [sys.executable, script, *methods], stdout=subprocess.PIPE, text=True
        )
        pids = [int(process.stdout.readline()) for _ in methods]
        started.append((process, pids))
        return process, pids

    yield begin
    for process, pids in started:
        for pid in (process.pid, *pids):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_within(pids, seconds):
    until = time.monotonic() + seconds
    while any(alive(p) for p in pids) and time.monotonic() < until:
        time.sleep(0.01)
    return [p for p in pids if alive(p)] == []


@pytest.mark.parametrize(
    "methods", [("fork", "fork"), ("fork", "spawn"), ("spawn", "fork")]
)
def test_children_and_grandchildren_of_a_killed_process_are_gone(family, methods):
    process, pids = family(*methods)
    assert all(alive(p) for p in pids)

    process.kill()

    assert gone_within(pids, seconds=5)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_made_by_a_thread_outlives_that_thread(family, method):
    """The kernel's signal follows threads, which may end long before the process."""
    _, (pid,) = family(method, start=ON_ANOTHER_THREAD)

    time.sleep(0.2)

    assert alive(pid)


def test_a_parent_that_is_gone_before_the_child_looks_is_noticed():
    code = "from autotune.engine.orphans import arm_spawned; arm_spawned(1 << 22)"

    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=20)

    assert done.returncode == 1

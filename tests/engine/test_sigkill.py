"""SIGKILL of the tuner: nothing of it is left, and the study goes on unharmed."""

import json
import os
import re
import selectors
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest


pytestmark = pytest.mark.engine

COMMAND = [sys.executable, "-m", "autotune"]
# Sixteen at once answer a block within a second or two, whatever else is proposed.
STUDY = ["--model", "tiny-glm4", "--study", "s", "--fix", "max_num_seqs=16"]
DATABASE = Path("studies/s.db-wal")
GONE_WITHIN_S = 5.0
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where it lies on Linux
TOLD = """
import optuna
study = optuna.load_study(study_name="s", storage="sqlite:///studies/s.db")
print([[t.number, t.value] for t in study.trials if t.state.name == "COMPLETE"])
"""


class Tuner:
    """The command in a session of its own, read line by line."""

    def __init__(self, trials):
        self.process = subprocess.Popen(
            [*COMMAND, *STUDY, "--trials", str(trials)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self.said = ""

    def read_until(self, pattern, seconds=120):
        """Wait until a line matches."""
        until = time.monotonic() + seconds
        for line in self._lines(until):
            self.said += line
            if re.search(pattern, line):
                return
        pytest.fail(f"never said {pattern!r}:\n{self.said}")

    def kill(self):
        """SIGKILL to it alone; the pids and shared memory that were its children's."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        segments = set()
        for process in below:
            segments |= shared_memory_of(process.pid)
        segments |= shared_memory_of(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        return {p.pid for p in below}, segments

    def _lines(self, until):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while time.monotonic() < until:
                if selector.select(timeout=1.0):
                    line = self.process.stdout.readline()
                    if not line:
                        return
                    yield line


def shared_memory_of(pid):
    """Files of /dev/shm that a process maps or holds open."""
    found = set()
    with suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text()
        found |= set(re.findall(SHARED_MEMORY + r"\S+", maps))
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(descriptor.readlink())
                if target.startswith(SHARED_MEMORY):
                    found.add(target)
    return found


def living(pids, session):
    """Of these pids, and of the session, those that still run."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            ours = process.pid in pids or os.getsid(process.pid) == session
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


def assert_nothing_is_left(tuner, pids, segments):
    until = time.monotonic() + GONE_WITHIN_S
    session = tuner.process.pid
    while living(pids, session) and time.monotonic() < until:
        time.sleep(0.05)
    left = living(pids, session)
    assert left == set(), [psutil.Process(p).cmdline() for p in left]
    assert [s for s in segments if Path(s).exists()] == []


def wait_for_a_write(seconds=60):
    """Return as soon as the database's log of writes has changed."""

    def stamp():
        with suppress(FileNotFoundError):
            status = DATABASE.stat()
            return status.st_mtime_ns, status.st_size
        return None

    before, until = stamp(), time.monotonic() + seconds
    while stamp() == before and time.monotonic() < until:
        time.sleep(0.0005)
    assert stamp() != before, "nothing was written"


def finished_trials():
    """Numbers of the finished trials, from our facts and from Optuna's."""
    listed = subprocess.run(
        [*COMMAND, "trials", "--study", "s", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            TOLD,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    ours = [
        [t["number"], t["score"]]
        for t in json.loads(listed.stdout)
        if t["number"] is not None
    ]
    return ours, json.loads(told.stdout)


MOMENTS = {
    "start-up of the tuner": lambda t: t.read_until("loading vLLM"),
    "import of vLLM": lambda t: (t.read_until("loading vLLM"), time.sleep(6)),
    "first write of a study": lambda _: wait_for_a_write(),
    "warm-up": lambda t: t.read_until("trial .*: warm-up"),
    "baseline under load": lambda t: t.read_until("baseline: measure"),
    "start of an engine": lambda t: (
        t.read_until("(baseline|trial .*): start"),
        time.sleep(0.8),
    ),
    "under load": lambda t: (
        t.read_until("trial .*: measure"),
        time.sleep(0.3),
    ),
    "while a trial is written": lambda t: (
        t.read_until("trial .*: measure"),
        wait_for_a_write(),
    ),
    "between trials": lambda t: t.read_until("trial .*: .*score"),
    "while it stops": lambda t: t.read_until(r"\S: stop"),
}


def kill_at(moment, trials):
    """One run killed at ``moment``; nothing of it may be left."""
    tuner = Tuner(trials)
    try:
        MOMENTS[moment](tuner)
    finally:
        left_behind = tuner.kill()
    assert_nothing_is_left(tuner, *left_behind)
    return left_behind


def test_a_killed_tuner_leaves_nothing_and_its_study_continues(tiny, workplace):
    pids, _ = kill_at("under load", trials=2)
    assert pids, "an engine was running"
    kill_at("start of an engine", trials=2)

    last = Tuner(trials=2)
    last.read_until("serve script")
    assert last.process.wait(timeout=60) == 0
    last.process.stdout.close()

    ours, optunas = finished_trials()
    assert len(ours) == 2
    assert ours == optunas
    assert len({number for number, _ in ours}) == 2

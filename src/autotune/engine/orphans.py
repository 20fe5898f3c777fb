"""A process in, and the promise that what it starts does not outlive it.

Killed outright, a tuner cannot stop its engine: without this the engine core keeps
the device, its shared memory and a full core of the processor. The kernel is asked,
in each child and before it does anything else, to kill it when its parent ends. The
children do the same for theirs, so that workers of an engine core go too.
"""

from __future__ import annotations

import ctypes
import multiprocessing.spawn
import os
import signal
import threading
from typing import Any


PR_SET_PDEATHSIG = 1
SPAWN_OPTION = "-c"

_original_command_line = multiprocessing.spawn.get_command_line
# The process whose children are armed, and whether its main thread forks.
_arming: list[int] = []
_forking_from_main: list[bool] = []


def arm_children() -> None:
    """From now on, children of this process's main thread die with it.

    Covers forks and interpreters that ``multiprocessing`` spawns. Children of other
    threads are left alone: the kernel's signal follows the *thread* that made the
    child, and such a thread may end long before the process does.
    """
    if not _arming:
        os.register_at_fork(before=_note_thread, after_in_child=_arm_fork)
        multiprocessing.spawn.get_command_line = _arming_command_line
    _arming[:] = [os.getpid()]


def arm_spawned(parent_pid: int) -> None:
    """Called first in a spawned interpreter: end with the parent, and so on down."""
    die_with_parent(parent_pid)
    arm_children()


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that made it ends.

    The parent may be gone before the call takes effect: then end at once.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def _note_thread() -> None:
    _forking_from_main[:] = [_in_main_thread()]


def _arm_fork() -> None:
    if _forking_from_main == [True]:
        die_with_parent(_arming[0])
    _arming[:] = [os.getpid()]


def _arming_command_line(**words: Any) -> list[str]:
    """The spawned interpreter's command line, with the arming before all else.

    A plug-in of vLLM would arm it only after seconds of imports.
    """
    command = _original_command_line(**words)
    if SPAWN_OPTION in command and _in_main_thread():
        place = command.index(SPAWN_OPTION) + 1
        command[place] = (
            f"from {__name__} import arm_spawned; arm_spawned({os.getpid()}); "
            f"{command[place]}"
        )
    return command


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

"""Every error this package raises on purpose.

AutotuneError
├── InputError             what the user gave cannot be used      (exit code 2)
│   └── StoreUnavailable   the storage URL cannot be opened
├── HostUnfit              the machine lacks something            (exit code 3)
│   └── EngineMissing      no vLLM, or one that does not import
├── RequestRefused         one request was answered with an error
└── EngineFailure          a launch did not come up, or died
    ├── StartFailed        before it was ready
    ├── EngineDied         while it served
    └── DeadlineExceeded   it took longer than allowed
"""

from __future__ import annotations


class AutotuneError(Exception):
    """Root of the tree; its text says what was wrong, where, and what to do."""

    exit_code = 1


class InputError(AutotuneError):
    """What the user gave cannot be used."""

    exit_code = 2


class HostUnfit(AutotuneError):
    """The machine lacks something; nothing is wrong with the request."""

    exit_code = 3


class EngineMissing(HostUnfit):
    """There is no vLLM to drive, or it does not import."""


class StoreUnavailable(InputError):
    """The storage URL cannot be opened."""


class RequestRefused(AutotuneError):
    """One request was answered with an error; the target itself lives."""


class EngineFailure(AutotuneError):
    """A launch did not come up, or died."""


class StartFailed(EngineFailure):
    """The engine was not ready; the cause is usually only in its log."""


class EngineDied(EngineFailure):
    """The engine stopped answering while it served."""


class DeadlineExceeded(EngineFailure):
    """A start, a request or a stop took longer than allowed."""

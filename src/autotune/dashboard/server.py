"""An application in, the same on a local port out."""

from __future__ import annotations

import errno
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from autotune.dashboard.files import Application
from autotune.errors import InputError


# Whoever reaches the page may change it: it is for this machine only.
HOST = "127.0.0.1"


class LocalServer(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own."""

    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    """Pages poll every few seconds; a line each would bury all else."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
        """Say nothing."""


def local_server(application: Application, *, port: int) -> LocalServer:
    """A server of ``application`` on ``port`` (0: any that is free), not yet serving.

    Raises:
        InputError: The port cannot be used.
    """
    try:
        server = LocalServer((HOST, port), _QuietHandler)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        reason = "is in use" if taken else f"cannot be used ({error})"
        raise InputError(
            f"--port {port} {reason}; give another, or 0 for any that is free"
        ) from error
    server.set_app(application)
    return server

"""A WSGI application and files by path in, an application that serves both out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


Application = Callable[..., Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file that is read, or made, when somebody asks for it.

    Attributes:
        media_type: As in the Content-Type header.
        read: Its content; an ``OSError`` means that it is gone.
    """

    media_type: str
    read: Callable[[], bytes]


def with_files(
    application: Application, files: Mapping[str, ServedFile]
) -> Application:
    """The application, with ``files`` at their paths before its own routes."""

    def serve(environment: Mapping[str, Any], start: Callable[..., Any]) -> Any:
        found = files.get(environment.get("PATH_INFO", ""))
        if found is None:
            return application(environment, start)
        try:
            content, status = found.read(), "200 OK"
        except OSError as error:
            content, status = f"gone: {error.strerror}\n".encode(), "404 Not Found"
        media_type = found.media_type if status == "200 OK" else "text/plain"
        # A log may hold anything; no browser shall take it for a page.
        headers = [
            ("Content-Type", media_type),
            ("Content-Length", str(len(content))),
            ("X-Content-Type-Options", "nosniff"),
            (
                "Content-Security-Policy",
                "default-src 'none'; style-src 'unsafe-inline'",
            ),
        ]
        start(status, headers)
        return [content]

    return serve

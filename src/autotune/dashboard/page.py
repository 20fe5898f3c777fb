"""A storage URL in, Optuna's dashboard as a WSGI application out, with notes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from autotune.errors import HostUnfit, InputError


class Page:
    """The dashboard over one database, and its own API called without a network.

    What is read and written goes through the dashboard's routes, so that nothing
    here depends on how it keeps things.
    """

    def __init__(self, url: str) -> None:
        """Open the dashboard over the database at ``url``.

        Raises:
            HostUnfit: optuna-dashboard is not installed.
        """
        try:
            from optuna_dashboard import wsgi
        except ImportError as error:
            raise HostUnfit(
                f"the dashboard is not installed ({error}); "
                "pip install 'vllm-autotune[dashboard]'"
            ) from error
        self.application = wsgi(url)

    def study_id(self, name: str) -> int:
        """The number by which the dashboard knows study ``name``.

        Raises:
            InputError: There is no such study.
        """
        for study in self._call("GET", "/api/studies")["study_summaries"]:
            if study["study_name"] == name:
                return int(study["study_id"])
        raise InputError(f"Optuna's part of this database has no study {name!r}")

    def study(self, study_id: int) -> dict[str, Any]:
        """The study as the dashboard's pages get it."""
        return self._call("GET", f"/api/studies/{study_id}")

    def write_notes(self, study_id: int, notes: Mapping[int, str]) -> int:
        """Note ``notes`` beside trials, by number; how many were written.

        A trial that has a note keeps it: somebody may have written it.
        """
        written = 0
        for trial in self.study(study_id)["trials"]:
            body = notes.get(trial["number"])
            if body is None or trial["note"]["version"] > 0:
                continue
            path = f"/api/studies/{study_id}/{trial['trial_id']}/note"
            self._call("PUT", path, {"body": body, "version": 1})
            written += 1
        return written

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One request to the application, answered in this process.

        Raises:
            RuntimeError: The dashboard refuses it.
        """
        content = json.dumps(body or {}).encode()
        environment = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "0",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0),
        }
        status = []
        parts = self.application(environment, lambda line, *_: status.append(line))
        text = b"".join(parts)
        if not status[0].startswith("2"):
            raise RuntimeError(f"{method} {path}: {status[0]}: {text[:200]!r}")
        return dict(json.loads(text)) if text else {}

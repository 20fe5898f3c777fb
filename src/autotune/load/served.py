"""An endpoint in, the names of the models it serves out."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from autotune.errors import HostUnfit
from autotune.load.http_target import parse_base_url


_WAIT_S = 10.0


def served_models(
    base_url: str, *, headers: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What ``/v1/models`` lists.

    Raises:
        InputError: ``base_url`` is no address.
        HostUnfit: Nothing there answers as an OpenAI server does.
    """
    root = parse_base_url(base_url)
    url = root.copy_with(path=root.path.rstrip("/") + "/v1/models")
    try:
        with httpx.Client(timeout=_WAIT_S, trust_env=False) as client:
            response = client.get(url, headers=dict(headers or {}))
            response.raise_for_status()
            return tuple(str(entry["id"]) for entry in response.json()["data"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise HostUnfit(
            f"endpoint {base_url}: no list of models: {error}. Is the server up, "
            "and is this its address?"
        ) from error

"""``autotune models``: aliases, and fetching those that need no hub."""

from __future__ import annotations

import typer

from autotune.models import KNOWN
from autotune.models.fetch import default_cache, fetch


models = typer.Typer(no_args_is_help=True)


@models.command("list")
def list_models() -> None:
    """List the aliases, what they stand for, and whether they are here."""
    for model in KNOWN:
        here = (default_cache() / model.alias / "config.json").is_file()
        state = "fetched" if here else {"hub": "from the hub"}.get(model.source, "-")
        print(f"{model.alias:16} {model.model_id:40} {model.parameters:22} {state}")


@models.command("fetch")
def fetch_model(alias: str = typer.Argument(help="smollm2-135m or tiny-glm4")) -> None:
    """Bring a model that needs no hub into the user's cache; once."""
    print(fetch(alias, cache=default_cache()))

"""``autotune models``: aliases, what is known of them, and fetching some."""

from __future__ import annotations

import typer

from autotune.errors import InputError
from autotune.models import KNOWN, RECIPES, KnownModel, known
from autotune.models.fetch import default_cache, fetch


models = typer.Typer()


@models.callback(invoke_without_command=True)
def models_root(context: typer.Context) -> None:
    """List known models, show what is known of one, fetch those without a hub."""
    if context.invoked_subcommand is None:
        list_models()


@models.command("list")
def list_models() -> None:
    """List the aliases, what they stand for, their recipes, whether they are here."""
    for model in KNOWN:
        recipes = ", ".join(model.recipes)
        print(
            f"{model.alias:32} {model.model_id:42} {model.parameters:22} "
            f"{_state(model):13} {recipes}".rstrip()
        )


@models.command("show")
def show_model(alias: str = typer.Argument(help="An alias from the list")) -> None:
    """Show what is known of one model, and the settings published for it."""
    model = known(alias)
    if model is None:
        raise InputError(f"unknown model {alias!r}; see: autotune models")
    for name, value in _facts(model).items():
        print(f"{name:14} {value}")
    for recipe in RECIPES:
        if recipe.name in model.recipes:
            kind = "lossy" if recipe.lossy else "lossless"
            print(f"\n{recipe.name} ({kind}): {recipe.note}")
            for argument, setting in recipe.arguments.items():
                print(f"    {argument}: {setting}")


@models.command("fetch")
def fetch_model(alias: str = typer.Argument(help="smollm2-135m or tiny-glm4")) -> None:
    """Bring a model that needs no hub into the user's cache; once."""
    print(fetch(alias, cache=default_cache()))


def _state(model: KnownModel) -> str:
    if (default_cache() / model.alias / "config.json").is_file():
        return "fetched"
    return "from the hub" if model.source == "hub" else "-"


def _facts(model: KnownModel) -> dict[str, str]:
    facts = {
        "model": model.model_id,
        "parameters": model.parameters,
        "license": model.license + (" (gated on the hub)" if model.gated else ""),
        "stop tokens": ", ".join(map(str, model.stop_token_ids)),
        "remote code": "needed: --fix trust_remote_code=true"
        if model.needs_remote_code
        else "not needed",
    }
    shape = model.shape
    if shape is not None:
        kind = "latent attention" if shape.latent else f"{shape.kv_heads} KV heads"
        experts = f", {shape.experts} experts" if shape.experts else ""
        facts["shape"] = (
            f"{shape.layers} layers, {shape.heads} heads, {kind}, "
            f"width {shape.hidden}, vocabulary {shape.vocabulary}{experts}"
        )
        facts["context"] = str(shape.context or "not known")
    return facts | ({"note": model.note} if model.note else {})

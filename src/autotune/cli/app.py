"""The command's tree: the root tunes; each subcommand has a file of its own."""

from __future__ import annotations

import typer

from autotune.cli.bench import bench
from autotune.cli.clean import clean
from autotune.cli.confirm import confirm
from autotune.cli.dashboard import dashboard
from autotune.cli.doctor import doctor
from autotune.cli.explain import explain
from autotune.cli.export import export
from autotune.cli.models import models
from autotune.cli.schema import schema
from autotune.cli.studies import studies
from autotune.cli.trials import trials
from autotune.cli.tune import tune
from autotune.cli.workload import workload


app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback(invoke_without_command=True)(tune)
app.command()(trials)
app.command()(confirm)
app.command()(export)
app.command()(bench)
app.command()(doctor)
app.command()(explain)
app.command()(workload)
app.command()(dashboard)
app.command()(clean)
app.command()(schema)
app.add_typer(models, name="models", help="Models known by an alias.")
app.add_typer(studies, name="studies", help="Studies kept here: list, rename, delete.")

"""The ``autotune`` command: one file per subcommand; alone prints and exits."""

from __future__ import annotations

import sys

from autotune.errors import AutotuneError


def main() -> None:
    """Run the command; errors of ours become one line and an exit code."""
    from autotune.cli.app import app

    try:
        app()
    except AutotuneError as error:
        sys.stderr.write(f"autotune: {error}\n")
        sys.exit(error.exit_code)

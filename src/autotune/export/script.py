"""A trial and its provenance in, a bash script that serves it out. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.domain.settings import EngineSettings, Value


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the settings come from, for the script's header.

    Attributes:
        lines: ``name: value`` facts, in order.
        served_name: The name under which the model answers.
        python: The interpreter the trials ran under; tried if PATH has no vLLM.
    """

    lines: Sequence[tuple[str, str]]
    served_name: str
    python: str


def flags(arguments: Mapping[str, Value]) -> list[tuple[str, ...]]:
    """Engine arguments as words of ``vllm serve``, one flag with its value each.

    What is None keeps vLLM's default and is left out.
    """
    given = {n: v for n, v in arguments.items() if v is not None}
    return [_flag(name, value) for name, value in given.items()]


def _flag(name: str, value: Value) -> tuple[str, ...]:
    top, dot, nested = name.partition(".")
    flag = top.replace("_", "-") + dot + nested
    if isinstance(value, bool) and not dot:
        return (f"--{flag}" if value else f"--no-{flag}",)
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    # A value that looks like a flag must be tied to its own.
    return (f"--{flag}={text}",) if text.startswith("-") else (f"--{flag}", text)


def render(settings: EngineSettings, provenance: Provenance) -> str:
    """The script; every value is quoted, nothing is taken from the caller's shell.

    ``HOST``, ``PORT`` and ``PYTHON`` may be set by whoever runs it; further
    arguments are passed on to the server.
    """
    header = "\n".join(
        f"#   {_one_line(f'{name}: {v}')}" for name, v in provenance.lines
    )
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in settings.environment.items()
    )
    listed = "".join(f"  {shlex.join(f)}\n" for f in flags(settings.arguments))
    return TEMPLATE.format(
        header=header,
        exports=exports,
        python=shlex.quote(provenance.python),
        model=shlex.quote(settings.model),
        served_name=shlex.quote(provenance.served_name),
        flags=listed,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


TEMPLATE = """\
#!/usr/bin/env bash
# Serves a vLLM configuration found by autotune.
#
{header}
#
# Usage: [HOST=127.0.0.1] [PORT=8000] [PYTHON=python3] bash THIS_FILE [vllm arguments]
set -euo pipefail

{exports}model={model}
host="${{HOST:-127.0.0.1}}"
port="${{PORT:-8000}}"

# Preflight: an interpreter with vLLM, the model's files, a free port.
has_vllm() {{
  "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("vllm") is None)' \\
    2>/dev/null
}}
python=""
for candidate in "${{PYTHON:-python3}}" {python}; do
  if has_vllm "$candidate"; then
    python="$candidate"
    break
  fi
done
if [[ -z "$python" ]]; then
  echo "no Python with vLLM found: activate its environment or set PYTHON" >&2
  exit 3
fi
if [[ "$model" == /* && ! -f "$model/config.json" ]]; then
  echo "the model is not at $model: fetch it or edit this script" >&2
  exit 3
fi
if (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; then
  echo "port $port on $host is taken: set PORT" >&2
  exit 3
fi

# vLLM's CPU build has no working "vllm" command; its server module is the same.
if "$python" -c 'import importlib.metadata as m; m.version("vllm")' 2>/dev/null; then
  server=("$python" -m vllm.entrypoints.cli.main serve "$model")
else
  server=("$python" -m vllm.entrypoints.openai.api_server --model "$model")
fi
arguments=(
  --host "$host"
  --port "$port"
  --served-model-name {served_name}
{flags})
exec "${{server[@]}}" "${{arguments[@]}}" "$@"
"""

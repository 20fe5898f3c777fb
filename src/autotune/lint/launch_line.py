"""A ``vllm serve`` line in, engine arguments and environment out. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain.settings import Value
from autotune.errors import InputError


# They decide who may ask and where, not how the engine runs.
SERVER_OPTIONS = frozenset(
    {
        "allowed_headers",
        "allowed_methods",
        "allowed_origins",
        "allow_credentials",
        "api_key",
        "chat_template",
        "disable_fastapi_docs",
        "disable_log_requests",
        "disable_log_stats",
        "disable_uvicorn_access_log",
        "enable_auto_tool_choice",
        "enable_log_requests",
        "host",
        "port",
        "response_role",
        "root_path",
        "served_model_name",
        "ssl_certfile",
        "ssl_keyfile",
        "tool_call_parser",
        "uvicorn_log_level",
    }
)
SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
}
# NONE in capitals is an enumeration's value.
_WORDS = {"None": None, "none": None, "null": None} | {
    written: word == "true"
    for word in ("true", "false")
    for written in (word, word.capitalize(), word.upper())
}
_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_START = ("vllm", "serve")
_MODULES = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.launchers.api_server.entry",
)


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """What a launch line asks for.

    Attributes:
        model: As written; None where the line names none.
        arguments: Engine arguments by field name, nested ones dotted.
        environment: Variables set in front of the command.
    """

    model: str | None
    arguments: Mapping[str, Value]
    environment: Mapping[str, str]


def parse_launch_line(line: str) -> LaunchLine:
    """Read ``line`` as a shell would, and as vLLM's command line is written.

    Raises:
        InputError: It is no launch of vLLM's server, or its quotes are open.
    """
    try:
        words = shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise InputError(f"--baseline {line!r}: {error}") from error
    environment, rest = _variables(words)
    options = _after_command(rest, line)
    model, arguments = None, dict[str, Value]()
    for name, value in _options(options):
        if name is None or name == "model":
            model = str(value)
        elif name not in SERVER_OPTIONS:
            arguments |= _flat(name, value)
    return LaunchLine(model, arguments, environment)


def _variables(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Assignments in front of the command, and the command."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", rest[0], re.DOTALL)):
        found[match[1]] = match[2]
        rest.pop(0)
    return found, rest


def _after_command(words: list[str], line: str) -> list[str]:
    program = words[0].rpartition("/")[2] if words else ""
    if (program, *words[1:2]) == _START:
        return words[2:]
    if program.startswith("python") and words[1:2] == ["-m"] and words[2:]:
        rest = words[3:]
        if words[2] in _MODULES:
            return rest[1:] if rest[:1] == ["serve"] else rest
    raise InputError(f"--baseline {line!r}: write it as vllm serve MODEL --option …")


def _options(words: Sequence[str]) -> Iterator[tuple[str | None, Any]]:
    """Options with their values; a word that belongs to none has no name."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            yield None, word
            continue
        flag, equals, text = word.partition("=")
        negated, name = _name(flag)
        if equals:
            yield name, _value(text)
        elif negated or not rest or _is_flag(rest[0]):
            yield name, not negated
        else:
            yield name, _value(rest.pop(0))


def _name(flag: str) -> tuple[bool, str]:
    """Whether a flag is negated, and the field it sets; dots are kept."""
    if flag in SHORT:
        return False, SHORT[flag]
    top, dot, nested = flag.lstrip("-").partition(".")
    negated = top.startswith("no-")
    field = top.removeprefix("no-").replace("-", "_")
    return negated, field + dot + nested.replace("-", "_")


def _is_flag(word: str) -> bool:
    return word.startswith("-") and re.fullmatch(r"-?\d.*", word) is None


def _value(text: str) -> Any:
    """The typed value of a word: number, truth, JSON object, or the word itself."""
    if text in _WORDS:
        return _WORDS[text]
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG])", text):
        return int(float(match[1]) * _SUFFIXES[match[2]])
    for read in (int, float, json.loads):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _flat(name: str, value: Any) -> dict[str, Value]:
    """Nested values by dotted name; a list stays the JSON it was."""
    if isinstance(value, dict):
        flat: dict[str, Value] = {}
        for key, part in value.items():
            flat |= _flat(f"{name}.{key}", part)
        return flat
    return {name: json.dumps(value) if isinstance(value, list) else value}

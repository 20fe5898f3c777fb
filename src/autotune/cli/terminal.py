"""The terminal as it was before any capture; the only way to print while trials run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console

from autotune.engine.capture import duplicate_terminal


WIDTH_WITHOUT_TERMINAL = 160


@dataclass
class Terminal:
    """A console on the real terminal, and a plain progress line per phase."""

    out: TextIO
    console: Console
    quiet: bool = False
    _started_s: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """One line, marked up by rich."""
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True)

    def phase(self, number: int | None, phase: str) -> None:
        """One progress line."""
        name = "baseline" if number in (None, 0) else f"trial {number}"
        elapsed = time.monotonic() - self._started_s
        self.say(f"[dim]{elapsed:6.1f} s[/dim]  {name}: {phase.replace('_', '-')}")


def open_terminal(*, quiet: bool = False) -> Terminal:
    """Duplicate the terminal; call before the first capture."""
    out, _ = duplicate_terminal()
    width = None if out.isatty() else WIDTH_WITHOUT_TERMINAL
    return Terminal(out, Console(file=out, width=width), quiet)

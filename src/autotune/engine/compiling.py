"""What the engine wrote to its log since the last look in, kernels it compiled out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


# vLLM watches for kernels compiled or tuned after its own warm-up, and says so once
# for each kernel.
_COMPILED = re.compile(
    r"during inference: .*latency spike|JIT compilation during inference"
    r"|Triton autotuning for function .* finished"
)


@dataclass(slots=True)
class LogTail:
    """What was appended to a log since the last ``read``.

    Attributes:
        path: The log; it may not exist (yet).
        offset_bytes: Where the next ``read`` begins.
    """

    path: Path
    offset_bytes: int = 0

    def read(self) -> str:
        """New text; empty where there is none."""
        if not self.path.is_file():
            return ""
        with self.path.open("rb") as log:
            log.seek(self.offset_bytes)
            new = log.read()
        self.offset_bytes += len(new)
        return new.decode(errors="replace")


def compiled_line(log_text: str) -> str | None:
    """The first line that says a kernel was compiled while requests were served."""
    lines = (line.strip() for line in log_text.splitlines())
    return next((line for line in lines if _COMPILED.search(line)), None)

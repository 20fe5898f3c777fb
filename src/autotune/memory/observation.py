"""The log of one start in, the amounts of memory it states out."""

from __future__ import annotations

import re
from dataclasses import dataclass


_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_AMOUNTS = {
    "weights_bytes": (
        r"Model loading took (?P<n>[\d.]+) (?P<u>[KMG]iB)",
        r"model weights take (?P<n>[\d.]+) ?(?P<u>[KMG]iB)",
    ),
    "kv_bytes": (
        r"Available KV cache memory: (?P<n>-?[\d.]+) (?P<u>[KMG]iB)",
        r"reserved (?P<n>[\d.]+) (?P<u>[KMG]iB) memory for KV Cache",
        r"available KV cache memory \((?P<n>-?[\d.]+) (?P<u>[KMG]iB)\)",
    ),
    "graphs_bytes": (
        r"Graph capturing finished in .*? took (?P<n>-?[\d.]+) (?P<u>[KMG]iB)",
    ),
    "estimate_bytes": (r"Estimated CUDA graph memory: (?P<n>[\d.]+) (?P<u>[KMG]iB)",),
    "device_bytes": (
        r"has a total capacity of (?P<n>[\d.]+) (?P<u>[KMG]iB)",
        r"Free memory on device \S+ \([\d.]+/(?P<n>[\d.]+) (?P<u>[KMG]iB)\)",
    ),
    "kv_needed_bytes": (r"\((?P<n>[\d.]+) (?P<u>[KMG]iB) KV cache is needed",),
}
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")


@dataclass(frozen=True, slots=True)
class Observation:
    """What one start said; None where its log did not.

    Attributes:
        weights_bytes: Memory of the loaded model.
        kv_bytes: Memory left for the KV cache; negative when there was none.
        kv_tokens: Tokens the KV cache holds.
        graphs_bytes: What graph capture took.
        estimate_bytes: What the engine set aside for it before.
        device_bytes: Memory of the whole device.
        kv_needed_bytes: What one full-length request needs.
        used_bytes: Memory in use on the device once the engine serves, as the
            driver counts it; not in the log, the caller may add it.
    """

    weights_bytes: int | None = None
    kv_bytes: int | None = None
    kv_tokens: int | None = None
    graphs_bytes: int | None = None
    estimate_bytes: int | None = None
    device_bytes: int | None = None
    kv_needed_bytes: int | None = None
    used_bytes: int | None = None


def read_observation(log: str, *, used_bytes: int | None = None) -> Observation:
    """The amounts stated in ``log``; the last one where a line repeats."""
    amounts = {name: _last_amount(log, texts) for name, texts in _AMOUNTS.items()}
    tokens = _KV_TOKENS.findall(log)
    return Observation(
        kv_tokens=int(tokens[-1].replace(",", "")) if tokens else None,
        used_bytes=used_bytes,
        **amounts,
    )


def _last_amount(log: str, patterns: tuple[str, ...]) -> int | None:
    for pattern in patterns:
        matches = list(re.finditer(pattern, log))
        if matches:
            last = matches[-1]
            return round(float(last["n"]) * _UNITS[last["u"]])
    return None

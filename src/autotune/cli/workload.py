"""``autotune workload``: what a file of recorded requests is like."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from autotune.errors import InputError
from autotune.load.described import (
    Arriving,
    CacheNeed,
    Description,
    Spread,
    cache_need,
    describe,
)
from autotune.load.sampling import Sample, choose_sample, sampled
from autotune.load.traces import Oddities
from autotune.load.traces.files import Trace, open_trace
from autotune.load.traces.own import line_of
from autotune.memory import Abstain, Device, read_shape
from autotune.memory.cache import read_layout
from autotune.memory.launch import read_launch
from autotune.models import locate
from autotune.models.fetch import default_cache


NARROWEST, WIDEST = 72, 100
GIB = 2**30
# The kind of device changes blocks and batches, not what a token needs.
_DEVICE = Device("cuda", 80 * GIB)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"
_PLAIN_LEVELS = " .:-=+*#@"
_ROWS = 12


def workload(
    file: Annotated[Path, typer.Argument(help="Recorded requests; gzip is fine.")],
    *,
    sample: Annotated[
        int | None, typer.Option(help="Write a sample of so many requests.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the sample goes.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Whose KV memory the requests would need.")
    ] = None,
    kv_bytes_per_token: Annotated[
        int | None, typer.Option(help="The same, for a model that is not here.")
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="azure, burstgpt, mooncake, sharegpt or own."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which sample is drawn.")] = 0,
) -> None:
    """Describe recorded requests: lengths, arrivals, sharing, memory, oddities."""
    if (sample is None) != (output is None):
        raise InputError("--sample and -o go together: how many requests, and where")
    if output is not None and output.exists() and output.samefile(file):
        raise InputError(f"-o {output} is the file that is read; name another")
    need = _request_bytes(model, kv_bytes_per_token)
    trace = open_trace(file, format_name=file_format)
    description = describe(trace)
    console = Console(soft_wrap=True, markup=False, highlight=False, emoji=False)
    width = min(max(console.width, NARROWEST), WIDEST)
    for line in picture(trace, description, width=width, plain=_plain(console)):
        console.print(line)
    if need is not None:
        for line in _memory(description, *need):
            console.print(line)
    if sample is not None and output is not None:
        chosen = choose_sample(trace, description, count=sample, seed=seed)
        _write(trace, chosen, output)
        for line in _sample(chosen, output):
            console.print(line)


def picture(
    trace: Trace, description: Description, *, width: int, plain: bool = False
) -> Iterator[str]:
    """The description as lines of at most ``width`` columns, the path apart."""
    yield f"{trace.path}: {trace.format.name} format"
    yield ""
    yield f"requests   {description.requests:,}"
    if description.shared_share is not None:
        yield f"sharing    {description.shared_share:.1%} of prompt tokens begin an"
        yield "           earlier prompt too: what a large prefix cache could answer"
    yield ""
    columns = ("mean", "median", "p95", "p99")
    yield f"{'tokens':10}{''.join(f'{c:>10}' for c in columns)}{'longest':>12}"
    named = (
        ("prompt", description.prompts),
        ("output", description.outputs),
        ("together", description.contexts),
    )
    for name, spread in named:
        yield _row(name, spread)
    for name, spread in named[:2]:
        yield ""
        yield f"{name} tokens"
        yield from _bars(spread, width=width, plain=plain)
    yield ""
    yield from _arrivals(description.arriving, width=width, plain=plain)
    yield from _oddities(description.odd)


def _row(name: str, spread: Spread) -> str:
    values = [round(spread.mean), *map(spread.quantile, (0.5, 0.95, 0.99))]
    cells = "".join(f"{value:>10,}" for value in values)
    return f"{name:10}{cells}{spread.counts[-1][0]:>12,}"


def _bars(spread: Spread, *, width: int, plain: bool) -> Iterator[str]:
    """One bar for each range between powers of two; rare ends are put together."""
    octaves: Counter[int] = Counter()
    for value, count in spread.counts:
        octaves[max(value.bit_length(), 1)] += count
    first = max(min(octaves), max(octaves) - _ROWS + 1)
    shares = Counter[int]()
    for octave, count in octaves.items():
        shares[max(octave, first)] += count
    tallest = max(shares.values())
    room = width - 34
    for octave in range(first, max(shares) + 1):
        count = shares[octave]
        low = 1 if octave == first == min(octaves) else 2 ** (octave - 1)
        label = f"{'up to' if octave == first > min(octaves) else f'{low:,} -':>11}"
        bar = _bar(count / tallest, room, plain=plain)
        share = count / spread.size
        yield f"{label}{2**octave - 1:>12,} {bar:{room}} {share:>7.1%}".rstrip()


def _bar(share: float, room: int, *, plain: bool) -> str:
    """A bar over ``share`` of ``room``; anything at all shows."""
    if plain:
        return "#" * max(round(share * room), 1 if share else 0)
    eighths = max(round(share * room * 8), 1 if share else 0)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _arrivals(came: Arriving | None, *, width: int, plain: bool) -> Iterator[str]:
    if came is None:
        yield "arrivals   the file has no times"
        return
    yield f"arrivals   {came.rate_rps:,.3g} per second over {_time(came.duration_s)}"
    yield (
        f"           gaps vary {came.gap_cv:.2f} times their mean "
        "(Poisson: 1; more: bursts)"
    )
    yield (
        f"           counts per {_time(came.window_s)} vary {came.dispersion:.2f} "
        "times their mean (Poisson: 1)"
    )
    columns = width - 11
    heights = _heights(came, columns)
    levels = _PLAIN_LEVELS if plain else _LEVELS
    top = len(levels) - 1
    tallest = max(heights)
    drawn = (levels[-(-h * top // tallest)] for h in heights)
    yield "           " + "".join(drawn).rstrip()
    yield f"           {'start':{columns - 3}}end"


def _heights(came: Arriving, columns: int) -> list[int]:
    """Requests in each of ``columns`` equal parts of the time."""
    first, last = min(came.counts), max(came.counts)
    heights = [0] * columns
    for window, count in came.counts.items():
        heights[(window - first) * columns // (last - first + 1)] += count
    return heights


def _oddities(odd: Oddities) -> Iterator[str]:
    yield ""
    if not odd.skipped and not odd.noted:
        yield "odd rows   none"
    for name, counts in (("skipped", odd.skipped), ("noted", odd.noted)):
        for reason, count in counts.most_common():
            row = odd.first_rows.get(reason)
            first = "" if row is None else f" (first: row {row:,})"
            yield f"{name:10} {count:,} x {reason}{first}"


def _time(duration_s: float) -> str:
    for size_s, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if duration_s >= 2 * size_s:
            return f"{duration_s / size_s:.1f} {unit}"
    return f"{duration_s:.3g} s"


def _plain(console: Console) -> bool:
    try:
        _EIGHTHS.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


Need = tuple[str, Callable[[int], int], int | None]


def _request_bytes(model: str | None, per_token: int | None) -> Need | None:
    """Whose memory, bytes for a length, and the longest context if it is known.

    Raises:
        InputError: The model is not here, or its memory is not known.
    """
    if per_token is not None:
        if per_token < 1:
            raise InputError(f"--kv-bytes-per-token {per_token}: write 1 or more")
        return f"{per_token:,} bytes per token", per_token.__mul__, None
    if model is None:
        return None
    shape = read_shape(_config(model))
    launch = shape if isinstance(shape, Abstain) else read_launch(shape, {}, _DEVICE)
    if isinstance(shape, Abstain) or isinstance(launch, Abstain):
        raise InputError(
            f"--model {model}: {_reason(shape, launch)}; "
            "give --kv-bytes-per-token instead"
        )
    layout = read_layout(shape, launch)
    return model, layout.request_bytes, shape.max_positions


def _reason(*answers: object) -> str:
    return next(a.reason for a in answers if isinstance(a, Abstain))


def _config(model: str) -> Mapping[str, object]:
    path = Path(locate(model, cache=default_cache())) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"--model {model}: its config.json is not here; "
            "give the model's directory, or --kv-bytes-per-token"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a JSON object")
    return config


def _memory(
    description: Description,
    name: str,
    request_bytes: Callable[[int], int],
    max_positions: int | None,
) -> Iterator[str]:
    need = cache_need(description, request_bytes=request_bytes)
    yield ""
    yield f"KV memory for {name}"
    yield from _needs(need)
    if max_positions is not None:
        longer = sum(n for v, n in description.contexts.counts if v > max_positions)
        yield (
            f"           {longer:,} requests exceed its context of "
            f"{max_positions:,} tokens"
        )


def _needs(need: CacheNeed) -> Iterator[str]:
    rows = (
        ("mean", need.mean_bytes),
        ("median", need.median_bytes),
        ("p95", need.p95_bytes),
        ("longest", need.longest_bytes),
    )
    for name, size_bytes in rows:
        yield f"{name:>9}  {_size(size_bytes)} per request"
    if need.per_second_bytes is not None:
        yield (
            f"   in all  {_size(need.per_second_bytes)} "
            "for every second a request stays, at the mean rate"
        )


def _size(size_bytes: float) -> str:
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:,.2f} GiB"
    return f"{size_bytes / 2**20:,.2f} MiB"


def _write(trace: Trace, sample: Sample, output: Path) -> None:
    """The sample appears whole or not at all.

    Raises:
        InputError: It cannot be written there.
    """
    unfinished = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.writelines(f"{line_of(s)}\n" for s in sampled(trace, sample))
        unfinished.replace(output)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _sample(sample: Sample, output: Path) -> Iterator[str]:
    away = sample.distance
    runs = len(sample.runs)
    yield ""
    yield f"{output}: {sample.requests:,} requests in {runs} runs, no text"
    yield (
        f"distance   prompts {away.prompts:.3f}, outputs {away.outputs:.3f}, "
        f"gaps {away.gaps:.3f} (KS)"
    )
    yield f"           burstiness off by {away.burstiness:.1%}"

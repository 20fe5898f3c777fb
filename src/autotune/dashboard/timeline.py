"""A level's requests in, a picture of when each waited and answered out (SVG)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from autotune.domain.timing import Block, LevelResult, RequestTiming


WIDTH, LEFT, TOP, ROW, GAP = 800, 10, 24, 6, 40
# More rows than anybody tells apart: of longer blocks the first ones are drawn.
MOST_ROWS = 200
STYLE = (
    "text{font:12px sans-serif;fill:#333}"
    ".wait{stroke:#e0a030}.answer{stroke:#3070c0}"
    "line{stroke-width:4}svg{background:#fff}"
)


def timeline(levels: Sequence[LevelResult]) -> str:
    """One band per block: a line per request, from its scheduled send to its end.

    The first part, to the first token, is TTFT; the rest is the answer.
    """
    parts, top = [], 0
    for level in levels:
        for block in level.blocks:
            drawn, height = _band(level, block, top)
            parts.append(drawn)
            top += height
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}">'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _band(level: LevelResult, block: Block, top: int) -> tuple[str, int]:
    timings = sorted(block.timings, key=lambda t: t.scheduled_s)[:MOST_ROWS]
    last_s = max((t.last_token_s for t in timings), default=0.0)
    scale = (WIDTH - 2 * LEFT) / last_s if last_s > 0 else 0.0
    title = (
        f"{level.workload} at {level.level}, block {block.index}: {last_s:.2f} s; "
        "until the first token, then the answer"
    )
    if len(block.timings) > MOST_ROWS:
        title += f"; the first {MOST_ROWS} of {len(block.timings)} requests"
    rows = [
        _row(timing, scale, top + TOP + index * ROW)
        for index, timing in enumerate(timings)
    ]
    text = f'<text x="{LEFT}" y="{top + 14}">{escape(title)}</text>'
    return "\n".join([text, *rows]), TOP + len(timings) * ROW + GAP


def _row(timing: RequestTiming, scale: float, y: int) -> str:
    def stroke(kind: str, start_s: float, end_s: float) -> str:
        x1, x2 = LEFT + start_s * scale, LEFT + end_s * scale
        return f'<line class="{kind}" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y}" y2="{y}"/>'

    return stroke("wait", timing.scheduled_s, timing.first_token_s) + stroke(
        "answer", timing.first_token_s, timing.last_token_s
    )

"""Lines over a common axis, drawn as an SVG that follows the reader's light or dark setting."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tools.curves import COLORS, GROUNDS

WIDTH, HEIGHT, MARGIN = 640, 360, 60  # pixels
NUM_TICKS = 5
NAME_HEIGHT = 16  # pixels between the names of two lines

Floats = npt.NDArray[np.float64]


class Line(NamedTuple):
    """Values `y` at `x`, each float64[points]; a dashed one lets a line below it be seen."""

    name: str
    x: Floats
    y: Floats
    dashed: bool = False


def write_lines(path: Path, lines: Sequence[Line], x_label: str, y_label: str) -> None:
    """Draw all lines into one frame; both axes begin at 0 and end at a round number."""
    right = round_up(max(float(line.x.max()) for line in lines))
    top = round_up(max(float(line.y.max()) for line in lines))

    def point(x: float, y: float) -> tuple[float, float]:
        across = MARGIN + x / right * (WIDTH - 2 * MARGIN)
        return across, HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN)

    parts = [style(), f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>']
    parts.append(f'<path class="ink line" d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}"/>')
    for tick in range(NUM_TICKS + 1):
        x, y = right * tick / NUM_TICKS, top * tick / NUM_TICKS
        parts.append(text(point(x, 0)[0], HEIGHT - MARGIN + 18, f"{x:,g}", anchor="middle"))
        parts.append(text(MARGIN - 8, point(0, y)[1] + 4, f"{y:,g}", anchor="end"))
    parts.append(text(WIDTH - MARGIN, HEIGHT - MARGIN + 40, x_label, anchor="end"))
    parts.append(text(MARGIN / 2, MARGIN - 24, y_label))
    named_at: list[float] = []  # heights
    for index, line in enumerate(lines):
        color = f"c{index % len(COLORS)}"
        points = " ".join("{:.1f},{:.1f}".format(*point(x, y)) for x, y in zip(line.x, line.y, strict=True))
        dashes = ' stroke-dasharray="6 6"' if line.dashed else ""
        parts.append(f'<polyline class="{color} line"{dashes} points="{points}"/>')
        height = point(0, float(line.y[-1]))[1] - 8
        while any(abs(height - other) < NAME_HEIGHT for other in named_at):
            height -= NAME_HEIGHT
        named_at.append(height)
        parts.append(text(WIDTH - MARGIN, height, line.name, color, "end"))
    body = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def round_up(value: float) -> float:
    """The next number of one digit, or one and a half.

    >>> round_up(1234), round_up(37), round_up(1000)
    (1500.0, 40.0, 1000.0)
    """
    unit = 10.0 ** np.floor(np.log10(value)) if value > 0 else 1.0
    return float(next(unit * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if unit * step >= value))


def style() -> str:
    """Classes: `c0`... are the colours, `ink` is axes and words, `line` is drawn and not filled."""
    themes = []
    for dark, (ground, ink) in enumerate(GROUNDS):
        rules = [f".ground{{fill:{ground}}}", f".ink{{fill:{ink};stroke:{ink}}}"]
        rules += [f".c{number}{{fill:{pair[dark]};stroke:{pair[dark]}}}" for number, pair in enumerate(COLORS)]
        themes.append("".join(rules))
    ending = "svg text[class]{stroke:none}svg .line[class]{fill:none;stroke-width:2}"  # beats a single class
    return f"<style>{themes[0]}@media (prefers-color-scheme:dark){{{themes[1]}}}{ending}</style>"


def text(x: float, y: float, words: str, color: str = "ink", anchor: str = "start") -> str:
    """Words at a place."""
    return f'<text class="{color}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'

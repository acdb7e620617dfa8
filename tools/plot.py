"""Lines over a common axis, and dots measured beside them, drawn as an SVG on its own ground, for light and dark
readers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT, MARGIN = 640, 360, 60  # pixels
NUM_TICKS = 5
NAME_HEIGHT = 16  # pixels between the names of two lines
COLORS = (  # on light ground, on dark
    ("#1b6ca8", "#6cb6ff"),
    ("#c0392b", "#ff8a7a"),
    ("#1e8449", "#57c785"),
    ("#7d3c98", "#d2a8ff"),
    ("#9a6700", "#e3b341"),
)
GROUNDS = (("#ffffff", "#1f2328"), ("#0d1117", "#e6edf3"))  # ground and ink

Floats = npt.NDArray[np.float64]


class Line(NamedTuple):
    """Values `y` at `x`, each float64[points]; a dashed one lets a line below it be seen.

    `measured` are dots beside a line of theory, each with one standard `error`.
    """

    name: str
    x: Floats
    y: Floats
    dashed: bool = False
    measured: Floats | None = None
    error: Floats | None = None


def write_lines(
    path: Path,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    left: float = 0.0,
    mark: tuple[float, str] | None = None,
) -> None:
    """Draw all lines into one frame, from `left` and 0 to round numbers, with a named vertical line at `mark`."""
    right = round_up(max(float(line.x.max()) for line in lines))
    top = round_up(max(float(line.y.max()) for line in lines))

    def point(x: float, y: float) -> tuple[float, float]:
        across = MARGIN + (x - left) / (right - left) * (WIDTH - 2 * MARGIN)
        return across, HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN)

    parts = [style(), f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>']
    parts.append(f'<path class="ink line" d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}"/>')
    for tick in range(NUM_TICKS + 1):
        x, y = left + (right - left) * tick / NUM_TICKS, top * tick / NUM_TICKS
        parts.append(text(point(x, 0)[0], HEIGHT - MARGIN + 18, f"{x:,g}", anchor="middle"))
        parts.append(text(MARGIN - 8, point(0, y)[1] + 4, f"{y:,g}", anchor="end"))
    parts.append(text(WIDTH - MARGIN, HEIGHT - MARGIN + 40, x_label, anchor="end"))
    parts.append(text(MARGIN / 2, MARGIN - 24, y_label))
    if mark:
        across = point(mark[0], 0)[0]
        parts.append(f'<path class="ink line" stroke-dasharray="4 4" d="M{across:.1f},{MARGIN} V{HEIGHT - MARGIN}"/>')
        parts.append(text(across, MARGIN - 6, mark[1], anchor="middle"))
    named_at: list[float] = []  # heights
    for index, line in enumerate(lines):
        color = f"c{index % len(COLORS)}"
        points = " ".join("{:.1f},{:.1f}".format(*point(x, y)) for x, y in zip(line.x, line.y, strict=True))
        dashes = ' stroke-dasharray="6 6"' if line.dashed else ""
        parts.append(f'<polyline class="{color} line"{dashes} points="{points}"/>')
        if line.measured is not None and line.error is not None:  # such lines end together: named at their beginning
            for x, y, error in zip(line.x, line.measured, line.error, strict=True):
                (across, up), low, high = point(x, y), *(point(x, y + sign * error)[1] for sign in (-1, 1))
                parts.append(f'<path class="{color} line" d="M{across:.1f},{low:.1f} V{high:.1f}"/>')
                parts.append(f'<circle class="{color}" cx="{across:.1f}" cy="{up:.1f}" r="3"/>')
            parts.append(text(MARGIN + 10, MARGIN + NAME_HEIGHT * (index + 1), line.name, color))
            continue
        height = point(0, float(line.y[-1]))[1] - 8
        while any(abs(height - other) < NAME_HEIGHT for other in named_at):
            height -= NAME_HEIGHT
        named_at.append(height)
        parts.append(text(WIDTH - MARGIN, height, line.name, color, "end"))
    path.write_text(svg(WIDTH, HEIGHT, parts))


def svg(width: int, height: int, parts: Sequence[str], font_size: int = 12) -> str:
    """The file of a drawing."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="{font_size}">'
    return "\n".join([start, *parts, "</svg>\n"])


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

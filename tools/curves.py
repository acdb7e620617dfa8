"""Measured shares against a theory's, drawn as an SVG: lines are theory, dots with their error are measured.

The drawing brings its own ground and follows the reader's light or dark setting, so it is legible on either.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT, MARGIN = 640, 420, 50  # pixels
LEGEND_HEIGHT = 18
COLORS = (  # on light ground, on dark
    ("#1b6ca8", "#6cb6ff"),
    ("#c0392b", "#ff8a7a"),
    ("#1e8449", "#57c785"),
    ("#7d3c98", "#d2a8ff"),
    ("#9a6700", "#e3b341"),
)
GROUNDS = (("#ffffff", "#1f2328"), ("#0d1117", "#e6edf3"))  # ground and ink
TICKS = 5

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Shares in 0..1 by `x`, each float64[points]; `error` is one standard error of `measured`."""

    name: str
    x: Floats
    measured: Floats
    theory: Floats
    error: Floats


def write_svg(
    path: Path, curves: Sequence[Curve], x_label: str, y_label: str, mark: tuple[float, str] | None = None
) -> None:
    """Draw all curves into one frame; the x axis spans their range in tenths, with a named vertical line at `mark`."""
    low = float(np.floor(min(curve.x.min() for curve in curves) * 10 + 1e-9)) / 10
    high = float(np.ceil(max(curve.x.max() for curve in curves) * 10 - 1e-9)) / 10

    def point(x: float, y: float) -> str:
        across = MARGIN + (x - low) / ((high - low) or 1) * (WIDTH - 2 * MARGIN)
        return f"{across:.1f},{HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN):.1f}"

    parts = [_style(), _axes(low, high, x_label, y_label)]
    if mark:
        a, b = point(mark[0], 0), point(mark[0], 1)
        parts.append(f'<path class="ink line" stroke-dasharray="4 4" d="M{a} L{b}"/>')
        parts.append(_text(float(b.split(",")[0]) - 40, MARGIN - 6, mark[1]))
    for index, curve in enumerate(curves):
        color = f"c{index % len(COLORS)}"
        line = " ".join(point(x, y) for x, y in zip(curve.x, curve.theory, strict=True))
        parts.append(f'<polyline class="{color} line" points="{line}"/>')
        for x, y, error in zip(curve.x, curve.measured, curve.error, strict=True):
            a, b = (point(x, float(np.clip(y + sign * error, 0, 1))) for sign in (-1, 1))
            across, up = point(x, y).split(",")
            parts.append(f'<path class="{color} line" d="M{a} L{b}"/>')
            parts.append(f'<circle class="{color}" cx="{across}" cy="{up}" r="3"/>')
        parts.append(_text(MARGIN + 10, MARGIN + LEGEND_HEIGHT * (index + 1), curve.name, color))
    body = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def _style() -> str:
    """Classes: `c0`... are the colours, `ink` is axes and words, `line` is drawn and not filled."""
    themes = []
    for dark, (ground, ink) in enumerate(GROUNDS):
        rules = [f".ground{{fill:{ground}}}", f".ink{{fill:{ink};stroke:{ink}}}"]
        rules += [f".c{number}{{fill:{pair[dark]};stroke:{pair[dark]}}}" for number, pair in enumerate(COLORS)]
        themes.append("".join(rules))
    return (
        f"<style>{themes[0]}@media (prefers-color-scheme:dark){{{themes[1]}}}"
        "svg text{stroke:none}svg .line{fill:none}</style>"
    )


def _axes(low: float, high: float, x_label: str, y_label: str) -> str:
    right, bottom = WIDTH - MARGIN, HEIGHT - MARGIN
    parts = [f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>']
    parts.append(f'<path class="ink line" d="M{MARGIN},{MARGIN} V{bottom} H{right}"/>')
    tenths = max(1, round((high - low) * 10))
    for tick in range(tenths + 1):
        across = MARGIN + tick / tenths * (right - MARGIN)
        parts.append(_text(across - 10, bottom + 16, f"{low + tick / tenths * (high - low):.1f}"))
    for tick in range(TICKS + 1):
        share = tick / TICKS
        parts.append(_text(MARGIN - 32, bottom - share * (bottom - MARGIN) + 4, f"{share:.1f}"))
    return "\n".join([*parts, _text(right - 60, bottom + 36, x_label), _text(10, MARGIN - 26, y_label)])


def _text(x: float, y: float, text: str, color: str = "ink") -> str:
    return f'<text class="{color}" x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>'

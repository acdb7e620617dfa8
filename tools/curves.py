"""Measured shares against a theory's, drawn as an SVG: lines are theory, dots with their error are measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT, MARGIN = 640, 420, 50  # pixels
LEGEND_HEIGHT = 18
COLORS = ("#1b6ca8", "#c0392b", "#1e8449", "#7d3c98", "#b9770e", "#566573")
TICKS = 5

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """Shares in 0..1 by `x`, each float64[points]; `error` is one standard error of `measured`."""

    name: str
    x: Floats
    measured: Floats
    theory: Floats
    error: Floats


def write_svg(path: Path, curves: Sequence[Curve], x_label: str, y_label: str) -> None:
    """Draw all curves into one frame; the x axis spans their range."""
    low = min(float(curve.x.min()) for curve in curves)
    high = max(float(curve.x.max()) for curve in curves)

    def point(x: float, y: float) -> str:
        across = MARGIN + (x - low) / ((high - low) or 1) * (WIDTH - 2 * MARGIN)
        return f"{across:.1f},{HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN):.1f}"

    parts = [_axes(low, high, x_label, y_label)]
    for index, curve in enumerate(curves):
        color = COLORS[index % len(COLORS)]
        line = " ".join(point(x, y) for x, y in zip(curve.x, curve.theory, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}"/>')
        for x, y, error in zip(curve.x, curve.measured, curve.error, strict=True):
            a, b = (point(x, float(np.clip(y + sign * error, 0, 1))) for sign in (-1, 1))
            across, up = point(x, y).split(",")
            parts.append(
                f'<path d="M{a} L{b}" stroke="{color}"/><circle cx="{across}" cy="{up}" r="3" fill="{color}"/>'
            )
        parts.append(_text(MARGIN + 10, MARGIN + LEGEND_HEIGHT * (index + 1), curve.name, color))
    body = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def _axes(low: float, high: float, x_label: str, y_label: str) -> str:
    right, bottom = WIDTH - MARGIN, HEIGHT - MARGIN
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    parts.append(f'<path d="M{MARGIN},{MARGIN} V{bottom} H{right}" fill="none" stroke="black"/>')
    for tick in range(TICKS + 1):
        share = tick / TICKS
        parts.append(_text(MARGIN + share * (right - MARGIN) - 10, bottom + 16, f"{low + share * (high - low):.2f}"))
        parts.append(_text(MARGIN - 32, bottom - share * (bottom - MARGIN) + 4, f"{share:.1f}"))
    return "\n".join([*parts, _text(right - 60, bottom + 36, x_label), _text(10, MARGIN - 16, y_label)])


def _text(x: float, y: float, text: str, color: str = "black") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{color}">{escape(text)}</text>'

"""The two drawings of a page as inline SVG: grouped bars and curves.

Colours come from the page's style sheet through classes, so light and dark need one drawing; a style attribute would be
refused by the page's content-security policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len

from tokenizer.report.shown import cut, escape, percent, plain

WIDTH, HALF_WIDTH, VALUE_WIDTH, BAR_HEIGHT, GAP = 820, 420, 60, 14, 6
COLUMN_WIDTH = 7  # of a Latin letter; a Han character takes two
LABEL_COLUMNS = 30
CURVE_HEIGHT, MARGIN = 240, 44


def bars(
    rows: Sequence[tuple[str, Sequence[float | None]]],
    label: str,
    text: Callable[[float | None], str],
    width: int = WIDTH,
) -> str:
    """Horizontal bars, one group of them a row of (name, values), each with its value behind it."""
    names = [cut(plain(name), LABEL_COLUMNS) for name, _ in rows]
    left = COLUMN_WIDTH * max(map(cell_len, names), default=0) + 10
    most = max((value for _, values in rows for value in values if value), default=1)
    parts: list[str] = []
    y = 0
    for name, (_, values) in zip(names, rows, strict=True):
        middle = y + BAR_HEIGHT * len(values) / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle:g}" text-anchor="end">{escape(name)}</text>')
        for series, value in enumerate(values):
            wide = max((width - left - VALUE_WIDTH) * (value or 0) / most, 1)
            parts.append(
                f'<rect class="s{series}" x="{left}" y="{y + 1}" width="{wide:.1f}" height="{BAR_HEIGHT - 2}" rx="2"/>'
                f'<text class="note" x="{left + wide + 6:.1f}" y="{y + BAR_HEIGHT - 3}">{text(value)}</text>'
            )
            y += BAR_HEIGHT
        y += GAP
    return _svg(width, y, label, "".join(parts))


def coverage_curve(curves: Mapping[str, Sequence[Sequence[float]]], label: str) -> str:
    """Share of tokens (0 to 1) over the number of most frequent pieces, the axis of pieces logarithmic."""
    last = max((points[-1][0] for points in curves.values() if points), default=10)
    decades = max(math.ceil(math.log10(max(last, 10))), 1)
    right, base = WIDTH - 30, CURVE_HEIGHT - 20

    def place(count: float, share: float) -> str:
        x = MARGIN + (right - MARGIN) * math.log10(count) / decades
        return f"{x:.1f},{base - (base - 10) * share:.1f}"

    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = base - (base - 10) * tick
        parts.append(f'<line class="axis" x1="{MARGIN}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="note" x="{MARGIN - 5}" y="{y + 4:.1f}" text-anchor="end">{percent_label(tick)}</text>'
        )
    for power in range(decades + 1):
        x = MARGIN + (right - MARGIN) * power / decades
        parts.append(f'<text class="note" x="{x:.1f}" y="{base + 16}" text-anchor="middle">{10**power:,}</text>')
    for series, points in enumerate(curves.values()):
        line = " ".join(place(count, share) for count, share in points)
        parts.append(f'<polyline class="l{series}" points="{line}"/>')
    return _svg(WIDTH, CURVE_HEIGHT, label, "".join(parts))


def percent_label(share: float) -> str:
    """A tick of an axis.

    >>> percent_label(0.25)
    '25 %'
    """
    return percent(share).replace(".0", "")


def _svg(width: int, height: int, label: str, body: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'

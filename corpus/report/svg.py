"""The three drawings of the report as inline SVG: the funnel, histograms, and the bar in a table's cell.

Colours come from the page's style sheet through classes, so light and dark need one drawing. Nothing here uses a style
attribute: the page's content-security policy would refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from corpus.report.distributions import Distribution
from corpus.report.explain import number
from corpus.report.summary import share, size
from corpus.safe import escape_html

FUNNEL_WIDTH, LABEL_WIDTH, ROW_HEIGHT = 960, 210, 30
CHART_WIDTH, CHART_HEIGHT, AXIS_HEIGHT, TOP_MARGIN = 300, 96, 18, 14


def funnel_bars(rows: Sequence[tuple[str, int, int, int]]) -> str:
    """Bars of (label, documents that stay, documents lost here, bytes of text or 0), one below the other."""
    whole = max((stay + lost for _, stay, lost, _ in rows), default=0) or 1
    room = FUNNEL_WIDTH - LABEL_WIDTH - 250
    parts = []
    for index, (label, stay, lost, num_bytes) in enumerate(rows):
        y = index * ROW_HEIGHT
        wide, gone = room * stay / whole, room * lost / whole
        note = f"{stay:,} · {share(stay, whole)}" + (f" · {size(num_bytes)}" if num_bytes else "")
        minus = f" (−{lost:,})" if lost else ""
        parts.append(
            f'<text class="label" x="{LABEL_WIDTH - 12}" y="{y + 19}" text-anchor="end">{escape_html(label)}</text>'
            f'<rect class="kept" x="{LABEL_WIDTH}" y="{y + 5}" width="{wide:.1f}" height="20" rx="2"/>'
            f'<rect class="lost" x="{LABEL_WIDTH + wide:.1f}" y="{y + 5}" width="{gone:.1f}" height="20" rx="2"/>'
            f'<text class="note" x="{LABEL_WIDTH + wide + gone + 10:.1f}" y="{y + 19}">{note}'
            f'<tspan class="minus">{minus}</tspan></text>'
        )
    height = len(rows) * ROW_HEIGHT
    return _svg(FUNNEL_WIDTH, height, "Funnel: documents after each step", "".join(parts), "funnel")


def histogram_chart(one: Distribution, index: int) -> str:
    """One histogram, heights logarithms of counts: all documents pale, those that pass all other rules full.

    Both are drawn in the colour of what is lost, and over it, inside the limits, in that of what is kept; a slider of
    the page moves the window (`clipPath`) and the lines.
    """
    xs = [CHART_WIDTH * one.axis(value) for value in one.grid]
    ends = [*xs[1:], CHART_WIDTH]
    passing = [right - left for left, right in zip(one.below, (*one.below[1:], one.up_to[-1]), strict=True)]
    tallest = math.log1p(max(one.counts, default=0)) or 1.0
    shapes = "".join(
        f'<path id="{kind}{index}" d="{_bars(xs, ends, counts, tallest)}"/>'
        for kind, counts in (("a", one.counts), ("p", passing))
    )
    low = CHART_WIDTH * one.axis(one.limits["min"]) if "min" in one.limits else -1.0
    high = CHART_WIDTH * one.axis(one.limits["max"]) if "max" in one.limits else CHART_WIDTH + 1.0
    both = f'<use class="pale" href="#a{index}"/><use href="#p{index}"/>'
    base = TOP_MARGIN + CHART_HEIGHT
    parts = [
        f'<defs>{shapes}<clipPath id="c{index}">'
        f'<rect x="{low:.1f}" y="0" width="{high - low:.1f}" height="{base}"/></clipPath></defs>',
        f'<g class="lost">{both}</g><g class="kept" clip-path="url(#c{index})">{both}</g>',
        f'<line class="axis" x1="0" y1="{base}" x2="{CHART_WIDTH}" y2="{base}"/>',
    ]
    for bound, value in sorted(one.limits.items()):
        x = CHART_WIDTH * one.axis(value)
        anchor, offset = ("start", 4) if x < CHART_WIDTH / 2 else ("end", -4)
        parts.append(
            f'<line class="limit" x1="{x:.1f}" y1="{TOP_MARGIN - 12}" x2="{x:.1f}" y2="{base}"/>'
            f'<line class="moved" data-bound="{bound}" x1="{x:.1f}" y1="{TOP_MARGIN - 12}" x2="{x:.1f}" y2="{base}"/>'
            f'<text class="limit-label" x="{x + offset:.1f}" y="{TOP_MARGIN - 3}" text-anchor="{anchor}">'
            f"{bound} {number(value)}</text>"
        )
    if not one.limits:
        parts += [
            f'<line class="moved" visibility="hidden" data-bound="{bound}" y1="{TOP_MARGIN - 12}" y2="{base}"/>'
            for bound in ("min", "max")
        ]
    parts.append(
        f'<text class="tick" x="0" y="{base + 13}">{number(one.grid[0])}</text>'
        f'<text class="tick" x="{CHART_WIDTH}" y="{base + 13}" text-anchor="end">{number(one.grid[-1])}</text>'
    )
    if one.bend:
        middle = one.grid[min(range(len(xs)), key=lambda i: abs(xs[i] - CHART_WIDTH / 2))]
        parts.append(
            f'<text class="tick" x="{CHART_WIDTH / 2}" y="{base + 13}" text-anchor="middle">{number(middle)}</text>'
        )
    height = TOP_MARGIN + CHART_HEIGHT + AXIS_HEIGHT
    return _svg(CHART_WIDTH, height, f"Histogram of {one.name}", "".join(parts), "histogram")


def _bars(xs: Sequence[float], ends: Sequence[float], counts: Sequence[int], tallest: float) -> str:
    """A path of one bar for each cell of the grid that holds documents; each at least a pixel and a half wide."""
    base = TOP_MARGIN + CHART_HEIGHT
    steps = []
    for x, end, count in zip(xs, ends, counts, strict=True):
        if count:
            tall = max(1.5, CHART_HEIGHT * math.log1p(count) / tallest)
            wide = max(1.5, end - x - 0.3)
            steps.append(f"M{min(x, CHART_WIDTH - wide):.1f} {base}v{-tall:.1f}h{wide:.1f}V{base}z")
    return "".join(steps)


def cell_bar(part: int, whole: int) -> str:
    """A small horizontal bar for a table."""
    width = 100 * part / whole if whole else 0
    return _svg(100, 8, share(part, whole), f'<rect class="lost" width="{width:.1f}" height="8" rx="1"/>', "cell")


def _svg(width: int, height: int, label: str, body: str, kind: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape_html(label)}">{body}</svg>'
    )

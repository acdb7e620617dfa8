"""The three drawings of the report as inline SVG: the funnel, histograms, and the bar in a table's cell.

Colours come from the page's style sheet through classes, so light and dark need one drawing. Nothing here uses a style
attribute: the page's content-security policy would refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from corpus.report.explain import number
from corpus.report.histograms import Histogram
from corpus.report.safe import escape_html
from corpus.report.summary import share, size

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


def histogram_chart(histogram: Histogram) -> str:
    """One histogram: bars (height: log of the count), limits as dashed lines, what lies outside in another colour."""
    low, high = histogram.edges[0], histogram.edges[-1]
    tallest = math.log1p(max(histogram.counts, default=0)) or 1.0
    minimum, maximum = histogram.limits.get("min", -math.inf), histogram.limits.get("max", math.inf)
    parts = []
    for left, right, count in zip(histogram.edges, histogram.edges[1:], histogram.counts, strict=False):
        if not count:
            continue
        x, end = _x(left, low, high, histogram.is_log), _x(right, low, high, histogram.is_log)
        tall = CHART_HEIGHT * math.log1p(count) / tallest
        middle = (left + right) / 2
        kind = "lost" if middle < minimum or middle > maximum else "kept"
        parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{TOP_MARGIN + CHART_HEIGHT - tall:.1f}" '
            f'width="{max(0.6, end - x - 0.6):.1f}" height="{tall:.1f}">'
            f"<title>{number(left)} to {number(right)}: {count:,}</title></rect>"
        )
    base = TOP_MARGIN + CHART_HEIGHT
    parts.append(f'<line class="axis" x1="0" y1="{base}" x2="{CHART_WIDTH}" y2="{base}"/>')
    for bound, value in sorted(histogram.limits.items()):
        x = _x(value, low, high, histogram.is_log)
        anchor = "start" if x < CHART_WIDTH / 2 else "end"
        offset = 4 if anchor == "start" else -4
        parts.append(
            f'<line class="limit" x1="{x:.1f}" y1="{TOP_MARGIN - 12}" x2="{x:.1f}" y2="{base}"/>'
            f'<text class="limit-label" x="{x + offset:.1f}" y="{TOP_MARGIN - 3}" text-anchor="{anchor}">'
            f"{bound} {number(value)}</text>"
        )
    parts.append(
        f'<text class="tick" x="0" y="{base + 13}">{number(low)}</text>'
        f'<text class="tick" x="{CHART_WIDTH}" y="{base + 13}" text-anchor="end">{number(high)}</text>'
    )
    if histogram.is_log:
        parts.append(f'<text class="tick" x="{CHART_WIDTH / 2}" y="{base + 13}" text-anchor="middle">log axis</text>')
    height = TOP_MARGIN + CHART_HEIGHT + AXIS_HEIGHT
    return _svg(CHART_WIDTH, height, f"Histogram of {histogram.name}", "".join(parts), "histogram")


def cell_bar(part: int, whole: int) -> str:
    """A small horizontal bar for a table."""
    width = 100 * part / whole if whole else 0
    return _svg(100, 8, share(part, whole), f'<rect class="lost" width="{width:.1f}" height="8" rx="1"/>', "cell")


def _x(value: float, low: float, high: float, is_log: bool) -> float:
    if is_log:
        value, low, high = math.log1p(value), math.log1p(low), math.log1p(high)
    return CHART_WIDTH * (value - low) / (high - low)


def _svg(width: int, height: int, label: str, body: str, kind: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape_html(label)}">{body}</svg>'
    )

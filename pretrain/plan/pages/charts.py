"""The drawings of a plan's report: stacked bars, scatter, heat map, curves over numbers of devices. SVG without scripts.

Colours come from the page's style sheet through classes (c0, c1, ...), what a mark stands for is its <title>. No style
attribute is used: the page's content-security policy would refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pretrain.monitor.charts import Axis, Format, short

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40
NUM_COLORS = 12  # in the style sheet
BAR, BAR_PITCH = 16, 42  # pixels, with the words over a bar
CELL, MOST_WIDTH = 34, 96  # of a heat map's fields


@dataclass(frozen=True)
class Bar:
    """One bar: its name, parts by name, and words at its end."""

    name: str
    parts: Mapping[str, float]
    end: str


@dataclass(frozen=True)
class Dot:
    """One mark of a scatter or a curve."""

    x: float
    y: float
    about: str = ""


@dataclass(frozen=True)
class Dots:
    """Marks of one kind; `is_line` joins them, `size` is a radius, 0 draws none."""

    name: str
    dots: Sequence[Dot]
    color: int
    size: float = 2.4
    is_line: bool = False
    is_faint: bool = False


def bars(title: str, rows: Sequence[Bar], text: Format, limit: tuple[float, str] | None = None, note: str = "") -> str:
    """Horizontal stacked bars from 0, in the colours of their parts' order; `limit` is a line across all, with its name."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.parts.items() if value > 0))
    colors = {name: index % NUM_COLORS for index, name in enumerate(names)}
    longest = max([sum(row.parts.values()) for row in rows] + ([limit[0]] if limit else [])) or 1.0
    scale = (WIDTH - 2) / longest
    parts = []
    for index, row in enumerate(rows):
        top, left = index * BAR_PITCH, 0.0
        parts.append(_text(0, top + 14, row.name, kind="ink"))
        parts.append(_text(WIDTH, top + 14, row.end, "end"))
        for name, value in row.parts.items():
            if value > 0:
                about = f"{name}: {text(value)}"
                parts.append(_rect(left * scale, top + 20, value * scale, BAR, f"c{colors[name]}", about))
            left += value
    height = len(rows) * BAR_PITCH + (18 if limit else 0)
    if limit:
        x = limit[0] * scale
        parts.append(f'<line class="event" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height - 16}"/>')
        parts.append(_text(x, height - 2, limit[1], "end"))
    legend = [(name, colors[name]) for name in names]
    told = "; ".join(f"{row.name}: {row.end}" for row in rows)
    return figure(title, legend, _svg(height, parts, told), note)


def scatter(
    title: str, groups: Sequence[Dots], x_name: str, y_name: str, x_limit: float | None = None, note: str = ""
) -> str:
    """Marks over two axes that begin at 0; marks that would hide each other are drawn once."""
    every = [dot for group in groups for dot in group.dots]
    right = max([dot.x for dot in every] + ([x_limit] if x_limit else []))
    x = Axis(0.0, right * 1.04, LEFT, WIDTH - RIGHT)
    y = Axis(0.0, max(dot.y for dot in every) * 1.06, HEIGHT - BOTTOM, TOP)
    parts = [*_axes(x, y, x_name, y_name, short, short)]
    if x_limit:
        parts.append(
            f'<line class="event" x1="{x(x_limit):.1f}" y1="{TOP}" x2="{x(x_limit):.1f}" y2="{HEIGHT - BOTTOM}"/>'
        )
    for group in groups:
        parts += _marks(group, x, y)
    told = f"{y_name} over {x_name}: " + ", ".join(f"{len(group.dots)} {group.name}" for group in groups)
    legend = [(group.name, group.color) for group in groups]
    return figure(title, legend, _svg(HEIGHT, parts, told), note)


def curves(title: str, groups: Sequence[Dots], x_name: str, y_name: str, text: Format, note: str = "") -> str:
    """Lines over numbers of devices, whose axis doubles from tick to tick; values from 0."""
    every = [dot for group in groups for dot in group.dots]
    numbers = sorted({dot.x for dot in every})
    low, high = numbers[0], max(numbers[-1], 2 * numbers[0])
    x = Axis(low, high, LEFT + 10, WIDTH - RIGHT - 14, log=True)
    y = Axis(0.0, max(dot.y for dot in every) * 1.08, HEIGHT - BOTTOM, TOP)
    parts = [*_axes(x, y, x_name, y_name, short, text, numbers)]
    for group in groups:
        parts += _marks(group, x, y)
    told = "; ".join(f"{group.name} ends at {text(group.dots[-1].y)}" for group in groups if group.dots)
    return figure(title, [(group.name, group.color) for group in groups], _svg(HEIGHT, parts, told), note)


def heat_map(
    title: str,
    cells: Mapping[tuple[int, int], tuple[float, str]],
    row_name: str,
    column_name: str,
    note: str = "",
) -> str:
    """Values by row and column, each with what it is; the larger the darker. What is not there stays empty."""
    rows, columns = (sorted({key[axis] for key in cells}) for axis in (0, 1))
    low, high = min(value for value, _ in cells.values()), max(value for value, _ in cells.values())
    width = min(MOST_WIDTH, (WIDTH - LEFT) / len(columns))
    parts = []
    for place, row in enumerate(rows):
        top = TOP + place * CELL
        parts.append(_text(LEFT - 8, top + CELL / 2 + 4, f"{row:,}", "end"))
        for across, column in enumerate(columns):
            left = LEFT + across * width
            if (row, column) not in cells:
                parts.append(
                    f'<rect class="none" x="{left:.1f}" y="{top}" width="{width - 2:.1f}" height="{CELL - 2}"/>'
                )
                continue
            value, about = cells[row, column]
            share = (value - low) / (high - low) if high > low else 1.0
            shade = f' fill-opacity="{0.08 + 0.62 * share:.2f}"'
            parts.append(_rect(left, top, width - 1, CELL - 2, "c0", about, shade))
            parts.append(_text(left + (width - 1) / 2, top + CELL / 2 + 3, short(value), "middle", "ink small"))
    bottom = TOP + len(rows) * CELL
    for across, column in enumerate(columns):
        parts.append(_text(LEFT + (across + 0.5) * width, bottom + 14, f"{column:,}", "middle"))
    parts.append(_text(LEFT + len(columns) * width, bottom + 32, column_name, "end"))
    parts.append(_text(0, 8, row_name))
    best = max(cells, key=lambda key: cells[key][0])
    told = f"best: {row_name} {best[0]}, {column_name} {best[1]}, {short(cells[best][0])}"
    return figure(title, [], _svg(bottom + 38, parts, told), note)


def figure(title: str, legend: Iterable[tuple[str, int]], svg: str, note: str = "", kind: str = "") -> str:
    """A drawing with its title, what its colours mean, and a note."""
    spans = "".join(f'<span><i class="c{color}"></i>{escape(name)}</span>' for name, color in legend)
    below = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    about = f' class="{kind}"' if kind else ""
    return f'<figure{about}><h3>{escape(title)}</h3><p class="legend">{spans}</p>{svg}{below}</figure>\n'


def _marks(group: Dots, x: Axis, y: Axis) -> Iterator[str]:
    faint = ' fill-opacity="0.35"' if group.is_faint else ""
    places: dict[tuple[str, str], Dot] = {}
    for dot in group.dots:
        places.setdefault((f"{x(dot.x):.0f}", f"{y(dot.y):.0f}"), dot)
    if group.is_line:
        path = "L".join(f"{x(dot.x):.1f} {y(dot.y):.1f}" for dot in group.dots)
        yield f'<path class="line c{group.color}" d="M{path}"/>'
    for (across, up), dot in places.items() if group.size else ():
        about = f"<title>{escape(dot.about)}</title>" if dot.about else ""
        yield f'<circle class="c{group.color}" cx="{across}" cy="{up}" r="{group.size}"{faint}>{about}</circle>'


def _axes(
    x: Axis, y: Axis, x_name: str, y_name: str, x_text: Format, y_text: Format, x_ticks: Sequence[float] | None = None
) -> Iterator[str]:
    for value in y.ticks():
        yield f'<line class="grid" x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}"/>'
        yield _text(LEFT - 6, y(value) + 4, y_text(value), "end")
    for value in x.ticks() if x_ticks is None else _apart(x_ticks, x):
        yield _text(x(value), HEIGHT - BOTTOM + 16, x_text(value), "middle")
    yield _text(WIDTH - RIGHT, HEIGHT - 6, x_name, "end")
    yield _text(0, 8, y_name)


def _apart(values: Sequence[float], axis: Axis) -> Iterator[float]:
    """Those whose names do not lie on each other."""
    last = -math.inf
    for value in values:
        if axis(value) - last >= 34:
            yield value
            last = axis(value)


def _rect(x: float, y: float, width: float, height: float, kind: str, about: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.3, width):.1f}" height="{height}"'
    return f'<rect class="{kind}" {place}{more}><title>{escape(about)}</title></rect>'


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    about = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{about} x="{x:.1f}" y="{y:.1f}"{place}>{escape(words)}</text>'


def _svg(height: float, parts: Iterable[str], told: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(told)}">{"".join(parts)}</svg>'

"""The kit of every drawing: plots over two axes, and rows of bars and marks, as inline SVG or as a file of its own.

Colours are classes (c0, c1, ...) of `chart.css`, so light and dark need one drawing; what a mark stands for is its
<title>. Drawings are narrow enough to be read on a phone; a wide one scrolls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Literal, NamedTuple

from rich.cells import cell_len

from corpus.engine.page import Html, tag

WIDTH, HEIGHT = 460, 260  # pixels
LEFT, RIGHT, TOP = 58, 14, 14
TICKS = 5
NUM_COLORS = 12  # in the style sheet
LOG_SPAN = 50  # of positive values: from this ratio of the largest to the smallest on, the axis is logarithmic
BAR, GAP, LABEL = 14, 8, 18  # heights: of a bar, between two, of a name over one
COLUMN = 7  # width of a letter; a Han character takes two
BESIDE = 24  # columns: up to here names stand beside their bars, longer ones above
MARGIN = 16  # of a file of its own

Format = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """Values to a place in the drawing."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (map(math.log10, (self.low, self.high, value))) if self.log else (self.low, self.high, value)
        share = (value - low) / ((high - low) or 1.0)  # an axis of one value
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self) -> list[float]:
        """Round values inside."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            every = max(1, math.ceil(len(powers) / TICKS))
            found = [10.0**power for power in powers][::every]
            return found if len(found) > 1 else [self.low, self.high]
        step = round_step((self.high - self.low) / TICKS or 1.0)
        first = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


class Point(NamedTuple):
    """One value of a plot, and what it is; `low` and `high` are its range or error."""

    x: float
    y: float
    about: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of one kind."""

    name: str
    points: Sequence[Point]
    color: int = 0
    is_line: bool = True
    radius: float = 0.0  # of a dot at each point
    between: Literal["", "range", "area", "error"] = ""  # how low to high is drawn
    style: Literal["", "faint", "dashed"] = ""


class Mark(NamedTuple):
    """One shape of a row: from `start` to `end` a bar, a thin one below it or an interval; at `start` a dot or a line.
    Without a colour it is of the page's ink."""

    kind: Literal["bar", "thin", "interval", "tick", "dot", "event", "restart"]
    start: float
    end: float = 0.0
    color: int | None = 0
    about: str = ""


class Row(NamedTuple):
    """Marks beside a name, and words at their end; without a name it belongs to the row before."""

    name: str
    marks: Sequence[Mark]
    end: str = ""


class Bar(NamedTuple):
    """A row that is one bar, of parts by name."""

    name: str
    parts: Mapping[str, float | None]
    end: str


@dataclass(frozen=True)
class Drawing:
    """One drawing: `figure` puts it into a page, `picture` several into a file."""

    title: str
    parts: Sequence[Html]
    height: float
    told: str  # in words, for those who do not see it
    legend: Sequence[tuple[str, int]] = ()  # names and colours
    note: str = ""
    unit: str = ""
    width: float = WIDTH

    @property
    def figure(self) -> Html:
        """With its title, what its colours mean, and a note; wide ones scroll."""
        spans = [tag("span", tag("i", class_=f"c{color}"), name) for name, color in self.legend]
        box = f"0 0 {self.width:.0f} {self.height:.0f}"
        svg = tag("svg", *self.parts, viewBox=box, role="img", aria_label=self.told)
        is_wide = self.width > WIDTH
        return tag(
            "figure",
            tag("h3", self.title, *([" ", tag("span", self.unit, class_="soft")] if self.unit else [])),
            tag("p", *spans, class_="legend") if spans else "",
            tag("div", svg, class_="scroll") if is_wide else svg,
            tag("figcaption", self.note) if self.note else "",
            class_="wide" if is_wide else None,
        )


def figures(drawings: Iterable[Drawing]) -> Html:
    """Drawings side by side, as many as a screen has room for."""
    return tag("div", *(one.figure for one in drawings), class_="charts")


def picture(drawings: Sequence[Drawing], lines: Sequence[str] = ()) -> str:
    """One SVG file that needs nothing else, on light or dark ground: drawings below each other, and lines of words."""
    parts, top, widths = [], float(MARGIN), [float(COLUMN * cell_len(line)) for line in lines]
    for one in drawings:
        heads, left = [words(0, 12, one.title, kind="ink")], 0
        for name, color in one.legend:
            heads.append(words(left, 12 + LABEL, f"■ {name}", kind=f"c{color}"))
            left += COLUMN * (cell_len(name) + 4)
        below = 2.5 * LABEL if one.legend else 1.5 * LABEL
        body = tag("g", *one.parts, transform=f"translate(0,{below})")
        parts.append(tag("g", *heads, body, transform=f"translate({MARGIN},{top})"))
        top += below + one.height + MARGIN
        widths += [one.width, left, COLUMN * cell_len(one.title)]
    parts += [words(MARGIN, top + LABEL * place, line, kind="ink") for place, line in enumerate(lines, 1)]
    width = 2 * MARGIN + max(widths, default=WIDTH)
    size = {"width": f"{width:.0f}", "height": f"{top + LABEL * len(lines) + MARGIN:.0f}"}
    style = tag("style", Html(resources.files("corpus.engine").joinpath("chart.css").read_text("utf-8")))
    ground = tag("rect", class_="ground", **size)
    return tag("svg", style, ground, *parts, xmlns="http://www.w3.org/2000/svg", **size) + "\n"


def short(value: float) -> str:
    """A number as an axis has room for.

    >>> [short(value) for value in (0.0, 1500, 2e6, 0.25, 3e-4, 12345678)]
    ['0', '1.5K', '2M', '0.25', '3e-4', '12.3M']
    """
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= size:
            return f"{float(f'{value / size:.3g}'):g}{unit}"
    if value and abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{float(f'{value:.3g}'):g}"


def plot(
    title: str,
    series: Sequence[Series],
    x_name: str = "",
    y_name: str = "",
    *,
    text: Format = short,
    x_ends: tuple[float, float] | None = None,
    x_ticks: Sequence[float] | None = None,
    x_log: bool = False,
    y_ends: tuple[float, float] | None = None,
    from_zero: bool = True,
    marks: Sequence[tuple[str, float, str]] = (),
    unit: str = "",
    note: str = "",
) -> Drawing:
    """Lines and dots over two axes. Dots that would hide each other are drawn once, values that are no number not at
    all.

    Args:
        text: of values of the y axis.
        x_ends: of the x axis; else from 0, or where it is logarithmic of the points alone.
        y_ends: of the y axis; else it holds all values and is `from_zero`, or logarithmic where they span a factor of
            `LOG_SPAN`.
        marks: vertical lines: class (event or restart), x, name.
    """
    series = [replace(one, points=[*filter(_is_drawn, one.points)]) for one in series]
    points = [point for one in series for point in one.points]
    bottom = HEIGHT - (40 if x_name else 24)
    if x_ends is None:
        all_x = [*(point.x for point in points), *(x for _, x, _ in marks)]
        low, high = min(all_x, default=1.0), max(all_x, default=1.0)
        x_ends = (low, max(high, 2 * low)) if x_log else (min(0.0, low), 1.04 * high)
    x = Axis(*x_ends, LEFT, WIDTH - RIGHT, x_log)
    y = Axis(*y_ends, bottom, TOP) if y_ends else _value_axis(points, from_zero, bottom)
    parts = [words(WIDTH - RIGHT, HEIGHT - 6, x_name, "end"), words(0, 8, y_name)]
    for value in y.ticks():
        parts.append(tag("line", class_="grid", x1=LEFT, y1=y(value), x2=WIDTH - RIGHT, y2=y(value)))
        parts.append(words(LEFT - 6, y(value) + 4, text(value), "end"))
    for value in _apart(x_ticks or x.ticks(), x):
        parts.append(words(x(value), bottom + 16, short(value), "end" if x(value) > WIDTH - 26 else "middle"))
    for kind, at, name in marks:
        parts += [_upright(kind, x(at), TOP, bottom), words(x(at), TOP - 3, name, "middle")]
    parts += [part for one in series for part in _drawn(one, x, y)]
    ends = "; ".join(f"{one.name} ends at {text(one.points[-1].y)}" for one in series if one.name and one.points)
    legend = [(one.name, one.color) for one in series if one.name]
    return Drawing(title, parts, HEIGHT, f"{title}: {ends}", legend, note, unit)


def bars(
    title: str,
    rows: Sequence[Bar],
    text: Format,
    limit: tuple[float, str] | None = None,
    note: str = "",
    width: float = WIDTH,
) -> Drawing:
    """Stacked bars from 0, in the colours of their parts' order; `limit` is a line across all, with its name."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.parts.items() if value))
    legend = {name: index % NUM_COLORS for index, name in enumerate(names)}
    found, longest = [], limit[0] if limit else 0.0
    for row in rows:
        left, marks = 0.0, []
        for name, value in row.parts.items():
            if value:
                marks.append(
                    Mark("bar", left, left + value, legend[name], ": ".join(filter(None, (name, text(value)))))
                )
                left += value
        found.append(Row(row.name, marks, row.end))
        longest = max(longest, left)
    told = "; ".join(": ".join(filter(None, (row.name, row.end))) for row in rows)
    shown = list(legend.items()) if len(legend) > 1 else []
    return strips(title, found, (0.0, longest or 1.0), told, shown, note=note, limit=limit, has_axis=False, width=width)


def strips(
    title: str,
    rows: Sequence[Row],
    ends: tuple[float, float],
    told: str,
    legend: Sequence[tuple[str, int]] = (),
    *,
    note: str = "",
    unit: str = "",
    limit: tuple[float, str] | None = None,
    has_axis: bool = True,
    width: float = WIDTH,
) -> Drawing:
    """Rows of marks over one axis from the first of `ends` to the other; long names stand above their rows."""
    columns = max((cell_len(row.name) for row in rows), default=0)
    is_beside = columns <= BESIDE
    left = COLUMN * columns + 10 if is_beside else 1
    right = width - 14 - COLUMN * max((cell_len(row.end) for row in rows), default=0)
    x, top = Axis(*ends, left, right), 0
    parts = []
    for row in rows:
        if row.name:
            top += GAP if is_beside else LABEL
            across, down, anchor = (left - 8, top + BAR - 3, "end") if is_beside else (0, top - 4, "start")
            parts.append(words(across, down, row.name, anchor, "ink"))
        parts += [_shape(mark, x, top) for mark in row.marks]
        last = max((x(max(mark.start, mark.end)) for mark in row.marks), default=left)
        parts.append(words(last + 6, top + BAR - 3, row.end))
        top += BAR + (2 if is_beside else 4)
    if has_axis:
        parts += [words(x(value), top + LABEL, short(value), "middle") for value in x.ticks()]
        parts[:0] = [_upright("grid", x(value), 0, top + 4) for value in x.ticks()]
    if limit:
        parts += [_upright("event", x(limit[0]), 0, top + 4), words(x(limit[0]), top + LABEL, limit[1], "end")]
    return Drawing(title, parts, top + (LABEL + 4 if has_axis or limit else 0), told, legend, note, unit, width)


def words(x: float, y: float, text: str, anchor: str = "start", kind: str | None = None) -> Html:
    """Words at a place; nothing for no words."""
    place = None if anchor == "start" else anchor
    return tag("text", text, class_=kind, x=x, y=y, text_anchor=place) if text else Html()


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`.

    >>> [round_step(value) for value in (0.7, 1, 1.1, 30, 0.021)]
    [1.0, 1.0, 2.0, 50.0, 0.05]
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def _path(places: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _is_drawn(point: Point) -> bool:
    return all(value is None or math.isfinite(value) for value in (point.x, point.y, point.low, point.high))


def _value_axis(points: Sequence[Point], from_zero: bool, bottom: float) -> Axis:
    values = [value for point in points for value in (point.low, point.y, point.high) if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if not from_zero and low > 0 and high / low >= LOG_SPAN:
        return Axis(low, high, bottom, TOP, log=True)
    low = min(0.0, low) if from_zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a flat line lies in the middle
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    margin = (high - low) * 0.05
    return Axis(low if from_zero else low - margin, high + margin, bottom, TOP)


def _drawn(one: Series, x: Axis, y: Axis) -> Iterator[Html]:
    color, places = f"c{one.color}", [(x(point.x), y(point.y)) for point in one.points]
    ranges = [(x(p.x), y(p.low), y(p.high)) for p in one.points if p.low is not None and p.high is not None]
    if one.between == "error":
        yield from (_upright(f"line {color}", at, high, low) for at, low, high in ranges)
    elif one.between and ranges:
        edges = [*((at, high) for at, _, high in ranges), *((at, low) for at, low, _ in reversed(ranges))]
        yield tag("path", class_=f"{one.between} {color}", d=_path(edges) + "z")
    if one.is_line and places:
        yield tag("path", class_=f"line {color} {one.style}".rstrip(), d=_path(places))
    seen = {(round(at), round(up)): point for (at, up), point in reversed([*zip(places, one.points, strict=True)])}
    for (at, up), point in seen.items() if one.radius else ():
        about = tag("title", point.about) if point.about else Html()
        kind = f"{color} {one.style}".rstrip()
        yield tag("circle", about, class_=kind, cx=at, cy=up, r=one.radius)


def _shape(mark: Mark, x: Axis, top: float) -> Html:
    """A mark of a row that begins at `top`."""
    color = "" if mark.color is None else f"c{mark.color}"
    about = tag("title", mark.about) if mark.about else Html()
    start, end, middle = x(mark.start), x(mark.end), top + BAR / 2
    if mark.kind in ("bar", "thin"):
        y, height = (top, BAR) if mark.kind == "bar" else (top + BAR + 1, 4)
        return tag("rect", about, class_=f"area {color}", x=start, y=y, width=max(0.5, end - start), height=height)
    if mark.kind == "dot":
        return tag("circle", about, class_=color, cx=start, cy=middle, r=3.0)
    if mark.kind == "interval":
        ends = "".join(f"M{at:.1f} {middle - 4:.1f}v8" for at in (start, end))
        return tag("path", about, class_=f"line {color}", d=f"M{start:.1f} {middle:.1f}H{end:.1f}{ends}")
    kind = f"line {color}" if mark.kind == "tick" else mark.kind
    return _upright(kind, start, top - 3, top + BAR + 3, about)


def _upright(kind: str, x: float, top: float, bottom: float, about: Html | None = None) -> Html:
    return tag("line", about or Html(), class_=kind, x1=x, y1=top, x2=x, y2=bottom)


def _apart(values: Iterable[float], axis: Axis) -> Iterator[float]:
    """Those whose names do not lie on each other."""
    last = -math.inf
    for value in values:
        if axis(value) - last >= 34:
            yield value
            last = axis(value)

"""Curves as inline SVG: lines with the range they cover, stacked areas, marks; sized to be read on a phone as well.

Colours come from the page's style sheet through classes (c0, c1, ...), so light and dark need one drawing. No style
attribute is used: the page's content-security policy would refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from pretrain.monitor.log import Cell, Curve

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 24
TICKS = 5
MOST_DOTS = 40  # of a line; more hide it
MOST_RANGES = 2  # lines of a chart with a range each; more are mud
LOG_SPAN = 50  # of positive values: from this ratio of the largest to the smallest on, the axis is logarithmic
Format = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """One curve of a chart."""

    label: str
    curve: Curve
    color: int = 0
    dots: bool = False  # of few records: each is marked
    factor: float = 1.0


@dataclass(frozen=True)
class Chart:
    """What is drawn in one figure."""

    title: str
    lines: list[Line]
    unit: str
    text: Format
    stacked: bool = False
    from_zero: bool = False
    note: str = ""
    marks: dict[str, list[int]] = field(default_factory=dict)  # class of the mark: steps


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
        share = (value - low) / (high - low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def ticks(self) -> list[float]:
        """Round values inside."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            every = max(1, math.ceil(len(powers) / TICKS))
            found = [10.0**power for power in powers][::every]
            return found if len(found) > 1 else [self.low, self.high]
        step = round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `least`.

    >>> [round_step(value) for value in (0.7, 1, 1.1, 30, 0.021)]
    [1.0, 1.0, 2.0, 50.0, 0.05]
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= least * (1 - 1e-9))


def draw(chart: Chart, last_step: int, restarts: Sequence[int]) -> str:
    """The figure, or nothing where no line has values."""
    lines = [line for line in chart.lines if line.curve.cells]
    if not lines:
        return ""
    x = Axis(min(0, *(line.curve.cells[0].step for line in lines)), max(1, last_step), LEFT, WIDTH - RIGHT)
    y = _value_axis(chart, lines)
    shapes = "".join(_stack(lines, x, y) if chart.stacked else _curves(lines, x, y))
    vertical = [("restart", step) for step in restarts] + [
        (kind, s) for kind, steps in chart.marks.items() for s in steps
    ]
    marks = "".join(
        f'<line class="{kind}" x1="{x(step):.1f}" y1="{TOP}" x2="{x(step):.1f}" y2="{HEIGHT - BOTTOM}"/>'
        for kind, step in vertical
    )
    legend = "".join(f'<span><i class="c{line.color}"></i>{escape(line.label)}</span>' for line in lines)
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    unit = f' <span class="soft">{escape(chart.unit)}</span>' if chart.unit else ""
    return (
        f'<figure><h3>{escape(chart.title)}{unit}</h3><p class="legend">{legend}</p>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_told(chart, lines))}">'
        f"{''.join(_grid(x, y, chart.text))}{marks}{shapes}</svg>{note}</figure>\n"
    )


def _value_axis(chart: Chart, lines: Sequence[Line]) -> Axis:
    low = min(cell.low * line.factor for line in lines for cell in line.curve.cells)
    high = max(cell.high * line.factor for line in lines for cell in line.curve.cells)
    if chart.stacked:
        return Axis(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    if not chart.from_zero and low > 0 and high / low >= LOG_SPAN:
        return Axis(low, high, HEIGHT - BOTTOM, TOP, log=True)
    low = min(0.0, low) if chart.from_zero else low
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a flat line lies in the middle
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    margin = (high - low) * 0.05
    return Axis(low if chart.from_zero else low - margin, high + margin, HEIGHT - BOTTOM, TOP)


def _grid(x: Axis, y: Axis, text: Format) -> Iterator[str]:
    for value in y.ticks():
        yield f'<line class="grid" x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(text(value))}</text>'
    for value in x.ticks():
        anchor = "end" if x(value) > WIDTH - RIGHT - 12 else "middle"
        yield f'<text x="{x(value):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{short(value)}</text>'


def _curves(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[str]:
    for line in lines:
        cells = line.curve.cells
        places = [(x((cell.step + cell.last) / 2), y(cell.mean * line.factor)) for cell in cells]
        if len(lines) <= MOST_RANGES and any(cell.count > 1 for cell in cells):
            upper = [(x((cell.step + cell.last) / 2), y(cell.high * line.factor)) for cell in cells]
            lower = [(x((cell.step + cell.last) / 2), y(cell.low * line.factor)) for cell in reversed(cells)]
            yield f'<path class="range c{line.color}" d="{_path([*upper, *lower])}z"/>'
        yield f'<path class="line c{line.color}" d="{_path(places)}"/>'
        if len(cells) == 1 or (line.dots and len(cells) <= MOST_DOTS):
            yield from (f'<circle class="c{line.color}" cx="{px:.1f}" cy="{py:.1f}" r="2.6"/>' for px, py in places)


def _stack(lines: Sequence[Line], x: Axis, y: Axis) -> Iterator[str]:
    """Each line's area on top of those before it, by the cells of the first; shares of what they are together."""
    steps = [cell.last for cell in max((line.curve.cells for line in lines), key=len)]
    values = [_at_steps(line.curve.cells, steps) for line in lines]
    whole = [sum(column) or 1.0 for column in zip(*values, strict=True)]
    below = [0.0] * len(steps)
    for line, own in zip(lines, values, strict=True):
        above = [low + value / total for low, value, total in zip(below, own, whole, strict=True)]
        edges = [(x(step), y(high)) for step, high in zip(steps, above, strict=True)]
        floor = [(x(step), y(low)) for step, low in zip(reversed(steps), reversed(below), strict=True)]
        if len(steps) == 1:  # one record fills the width
            edges = [(x(0), edges[0][1]), (x(steps[0]), edges[0][1])]
            floor = [(x(steps[0]), floor[0][1]), (x(0), floor[0][1])]
        yield f'<path class="area c{line.color}" d="{_path([*edges, *floor])}z"/>'
        below = above


def _at_steps(cells: Sequence[Cell], steps: Sequence[int]) -> list[float]:
    """The mean of the cell that each step lies in, 0 where there is none."""
    found, index = [], 0
    for step in steps:
        while index + 1 < len(cells) and cells[index].last < step:
            index += 1
        cell = cells[index]
        found.append(cell.mean if cell.step <= step <= cell.last else 0.0)
    return found


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in places)


def _told(chart: Chart, lines: Sequence[Line]) -> str:
    """The drawing in words, for those who do not see it."""
    ends = [f"{line.label} ends at {chart.text((line.curve.last or 0.0) * line.factor)}" for line in lines]
    return f"{chart.title}: {'; '.join(ends)}"


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

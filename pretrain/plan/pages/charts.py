"""The planner's one kit for drawings: stacked bars and plots, as SVG without scripts, in a page or as a file of its
own.

Colours are classes (c0, c1, ...) of the page's style sheet, what a mark stands for is its <title>. No style attribute
is used: the page's content-security policy would refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from pretrain.monitor.charts import Axis, Format, short

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 14, 40
NUM_COLORS = 12  # in the style sheet
BAR, BAR_PITCH = 16, 42  # pixels, with the words over a bar
MARGIN, LINE = 16, 18  # of a file of its own: around a drawing; of a line of words
COLORS = {  # of a file of its own, on light and dark ground
    "light": ("#fff", "#1f2328", "#d0d7de", "#1b6ca8", "#b5651d", "#3c8d40", "#8a8f98"),
    "dark": ("#0d1117", "#e6edf3", "#30363d", "#6cb6ff", "#e0a060", "#7ed083", "#8d949e"),
}


@dataclass(frozen=True)
class Drawing:
    """One drawing: `figure` puts it into a page, `picture` several into a file."""

    title: str
    parts: Sequence[str]  # SVG
    height: float
    told: str  # in words, for those who do not see it
    legend: Sequence[tuple[str, int]] = ()  # names and colours
    note: str = ""
    width: float = WIDTH

    @property
    def figure(self) -> str:
        """HTML: with its title, what its colours mean, and a note; wide ones scroll."""
        spans = "".join(f'<span><i class="c{color}"></i>{escape(name)}</span>' for name, color in self.legend)
        note = f"<figcaption>{escape(self.note)}</figcaption>" if self.note else ""
        box = f'viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        svg = f'<svg {box} role="img" aria-label="{escape(self.told)}">{"".join(self.parts)}</svg>'
        kind = ""
        if self.width > WIDTH:
            svg, kind = f'<div class="scroll">{svg}</div>', ' class="wide"'
        return f'<figure{kind}><h3>{escape(self.title)}</h3><p class="legend">{spans}</p>{svg}{note}</figure>\n'


@dataclass(frozen=True)
class Bar:
    """One bar: its name, parts by name, and words at its end."""

    name: str
    parts: Mapping[str, float]
    end: str


@dataclass(frozen=True)
class Dot:
    """One mark of a plot."""

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


def bars(
    title: str, rows: Sequence[Bar], text: Format, limit: tuple[float, str] | None = None, note: str = ""
) -> Drawing:
    """Horizontal stacked bars from 0, in the colours of their parts' order; `limit` is a line across all, with its
    name."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.parts.items() if value > 0))
    legend = [(name, index % NUM_COLORS) for index, name in enumerate(names)]
    scale = (WIDTH - 2) / (max([sum(row.parts.values()) for row in rows] + ([limit[0]] if limit else [])) or 1.0)
    parts = []
    for index, row in enumerate(rows):
        top, left = index * BAR_PITCH, 0.0
        parts += [_text(0, top + 14, row.name, kind="ink"), _text(WIDTH, top + 14, row.end, "end")]
        for name, value in row.parts.items():
            if value > 0:
                kind = f"c{dict(legend)[name]}"
                parts.append(_rect(left * scale, top + 20, value * scale, BAR, kind, f"{name}: {text(value)}"))
            left += value
    height = len(rows) * BAR_PITCH + (18 if limit else 0)
    if limit:
        parts += [
            _line("event", limit[0] * scale, 0, height - 16),
            _text(limit[0] * scale, height - 2, limit[1], "end"),
        ]
    return Drawing(title, parts, height, "; ".join(f"{row.name}: {row.end}" for row in rows), legend, note)


def plot(
    title: str,
    groups: Sequence[Dots],
    x_name: str,
    y_name: str,
    text: Format = short,
    x_limit: float | None = None,
    doubles: bool = False,
    note: str = "",
) -> Drawing:
    """Marks and lines over two axes from 0; marks that would hide each other are drawn once.

    Args:
        text: of values of the y axis.
        x_limit: where a line goes up.
        doubles: x are numbers of devices, each with its tick; the axis is logarithmic.
    """
    every = [dot for group in groups for dot in group.dots]
    numbers = sorted({dot.x for dot in every}) if doubles else None
    if numbers:
        x = Axis(numbers[0], max(numbers[-1], 2 * numbers[0]), LEFT + 10, WIDTH - RIGHT - 14, log=True)
    else:
        x = Axis(0.0, max([dot.x for dot in every] + ([x_limit] if x_limit else [])) * 1.04, LEFT, WIDTH - RIGHT)
    y = Axis(0.0, max(dot.y for dot in every) * 1.07, HEIGHT - BOTTOM, TOP)
    parts = [_text(WIDTH - RIGHT, HEIGHT - 6, x_name, "end"), _text(0, 8, y_name)]
    for value in y.ticks():
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y(value):.1f}" x2="{WIDTH - RIGHT}" y2="{y(value):.1f}"/>')
        parts.append(_text(LEFT - 6, y(value) + 4, text(value), "end"))
    parts += [
        _text(x(value), HEIGHT - BOTTOM + 16, short(value), "middle") for value in _apart(numbers or x.ticks(), x)
    ]
    parts += [_line("event", x(x_limit), TOP, HEIGHT - BOTTOM)] if x_limit else []
    parts += [mark for group in groups for mark in _marks(group, x, y)]
    told = "; ".join(
        f"{group.name}: {len(group.dots)}, ends at {text(group.dots[-1].y)}" for group in groups if group.dots
    )
    legend = [(group.name, group.color) for group in groups]
    return Drawing(title, parts, HEIGHT, f"{y_name} over {x_name}: {told}", legend, note)


def picture(drawings: Sequence[Drawing], words: Sequence[str] = ()) -> str:
    """One SVG file that needs nothing else, on light or dark ground: drawings below each other, and lines of words."""
    parts, top = [], MARGIN
    for one in drawings:
        heads = [_text(0, 12, one.title, kind="ink")]
        heads += [
            _text(0, 12 + LINE * place, f"■ {name}", kind=f"c{color}")
            for place, (name, color) in enumerate(one.legend, 1)
        ]
        below = LINE * (len(heads) + 1)
        body = "".join([*heads, f'<g transform="translate(0,{below})">', *one.parts, "</g>"])
        parts.append(f'<g transform="translate({MARGIN},{top})">{body}</g>')
        top += below + int(one.height) + MARGIN
    parts += [_text(MARGIN, top + LINE * (place + 1), line, kind="ink") for place, line in enumerate(words)]
    width = 2 * MARGIN + max([one.width for one in drawings] + [7.0 * len(line) for line in words], default=WIDTH)
    box = f'width="{width:.0f}" height="{top + LINE * len(words) + MARGIN}"'
    ground = f"<style>{_sheet('light')}@media(prefers-color-scheme:dark){{{_sheet('dark')}}}</style>"
    ground += f'<rect class="ground" {box}/>'
    font = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} {font}>{ground}{"".join(parts)}</svg>\n'


def _sheet(ground: str) -> str:
    paper, ink, grid, *colors = COLORS[ground]
    kinds = "".join(f".c{at}{{color:{color};fill:{color}}}" for at, color in enumerate(colors))
    return (
        f".ground{{fill:{paper}}}text,.ink{{fill:{ink}}}.grid,.event{{stroke:{grid}}}{kinds}"
        ".line{fill:none;stroke:currentColor;stroke-width:1.7}"
    )


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


def _apart(values: Iterable[float], axis: Axis) -> Iterator[float]:
    """Those whose names do not lie on each other."""
    last = -math.inf
    for value in values:
        if axis(value) - last >= 34:
            yield value
            last = axis(value)


def _rect(x: float, y: float, width: float, height: float, kind: str, about: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(0.3, width):.1f}" height="{height}"'
    return f'<rect class="{kind}" {place}{more}>{f"<title>{escape(about)}</title>" if about else ""}</rect>'


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'


def _text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    about = f' class="{kind}"' if kind else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{about} x="{x:.1f}" y="{y:.1f}"{place}>{escape(words)}</text>'

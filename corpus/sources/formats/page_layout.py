"""Pieces of a printed page in reading order: lines, two or more columns, paragraphs that lines were cut from.

Columns stand on both sides of a gutter that most pieces leave free, where most of them fill their side: a table does
not. What crosses the gutter parts what is above it from what is below. A line goes on in the next one where the next
one's first word had no room in it, nothing is indented, and neither size nor distance changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from statistics import median
from typing import NamedTuple

from corpus.sources.formats.wrapped import FINAL, HYPHEN, is_narrow, joined

SPLIT_GAP = 1.5  # heights of a character between two pieces of a line that do not belong together
NARROW_GAP, WIDE_GAP = 0.2, 0.5  # heights that are a space, between Latin characters and beside a wide one
MIN_SIDE_LINES = 4  # of a column
MIN_FULL_LINE, MIN_FULL_RATIO = 0.7, 0.5  # of a column's width that a full line has, and of lines that are full
MAX_CROSSING_RATIO = 0.5  # of lines that cross the gutter, to those that do not
GUTTER_STEP = 4.0  # points between two places where a gutter is tried
MAX_COLUMNS_DEEP = 2  # columns in a column
MIN_EMS, MIN_COLUMN_EMS = 15, 8  # characters that a wrapped line has, and one of a column
EDGE_EMS, MIN_AT_EDGE_RATIO = 1.5, 0.15  # lines that end there, of all, where lines are cut
MAX_WORD_CHARS = 20
INDENT_EMS, MAX_SIZE_CHANGE, MAX_PITCH_RATIO = 0.8, 0.3, 1.6


@dataclass(slots=True)
class Segment:
    """A piece of a line and its box, in points, upwards."""

    text: str
    left: float
    right: float
    bottom: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    def goes_on(self, left: float, bottom: float, top: float) -> bool:
        """Whether a character that begins there is part of it."""
        height = max(self.height, 1.0)
        is_beside = min(self.top, top) - max(self.bottom, bottom) > 0
        return is_beside and -height < left - self.right < SPLIT_GAP * height

    def add(self, char: str, left: float, right: float, spaces: int) -> None:
        """Append a character; `spaces` before it are 0, 1 that a gap suggests, or 2 that was typed."""
        self.text += self.space(char, left, spaces) + char
        self.right = max(self.right, right)

    def space(self, char: str, left: float, spaces: int = 0, *, is_cell: bool = False) -> str:
        """What stands before a character; beside a wide one a space is only what is as broad as one."""
        gap = (left - self.right) / max(self.height, 1.0)
        if is_cell and gap > SPLIT_GAP:
            return "\t"
        if is_narrow(char) and is_narrow(self.text[-1]):
            return " " if spaces or gap > NARROW_GAP else ""
        return " " if gap > (NARROW_GAP if spaces > 1 else WIDE_GAP) else ""


class Line:
    """Pieces on one baseline, from left to right, cells apart by tabs."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = sorted(segments, key=lambda one: one.left)
        self.text = self.segments[0].text
        for before, segment in pairwise(self.segments):
            self.text += before.space(segment.text[0], segment.left, is_cell=True) + segment.text
        self.left, self.right = self.segments[0].left, self.segments[-1].right
        self.top = max(segment.top for segment in segments)
        self.height = median(segment.height for segment in segments)


class Column(NamedTuple):
    """Lines from top to bottom; `is_alone` where the page has no other beside it; where most of them begin."""

    lines: list[Line]
    is_alone: bool
    left: float


def lines_of(segments: Sequence[Segment]) -> list[Line]:
    """The lines of a page, or of a column, from top to bottom."""
    found: list[list[Segment]] = []
    for segment in sorted(segments, key=lambda one: (-one.top, one.left)):
        last = found[-1][0] if found else None
        overlap = min(last.top, segment.top) - max(last.bottom, segment.bottom) if last else 0
        if last and overlap > 0.5 * min(last.height, segment.height):
            found[-1].append(segment)
        else:
            found.append([segment])
    return [Line(line) for line in found]


def columns_of(segments: Sequence[Segment], depth: int = 0, is_alone: bool = True) -> Iterator[Column]:
    """The columns of a page in reading order."""
    gutter = _gutter(segments) if depth < MAX_COLUMNS_DEEP else None
    if gutter is None:
        if lines := lines_of(segments):
            yield Column(lines, is_alone, sorted(line.left for line in lines)[len(lines) // 10])
        return
    bands: list[tuple[bool, list[Segment]]] = []  # what crosses the gutter, or stands beside it, from top to bottom
    for segment in sorted(segments, key=lambda one: -one.top):
        crosses = segment.left < gutter < segment.right
        if not bands or bands[-1][0] != crosses:
            bands.append((crosses, []))
        bands[-1][1].append(segment)
    for crosses, band in bands:
        sides = [band] if crosses else [[one for one in band if (one.left >= gutter) == side] for side in (False, True)]
        for side in sides:
            yield from columns_of(side, MAX_COLUMNS_DEEP if crosses else depth + 1, crosses)


def _gutter(segments: Sequence[Segment]) -> float | None:
    """Where the widest columns part, or None of a page with one."""
    best, gutter = 0, None
    for place in sorted({(one.right // GUTTER_STEP + 1) * GUTTER_STEP for one in segments}):
        sides = [one for one in segments if one.right <= place], [one for one in segments if one.left >= place]
        beside = len(sides[0]) + len(sides[1])
        if beside <= best or min(map(len, sides)) < MIN_SIDE_LINES or not all(map(_is_column, sides)):
            continue
        shared = min(side[0].top for side in sides) - max(side[-1].bottom for side in sides)
        if shared > 0 and len(segments) - beside <= MAX_CROSSING_RATIO * beside:
            best, gutter = beside, place
    return gutter


def _is_column(side: Sequence[Segment]) -> bool:
    width = max(one.right for one in side) - min(one.left for one in side)
    return sum(one.right - one.left >= MIN_FULL_LINE * width for one in side) >= MIN_FULL_RATIO * len(side)


def paragraphs_of(pages: Sequence[Sequence[Segment]]) -> list[str]:
    """The paragraphs of pages in reading order, a line each."""
    columns = [column for page in pages for column in columns_of(page)]
    lines = [(line, column) for column in columns for line in column.lines]
    size = median(line.height for line, _ in lines) if lines else 0.0
    widths = {
        is_alone: _width([line.right - its.left for line, its in lines if its.is_alone == is_alone], size, least)
        for is_alone, least in ((True, MIN_EMS * size), (False, MIN_COLUMN_EMS * size))
    }
    steps = [before.top - line.top for column in columns for before, line in pairwise(column.lines)]
    pitch = median(steps) if steps else 0.0
    follows = [False] + [_goes_on(*one, *after, widths[one[1].is_alone], pitch) for one, after in pairwise(lines)]
    return joined((line.text, goes_on) for (line, _), goes_on in zip(lines, follows, strict=False))


def _width(widths: list[float], size: float, least: float) -> float | None:
    """The greatest width that many lines reach; None where it is too little for lines to be cut there."""
    widths.sort()
    for at in range(len(widths) - 1, bisect_left(widths, least) - 1, -1):
        if at + 1 - bisect_left(widths, widths[at] - EDGE_EMS * size) >= MIN_AT_EDGE_RATIO * len(widths):
            return widths[at]
    return None


def _goes_on(line: Line, column: Column, after: Line, its: Column, width: float | None, pitch: float) -> bool:
    """Whether a paragraph goes on from a line to the one after it, each in its column."""
    em = line.height
    if line.text.endswith(HYPHEN):
        return True
    if width is None or "\t" in line.text or "\t" in after.text:
        return False
    word = sum(1 for _ in takewhile(lambda char: is_narrow(char) and char != " ", after.text[:MAX_WORD_CHARS]))
    if line.right + max(1.0, 0.5 * word) * em + 0.5 * em < column.left + width:
        return False
    if column.is_alone != its.is_alone or abs(line.height - after.height) > MAX_SIZE_CHANGE * max(
        line.height, after.height
    ):
        return False
    if column is its and line.top - after.top > MAX_PITCH_RATIO * pitch:
        return False
    indent = after.left - its.left
    is_indented = indent > INDENT_EMS * em and indent > line.left - column.left + INDENT_EMS * em
    return not (is_indented and line.text.endswith(FINAL))

"""Drawings say what is so: lengths, places, and nothing outside the picture."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.chart import HEIGHT, WIDTH, Bar, Drawing, Mark, Point, Row, Series, bars, plot, strips


def drawn(drawing: Drawing) -> ElementTree.Element:
    (found,) = re.findall(r"<svg.*?</svg>", drawing.figure, re.DOTALL)
    return ElementTree.fromstring(found)


@pytest.mark.parametrize("name", ["one", "a name too long for a place beside its bar"])
def test_the_bars_are_the_parts(name: str) -> None:
    rows = [Bar(name, {"a": 1.0, "b": 3.0}, "4"), Bar("two", {"b": 2.0, "c": None}, "2")]
    svg = drawn(bars("title", rows, str, limit=(8.0, "most")))
    found = [(one.get("class"), float(one.get("width", 0)), float(one.get("x", 0))) for one in svg.iter("rect")]
    (_, unit, left), *_ = found
    assert [(kind, round(width / unit)) for kind, width, _ in found] == [("area c0", 1), ("area c1", 3), ("area c1", 2)]
    assert [round((x - left) / unit) for *_, x in found] == [0, 1, 0]
    (line,) = svg.iter("line")
    assert float(line.get("x1", 0)) - left == pytest.approx(8 * unit, rel=0.01)


@pytest.mark.parametrize(
    "points", [[], [Point(0, 0)], [Point(1, math.nan)], [Point(0, 1), Point(1, math.inf), Point(2, 1, "", math.nan, 3)]]
)
@pytest.mark.parametrize("x_log", [False, True])
def test_little_or_nothing_to_draw(points: list[Point], x_log: bool) -> None:
    points = [point._replace(x=point.x + x_log) for point in points]
    svg = drawn(plot("t", [Series("some", points, between="range", radius=2.0)], "x", "y", x_log=x_log))
    finite = [point for point in points if math.isfinite(point.y) and point.low is None]
    assert len([*svg.iter("circle")]) == len(finite) and "nan" not in ElementTree.tostring(svg, "unicode")
    assert len([*drawn(strips("t", [Row("r", [Mark("dot", 0.0)])], (0.0, 0.0), "told")).iter("circle")]) == 1


def test_marks_that_hide_each_other_are_drawn_once() -> None:
    points = [Point(1, 1), Point(1, 1.0001), Point(5, 9, "far")]
    svg = drawn(plot("t", [Series("some", points, is_line=False, radius=2.0)], "x", "y", marks=[("event", 10, "")]))
    assert [one.text for one in svg.iter("title")] == ["far"]
    (left, low), (right, high) = ((float(one.get("cx", 0)), float(one.get("cy", 0))) for one in svg.iter("circle"))
    assert sorted([left, right])[0] < sorted([left, right])[1] and low != high
    (event,) = (float(one.get("x1", 0)) for one in svg.iter("line") if one.get("class") == "event")
    assert event > max(left, right)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e6, 1e6)), min_size=1, max_size=30), st.booleans())
def test_all_that_is_drawn_lies_in_the_picture(values: list[tuple[int, float]], from_zero: bool) -> None:
    points = [Point(step, value, "", value - 1, value + 1) for step, value in sorted(values)]
    last = max(1, *(step for step, _ in values))
    series = [Series("l", points, radius=2.0, between="range")]
    text = plot("t", series, x_ends=(0, last), from_zero=from_zero, marks=[("restart", last // 2, "")]).figure
    for path in re.findall(r' d="([^"]*)"', text):
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path):
            assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= HEIGHT
    assert "nan" not in text and "inf" not in text


def test_values_of_many_sizes_have_a_logarithmic_axis() -> None:
    svg = drawn(plot("t", [Series("l", [Point(1, 1.0), Point(2, 1e4)])], from_zero=False))
    assert [one.text for one in svg.iter("text") if one.get("text-anchor") == "end"][:5] == [
        "1",
        "10",
        "100",
        "1K",
        "10K",
    ]

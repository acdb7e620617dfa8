"""FAULTS row 10: stacked combining marks (Zalgo) are cut before Unicode sees them, so twice the text costs twice.

`unicodedata.normalize` alone is quadratic in a run of marks (160 KB: 54 s).
"""

from __future__ import annotations

import unicodedata

import pytest

from corpus.filters import Filter, load
from corpus.normalize import MAX_MARKS_PER_BASE
from tests.linear import assert_linear

FAMILIES = {
    "one mark": "\u0301",
    "two classes": "\u0301\u0316",
    "falling classes": "\u0316\u0301\u0345",
    "marks that decompose": "\u0344",
    "marks held apart": "\u0301\u200b\u0316\u200d",
    "class 0": "\ufe0f",
    "a base each eight": "a" + "\u0316\u0301" * 4,
    "jamo": "\u1100\u1161\u11a8",
    "kana": "\u304b\u3099",
}


@pytest.fixture(scope="module")
def web_zh() -> Filter:
    return load("web_zh")


@pytest.mark.parametrize("name", FAMILIES)
def test_twice_the_marks_cost_twice(name: str, web_zh: Filter) -> None:
    assert_linear(web_zh.apply, lambda copies: ["字" + FAMILIES[name] * copies], 40_000, slack=0.02)


@pytest.mark.parametrize("name", ["one mark", "two classes", "falling classes", "marks held apart", "class 0"])
def test_eight_marks_are_left_on_a_base(name: str, web_zh: Filter) -> None:
    (verdict,) = web_zh.apply(["字" + FAMILIES[name] * 100 + "字"])
    assert sum(unicodedata.category(c)[0] == "M" for c in verdict.text) == MAX_MARKS_PER_BASE

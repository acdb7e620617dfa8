"""Normalisation by kernels against its definition, `corpus.normalize`: the same bytes, the same counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.filters import edits, normalizing
from corpus.filters.edits import Edits
from corpus.filters.statistic import buffers
from corpus.normalize import normalize_with_changes
from tests.corpus.texts import document
from tests.examples import examples

WHITE = " \t\u3000\n\r\x0b\x85\u2028\xa0\u2003\u200b"
TROUBLE = (
    WHITE
    + "\u200d\u200c\ufe0f\ufe0e\u0301\u0344\u1100\u1161\u11a8❤👩\ufb2c\u0338←\u212a\u2581\xad\u202e"
    + "\ufeff\ue000\ufffe\U000e0041\U000e0101\U0002f800\uf900⼈⺇ﬁ︒学a"
)
TEXTS = st.lists(
    st.one_of(
        st.text(st.sampled_from(WHITE + "学，a"), max_size=30),
        st.text(st.one_of(st.sampled_from(TROUBLE), st.characters(codec="utf-8")), max_size=40),
    ),
    max_size=6,
)


def normalized(texts: list[str]) -> tuple[list[str], list[dict[str, int]]]:
    """Between two other documents, so that offsets do not start at zero."""
    array = pa.array([" 前\n", *texts, "\n后 "], pa.large_string()).slice(1, len(texts))
    log = Edits()
    result = edits.normalize(array, log)
    result.validate(full=True)
    counts = [
        {edit["kind"].removeprefix("normalize."): edit["count"] for edit in row or []}
        for row in log.column(len(texts)).to_pylist()
    ]
    return result.to_pylist(), counts


def needs(texts: list[str]) -> list[int]:
    out = np.zeros(len(texts), np.uint8)
    normalizing.scan(*buffers(pa.array(texts, pa.large_string())), normalizing.action_table(), out)
    return out.tolist()


@given(TEXTS)
@examples(300)
def test_kernels_equal_the_definition(texts: list[str]) -> None:
    expected = [normalize_with_changes(text) for text in texts]
    found, counts = normalized(texts)
    assert found == [text for text, _ in expected]
    assert [list(count.items()) for count in counts] == [list(count.items()) for _, count in expected]


def test_every_code_point_equals_the_definition() -> None:
    codes = [*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE0200), *range(0x10FF00, 0x110000)]
    texts = [f"学{chr(code)}{chr(code)}a" for code in codes]
    assert normalized(texts)[0] == [normalize_with_changes(text)[0] for text in texts]


@pytest.mark.parametrize(
    "text", ["甲\r\n乙\r丙", "甲\r\r\n\n乙", "甲\r", "甲  \r\n   \x0b\u3000\n乙", "甲\xa0\xa0\u200b\t乙"]
)
def test_white_space_in_a_row(text: str) -> None:
    expected, counts = normalize_with_changes(text)
    assert normalized([text]) == ([expected], [counts])


@pytest.mark.parametrize(
    ("text", "need"),
    [
        (document(1), normalizing.CLEAN),
        ("　　段首空两格。\n    缩进", normalizing.CLEAN),
        ("❤️ 好", normalizing.CLEAN),  # a variation selector composes with nothing
        ("行末 \n空格", normalizing.REWRITE),
        ("学\u200b而", normalizing.REWRITE),
        ("e\u0301", normalizing.PYTHON),
        ("\uf900\U0002f800", normalizing.CLEAN),
        ("⼈︒", normalizing.REWRITE),
        ("⺇", normalizing.PYTHON),  # its ideograph has four bytes
        ("ﬁ", normalizing.PYTHON),
        ("👩\u200d👩", normalizing.PYTHON),
        ("行\r\n末", normalizing.REWRITE),
        ("字" + "\ufe0f" * 9, normalizing.PYTHON),
        ("字" + "\ufe0f\u200b" * 9, normalizing.PYTHON),  # nine in a row once the others are gone
    ],
)
def test_python_is_called_for_composition_only(text: str, need: int) -> None:
    assert needs([text]) == [need]


def test_nothing_to_do_copies_nothing() -> None:
    texts = pa.array([document(1), document(2)], pa.large_string())
    assert edits.normalize(texts, Edits()) is texts

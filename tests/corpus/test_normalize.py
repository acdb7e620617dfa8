"""Normalisation: keeps Chinese as written, removes what only hides or breaks, idempotent, linear."""

from __future__ import annotations

import re
import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.normalize import MAX_MARKS_PER_BASE, normalize_with_changes
from tests.linear import assert_linear

TROUBLE = (
    "\u200d\u200c\ufe0f\u0301\u0344\u1100\u1161\u11a8❤👩 \u3000\n\t\r\ufb2c\u0338←\u212a\u2581\xa0\xad\u202e\ufeff\ue000"
    "\uf900⼈⺇ﬁ︒"
)
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(TROUBLE)), max_size=40)

IDEOGRAPHS = re.compile("[\uf900-\ufaff\U0002f800-\U0002fa1f]")  # of compatibility

KEPT = [
    "学而时习之，不亦说乎？“有朋自远方来”——《论语》（学而）……！；：、「」『』【】〈〉〔〕·～",
    "１２３ＡＢＣ，全角的数字和字母；㈱ ① Ⅳ ㎏ ﹃豎排﹄",
    "學而時習之，不亦說乎？有朋自遠方來，不亦樂乎？臺灣、裏面、麪包",
    "　　段首空两格。\n　　第二段。",
    "def f(x):\n    if x:\n        return x  # 返回\n\ttab",
    "𠮷野家、㐂、䶮、〇、々、𪚥",
    "👨‍👩‍👧 ❤️ 👍🏽",
    "私用区的字\ue000还在",
    "\ufa19\ufa1b\ufa26\uf900\U0002f80b\ufa0c，兼容汉字",
    "o(︶︿︶)o　時間︰﹁三點﹂",
    "⺀㇏笔画",
]


def normalized(text: str) -> str:
    return normalize_with_changes(text)[0]


@pytest.mark.parametrize("text", KEPT)
def test_what_chinese_writers_write_is_kept(text: str) -> None:
    assert normalized(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("学\x00而\x07时\x1b习\x7f之\x85", "学而时习之"),
        ("a\r\nb\rc\x0bd\x0ce\u2028f\u2029g", "a\nb\nc\nd\ne\nf\ng"),
        ("学\u200b而\u2060时\ufeff习\xad之", "学而时习之"),
        ("加\u200d微\u200c信", "加微信"),
        ("\u202e倒\u202c写\u2066的\u2069字\u200e。\u061c", "倒写的字。"),
        ("▁word▁", "_word_"),
        ("a\xa0b\u2003c\u202fd", "a b c d"),
        ("\ufdd0\ufffe\U0001ffff\U0010ffff字", "字"),
        ("标\U000e0041签", "标签"),
        ("坏\ud800的", "坏\ufffd的"),
        ("e\u0301", "é"),
        ("👩\u200c👩\u200d\u200d👩", "👩👩\u200d👩"),
        ("字" + "\u0344" * 8, "字" + "\u0308\u0301" * 4),  # two marks each once composed
        ("\u1100\u1161\u11a8", "각"),
        ("e\u0301\uf900\u0301\u0316o\u0308", "é\uf900\u0316\u0301ö"),  # composition around a compatibility ideograph
        ("本⽂⽬的在⼈⼯智能，⻓⻛⻅⺕", "本文目的在人工智能，长风见彐"),
        ("⺇⾏ ⺮", "𠘨行 𥫗"),  # beyond plane 0
        ("ﬁne ﬄow ﬁ\u0301", "fine fflow fí"),
        ("甲︐乙︒︿︵丙︙", "甲，乙。︿︵丙…"),
        ("一  \n二\t\n三　\n", "一\n二\n三"),
        ("一\n\n\n\n二", "一\n\n二"),
        ("一     二", "一\t二"),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_what_hides_or_breaks_is_removed(text: str, expected: str) -> None:
    assert normalized(text) == expected


def test_changes_are_counted_by_kind() -> None:
    assert normalize_with_changes("字" + "\u0344" * 8)[1] == {"composed": 1, "marks": 1}
    _, changes = normalize_with_changes("⼈⼯⺇ﬁ︒\uf900")
    assert changes == {"radicals": 3, "presentation_forms": 2}
    _, changes = normalize_with_changes("学\u200b而\u200b时\u202f习\r\n之\r\n。 ")
    assert changes == {"invisible": 2, "spaces": 1, "line_ends": 2, "white_space": 1}


@given(TEXTS)
def test_idempotent_and_composed(text: str) -> None:
    once = normalized(text)
    assert normalized(once) == once
    assert unicodedata.is_normalized("NFC", IDEOGRAPHS.sub("", once))
    once.encode()


def test_marks_are_capped_before_composition() -> None:
    bomb = "字" + "\u0301\u0316" * 80_000  # quadratic if it reached unicodedata: a minute
    marks = [c for c in normalized(bomb) if unicodedata.combining(c)]
    assert len(marks) == MAX_MARKS_PER_BASE


def test_marks_cost_no_memory_each() -> None:
    text = "a" + "\u0301" * 1_000_000
    tracemalloc.start()
    normalize_with_changes(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * len(text)  # the strings; a regular expression that may go back holds 150 bytes a mark


@pytest.mark.parametrize(
    "family",
    ["a\u0301\u0316", "\u0344", "\u200d", "👩\u200d", "\uf900\u0344", "⼈ﬁ", "a   ", "   a", " ", "\n", " \n", "\x00"],
)
def test_time_is_linear(family: str) -> None:
    assert_linear(normalize_with_changes, lambda copies: family * copies, 40_000)

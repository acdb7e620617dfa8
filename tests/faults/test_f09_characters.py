"""FAULTS row 9: characters that hide, reorder, break or are no characters leave the text, and each is counted.

Private use stays and is measured: it may be a font's own Chinese. Chinese and full-width marks are never touched.
"""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.filters import Filter, load, measure
from tests.corpus.texts import document
from tests.examples import examples

GOOD = document(11)
HALF = len(GOOD) // 2

ODD = {  # what is put between two halves of a good document, what is left of it, how it is recorded
    "NUL": ("\x00", "", "invisible"),
    "C0": ("\x01\x08\x0e\x1f\x7f", "", "invisible"),
    "C1": ("\x80\x84\x86\x9f", "", "invisible"),
    "line ends of C0 and C1": ("甲\x0b乙\x0c丙\x85丁", "甲\n乙\n丙\n丁", "line_ends"),
    "line and paragraph separators": ("甲\u2028乙\u2029丙", "甲\n乙\n丙", "line_ends"),
    "carriage returns": ("甲\r\n乙\r丙", "甲\n乙\n丙", "line_ends"),
    "lone surrogates": ("甲\ud800乙\udfff", "甲\ufffd乙\ufffd", None),  # Arrow cannot hold them: gone before
    "noncharacters": ("\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff", "", "invisible"),
    "bidirectional overrides": ("\u202a\u202b\u202d\u202e\u202c", "", "invisible"),
    "bidirectional isolates": ("\u2066\u2067\u2068\u2069", "", "invisible"),
    "direction marks": ("\u200e\u200f\u061c", "", "invisible"),
    "zero width inside Han": ("甲\u200b乙\u2060丙\ufeff丁", "甲乙丙丁", "invisible"),
    "joiners inside Han": ("甲\u200d乙\u200c丙", "甲乙丙", "joiners"),
    "soft hyphen": ("维\xad生", "维生", "invisible"),
    "tag characters": ("\U000e0001\U000e0041\U000e007f", "", "invisible"),
    "SentencePiece's space": ("▁词▁", "_词_", "sentencepiece_space"),
    "exotic spaces": ("甲\xa0乙\u2003丙\u202f丁\u205f戊", "甲 乙 丙 丁 戊", "spaces"),
    "marks": ("甲" + "\u0316" * 20, "甲" + "\u0316" * 8, "marks"),
    "private use": ("\ue000\U000f0000\U0010fffd", "\ue000\U000f0000\U0010fffd", None),
    "joiners inside emoji": ("👩\u200d🚀", "👩\u200d🚀", None),
    "Chinese marks": ("，。！？；：“”‘’（）《》【】「」『』〔〕…—～·、　Ａ１", "，。！？；：“”‘’（）《》【】「」『』〔〕…—～·、　Ａ１", None),
}  # fmt: skip
GONE = "\xad\u061c\u180e\u200b\u200c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2069\ufeff\u2581\xa0\u2003"


def is_gone(character: str) -> bool:
    """Whether no text may hold it afterwards."""
    code = ord(character)
    is_mark = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF or 0xE0000 <= code <= 0xE007F
    is_control = unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") and character not in "\n\t"
    return is_mark or is_control or character in GONE


@pytest.fixture(scope="module")
def web_zh() -> Filter:
    return load("web_zh", ["filter.edit.boilerplate_lines=false", "filter.edit.personal_data=[]"])


@pytest.mark.parametrize("name", ODD)
def test_table(name: str, web_zh: Filter) -> None:
    odd, left, kind = ODD[name]
    (row,) = web_zh.apply([GOOD[:HALF] + odd + GOOD[HALF:]]).table.to_pylist()
    assert row["text"] == GOOD[:HALF] + left + GOOD[HALF:]
    kinds = {edit["kind"]: edit["count"] for edit in row["edits"] or []}
    if kind is None:
        assert kinds == {}
    else:
        count = {"marks": 1, "line_ends": left.count("\n"), "spaces": 4, "sentencepiece_space": 2, "joiners": 2}
        assert kinds == {f"normalize.{kind}": count.get(kind, len(odd) - len(left))}


def test_private_use_and_replacements_are_measured() -> None:
    text = ["天地\ue000\U000f0000", "天地\ufffd\ufffd"]
    assert measure("characters.private_use_ratio", text).tolist() == [0.5, 0.0]
    assert measure("characters.unreadable_ratio", text).tolist() == [0.5, 0.5]


@given(st.lists(st.text(st.characters(), max_size=60), max_size=4))
@examples(150)
def test_any_text_at_all(texts: list[str]) -> None:
    table = load("web_zh").apply(texts).table
    table.validate(full=True)
    for text in table["text"].to_pylist():
        assert not any(map(is_gone, text))
        assert unicodedata.is_normalized("NFC", text)
    again = load("web_zh").apply(table["text"]).table
    assert again["text"].equals(table["text"])

from __future__ import annotations

import itertools

import numpy as np
import opencc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.text.fold import fold
from corpus.dedup.text.fold_table import HAN_RANGES, SKIP, fold_digest, fold_table
from tests.corpus.dedup.texts import POEM, TRADITIONAL_POEM
from tests.examples import examples


def folded(*texts: str | bytes) -> list[str]:
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int64)
    codes, code_offsets = fold(offsets, np.frombuffer(b"".join(data), np.uint8))
    return ["".join(map(chr, codes[a:b])) for a, b in itertools.pairwise(code_offsets)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＡＢＣ　ａｂｃ１２３", "abcabc123"),
        ("漢字，隨著時間。", "汉字随着时间"),
        ("臺灣裡面衞生", "台湾里面卫生"),
        ("“你好”——他说……", "你好他说"),
        ("A\u200bB\ufeffC\u202eD", "abcd"),
        ("～～～｜──■", ""),
        ("3+5=８ ￥100 ①", "3+5=8¥1001"),
        ("Café cafe\u0301", "cafecafe"),
        ("ﾊﾟﾋﾟ パピ", "ハヒハヒ"),
        ("⼈工", "人工"),  # Kangxi radical
        ("豈\U0002f800", "岂丽"),  # compatibility ideographs
        ("𠮷野家", "𠮷野家"),
        ("㎏½", "㎏½"),  # would need more than one character
        ("", ""),
    ],
)
def test_fold_keeps_what_two_spellings_share(text: str, expected: str) -> None:
    assert folded(text) == [expected]


def test_traditional_twin_folds_to_the_same_text() -> None:
    twin, text = folded(TRADITIONAL_POEM, POEM)
    assert twin == text and len(text) > 60


def test_texts_are_folded_one_by_one_with_their_offsets() -> None:
    texts = ["學", "", "，，", "而時 習之", "x"]
    assert folded(*texts) == ["学", "", "", "而时习之", "x"]


def test_every_simplification_of_opencc_is_in_the_table() -> None:
    han = [chr(code) for low, high in HAN_RANGES for code in range(low, high)]
    simplified = opencc.OpenCC("t2s").convert("\n".join(han)).split("\n")
    table = fold_table()
    changed = [(a, b) for a, b in zip(han, simplified, strict=True) if a != b]
    assert len(changed) > 4_000
    assert all(table[ord(a)] == table[ord(b)] for a, b in changed)


def test_folding_twice_changes_nothing() -> None:
    table = fold_table()
    assert (table[table] == table).all()
    assert table[SKIP] == SKIP


def test_the_digest_names_the_table() -> None:
    assert fold_digest() == fold_digest() and len(fold_digest()) == 32


@examples(200)
@given(st.text(max_size=60))
def test_the_kernel_is_the_table_applied_to_each_code_point(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    table = fold_table()
    assert folded(text) == ["".join(chr(table[ord(c)]) for c in text if table[ord(c)] != SKIP)]


@examples(300)
@given(st.lists(st.binary(max_size=12), max_size=6))
def test_any_bytes_are_safe_and_stay_in_their_text(parts: list[bytes]) -> None:
    alone = [folded(part)[0] for part in parts]
    assert folded(*parts) == alone
    assert all(len(form) <= len(part) for form, part in zip(alone, parts, strict=True))


def test_a_cut_character_is_a_replacement_character() -> None:
    assert folded("学".encode()[:2], b"\x80\x80", b"\xff") == ["\ufffd", "", "\ufffd"]

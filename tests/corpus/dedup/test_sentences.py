"""Sentences cover a text, end where they should, fold as the whole does, and line up again after a different start."""

from __future__ import annotations

import itertools
import random
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.passages.sentences import LONG_PIECE, LONG_SENTENCE, Sentences, read_sentences
from corpus.dedup.text.fold import fold
from corpus.dedup.text.keys import text_buffers
from tests.corpus.texts import document

MIXED = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("天地。！”」， .\n\u0301\u200d👩𠀀"))
)


def cut(texts: list[str]) -> tuple[Sentences, bytes]:
    offsets, data = text_buffers(pa.array(texts, pa.large_string()))
    return read_sentences(offsets, data), data.tobytes()


def pieces(text: str) -> list[str]:
    sentences, data = cut([text])
    return [data[start:end].decode() for start, end in itertools.pairwise(sentences.bounds.tolist())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("学而时习之，不亦说乎？有朋自远方来", ["学而时习之，不亦说乎？", "有朋自远方来"]),
        ("“走！”他说……“好。」\n\n （完）", ["“走！”", "他说……", "“好。」\n\n ", "（完）"]),
        ("圆周率是3.14。See p. 3. U.S.A", ["圆周率是3.14。", "See p. ", "3. ", "U.S.A"]),
        ("一。\n----\n二。\n****\n", ["一。\n", "----\n二。\n****\n"]),
        ("好。\u0301\ufe0f\u200d好", ["好。\u0301\ufe0f\u200d好"]),  # joined: one character with what follows
        ("……", ["……"]),
        ("", []),
    ],
)
def test_where_sentences_end(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.lists(MIXED, max_size=4))
def test_any_text_is_covered_in_whole_characters(texts: list[str]) -> None:
    sentences, data = cut(texts)
    bounds = sentences.bounds.tolist()
    parts = [data[start:end].decode() for start, end in itertools.pairwise(bounds)]  # raises inside a character
    assert "".join(parts) == "".join(texts) and len(sentences.edges) == len(texts) + 1
    for text, (first, last) in zip(texts, itertools.pairwise(sentences.edges.tolist()), strict=True):
        assert "".join(parts[first:last]) == text
        assert not any(unicodedata.category(part[0]).startswith("M") for part in parts[first + 1 : last])
    offsets, array = text_buffers(pa.array(texts, pa.large_string()))
    codes, code_offsets = fold(offsets, array)
    assert np.array_equal(codes, sentences.codes)
    assert np.array_equal(code_offsets, sentences.offsets[sentences.edges])
    lengths = np.diff(sentences.offsets)
    assert (lengths > 0).all() or any(
        text and not size for text, size in zip(texts, np.diff(code_offsets), strict=True)
    )


@given(st.binary(max_size=60))
def test_any_bytes_are_safe(data: bytes) -> None:
    array, offsets = np.frombuffer(data, np.uint8), np.array([0, len(data)])
    sentences = read_sentences(offsets, array)
    assert np.array_equal(sentences.codes, fold(offsets, array)[0])


def test_script_and_width_do_not_move_a_break() -> None:
    simplified = "“你去哪儿？”她问。他说：“回家！”然后笑了；门开着……结束。"
    traditional = "「妳去哪兒？」她問。他說：「回家！」然後笑了；門開著……結束。"
    narrow = "“你去哪儿?”她问｡他说:“回家!”然后笑了;门开着…结束｡"
    lengths = [np.diff(cut([text])[0].offsets).tolist() for text in (simplified, traditional, narrow)]
    assert lengths[0] == lengths[1] == lengths[2] and len(lengths[0]) == 6


@pytest.mark.parametrize("separator", ["，", " ", ""])
def test_what_never_ends_is_cut_by_its_content(separator: str) -> None:
    chance = random.Random(0)
    words = ["".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(6)) for _ in range(3000)]
    text = separator.join(words)
    parts = pieces(text)
    assert max(map(len, parts)) < 6 * LONG_PIECE
    assert LONG_SENTENCE / 4 < len(text) / len(parts) < LONG_SENTENCE
    other = pieces("另一个开头" + text[1000:])
    assert len(set(parts) & set(other)) > 0.8 * len(other)
    if separator:
        assert all(part.endswith(separator) for part in parts[:-1])


def test_one_character_for_ever_is_cut_too() -> None:
    assert [len(part) for part in pieces("哈" * 2000)] == [LONG_PIECE] * 3 + [2000 - 3 * LONG_PIECE]


def test_prose_is_cut_at_its_full_stops() -> None:
    text = document(3)
    assert pieces(text) == [part for part in text.replace("。", "。|").replace("|\n", "\n|").split("|") if part]

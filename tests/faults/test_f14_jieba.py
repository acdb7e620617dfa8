"""FAULTS row 14: text on which jieba's cost explodes (its HMM took 77 s for one character 50,000 times) costs its
length.

Segmentation is for training a vocabulary only; what it sees are pieces of at most 1,000 characters, without the HMM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.linear import assert_linear
from tokenizer.train import MAX_SENTENCE_CHARACTERS, WORD_MARK, segment, sentences

HOSTILE = {
    "one character": "的",
    "no word at all": "龘齉齾",
    "words in each other": "中华人民共和国中华人民",
    "Latin": "a",
    "digits and points": "1.",
    "marks": "，",
    "spaces": "　 ",
    "outside the BMP": "𠀀𠀁",
}


@pytest.fixture(scope="module", autouse=True)
def _dictionary() -> None:
    assert list(segment(["预热"])) == ["预热"]


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_text_costs_twice_the_time(unit: str) -> None:
    seconds = assert_linear(
        lambda text: list(segment(sentences([text]))), lambda num: (unit * num)[:num], 100_000, slack=0.02
    )
    assert seconds < 20  # the HMM: 77 s for half of it


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_pieces_are_short_and_nothing_is_lost(unit: str) -> None:
    text = (unit * 5_000)[:5_000]
    pieces = list(segment(sentences([text])))
    assert max(len(piece.replace(WORD_MARK, "")) for piece in pieces) <= MAX_SENTENCE_CHARACTERS == 1_000
    assert "".join(pieces).replace(WORD_MARK, "") == text


def test_names_are_not_guessed() -> None:
    guessed = "孙悟饭和贝吉塔"  # the HMM makes a word of 孙悟饭
    assert list(segment([guessed])) == [WORD_MARK.join(["孙", "悟", "饭", "和", "贝", "吉塔"])]


def test_its_cache_lies_in_a_private_folder() -> None:
    import jieba

    folder = Path(jieba.dt.tmp_dir)
    assert folder.name == "wenhai"
    assert folder.stat().st_mode & 0o077 == 0

"""FAULTS row 14: text on which jieba's cost explodes (its HMM took 77 s for one character 50,000 times) costs its length.

Segmentation is for training a vocabulary only; what it sees are pieces of at most 1,000 characters, without the HMM.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tokenizer.train import MAX_SENTENCE_CHARACTERS, WORD_MARK, segment, sentences

SMALL, MARGIN = 50_000, 3.0
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


def seconds(unit: str, characters: int) -> float:
    """CPU time of segmenting one long line, the least of three."""
    text = (unit * characters)[:characters]
    times = []
    for _ in range(3):
        start = time.process_time()
        for _ in segment(sentences([text])):
            pass
        times.append(time.process_time() - start)
    return min(times)


@pytest.fixture(scope="module", autouse=True)
def _dictionary() -> None:
    assert list(segment(["预热"])) == ["预热"]


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_text_costs_twice_the_time(unit: str) -> None:
    pairs = ((seconds(unit, SMALL), seconds(unit, 2 * SMALL)) for _ in range(5))  # a busy machine's time is not even
    assert any(second < min(MARGIN * first + 0.02, 5.0) for first, second in pairs)  # the HMM: 77 s for half of it


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

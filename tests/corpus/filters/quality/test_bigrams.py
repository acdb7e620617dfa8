"""The shipped bigram table: whole, small, read exactly; scrambled text is told from text, whatever its script or
age."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import WenhaiError
from corpus.filters import load, measure
from corpus.filters.quality import bigrams
from corpus.filters.quality.bigrams import Bigrams, load_bigrams
from corpus.filters.statistic import buffers
from tests.corpus.texts import document

CLASSICAL = (
    "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？温故而知新，可以为师矣。"
    "学而不思则罔，思而不学则殆。三人行，必有我师焉。择其善者而从之，其不善者而改之。"
)
TRADITIONAL = "請在選單中選擇要開啟的檔案，然後按一下確定按鈕。這個設定會影響所有新建立的文件，並在下次啟動時生效。"
LIST_OF_NAMES = (
    "诸葛瑾、欧阳询、司马懿、上官婉儿、慕容垂、尉迟恭、长孙无忌、宇文化及、独孤伽罗、赫连勃勃、令狐楚、皇甫嵩。"
)


def scrambled(text: str, seed: int = 1) -> str:
    characters = list(text)
    random.Random(seed).shuffle(characters)
    return "".join(characters)


def association(text: str) -> float:
    return float(measure("quality.bigram_association", [text])[0])


def naive(text: str) -> tuple[int, int]:
    """Pairs and the sum of their scores, from the table's own lists."""
    table = load_bigrams()
    scores = dict(zip(table.pairs.tolist(), table.scores.tolist(), strict=True))
    level = [0, *table.log_counts.tolist()]
    pairs = total = 0
    for first, second in pairwise(text):
        a, b = (int(table.numbers[ord(c)]) if ord(c) < 0x10000 else 0 for c in (first, second))
        if a and b:
            expected = np.exp((level[a] + level[b]) / table.unit - table.log_total)
            unseen = round(table.unit * float(bigrams.expected_score(0.0, expected, table.smoothing)))
            pairs, total = pairs + 1, total + scores.get(a * bigrams.SIZE + b, max(unseen, -bigrams.MAX_SCORE))
    return pairs, total


@given(st.text(st.sampled_from("学而时习之的文件開啟龘𠮷a，\n"), max_size=40))
def test_the_kernel_equals_the_definition(text: str) -> None:
    counted = load_bigrams().measure(*buffers(pa.array(["前", text, "后"], pa.large_string())))
    assert tuple(counted[1, [bigrams.PAIRS, bigrams.SCORE]]) == naive(text)


@pytest.mark.parametrize("text", [document(1), CLASSICAL, TRADITIONAL, LIST_OF_NAMES], ids=list("mcth"))
def test_text_passes_and_its_characters_in_disorder_do_not(text: str) -> None:
    *_, rule = [rule for rule in load("web_zh").rules if rule.key == "quality.bigram_association"]
    assert rule.min is not None
    assert association(text) > rule.min + 0.1
    if text is not LIST_OF_NAMES:  # of rare characters nothing is expected, so their disorder is no evidence
        assert association(scrambled(text)) < min(rule.min, association(text) - 0.5)


def test_scripts_are_one() -> None:
    assert association("請在選單中選擇要開啟的檔案") == association("请在选单中选择要开启的档案")


def test_neighbours_are_not_pairs() -> None:
    whole = measure("quality.bigram_association", ["文件", "系统", ""])
    assert whole.tolist() == [association("文件"), association("系统"), 0.0]


def test_the_table_is_small_and_names_its_sources() -> None:
    assert bigrams.PATH.stat().st_size < 300_000
    sources = bigrams.PATH.with_suffix(".txt").read_text("utf-8").splitlines()[3:]
    assert len(sources) > 10
    assert all("licence" in line and "weight" in line for line in sources)


def test_a_table_comes_back_as_it_was_packed(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    pairs = np.array([bigrams.SIZE + 2, 2 * bigrams.SIZE + 1, 3 * bigrams.SIZE + 3])
    header = {"unit": 24, "smoothing": 3.0, "total": 1000.0}
    path.write_bytes(bigrams.pack(header, "甲乙丙", np.array([150, 120, 90]), pairs, np.array([5, -7, 100])))
    table = Bigrams(path)
    assert table.characters == "甲乙丙"
    assert table.pairs.tolist() == pairs.tolist()
    assert table.matrix[pairs].tolist() == [5, -7, 100]
    assert table.log_counts.tolist() == [150, 120, 90]


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    data = bigrams.PATH.read_bytes()
    path = tmp_path / "t.bin"
    flipped = bytes([*data[:5000], data[5000] ^ 1, *data[5001:]])
    for damage in (data[:100], data[:-40], data[17:], b"", b"\x93NUMPY", flipped):
        path.write_bytes(damage)
        with pytest.raises(WenhaiError, match=r"t\.bin"):
            Bigrams(path)
    with pytest.raises(WenhaiError, match=r"none\.bin"):
        Bigrams(tmp_path / "none.bin")

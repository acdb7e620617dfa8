"""The builder of the bigram table, on texts small enough to count by hand; nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corpus.filters.quality import bigrams
from tools.bigram_table import build, count, count_words, write_notice


def pairs(source: object) -> dict[str, float]:
    keys, counts = source.pairs.tolist(), source.counts.tolist()  # type: ignore[attr-defined]
    return {chr(key >> 16) + chr(key & 0xFFFF): value for key, value in zip(keys, counts, strict=True)}


def test_lines_count_once_and_scripts_are_one() -> None:
    source = count("a", "MIT", 1.0, ["文件，文件", "文件，文件", "開文件", "学 a习"])
    assert pairs(source) == {"文件": 3.0, "开文": 1.0}


def test_words_count_by_their_frequency() -> None:
    assert pairs(count_words("w", "MIT", 1.0, [("开发票", 5), ("發票", 2), ("a文", 9)])) == {"开发": 5.0, "发票": 7.0}


def test_a_built_table_scores_by_the_formula(tmp_path: Path) -> None:
    lines = [f"{'学习文件开发' * (number + 1)}" for number in range(40)]
    table = tmp_path / "t.table"
    sources = [count("a", "MIT", 2.0, lines), count_words("w", "BSD", 1.0, [("学习", 100)])]
    table.write_bytes(build(sources))
    read = bigrams.Bigrams(table)
    weighted = {key: 2 * value for key, value in pairs(sources[0]).items()}
    weighted["学习"] += 100
    singles = {
        character: sum(value * key.count(character) for key, value in weighted.items()) / 2
        for character in "学习文件开发"
    }
    expected = singles["学"] * singles["习"] / sum(weighted.values())
    score = read.matrix[int(read.numbers[ord("学")]) * bigrams.SIZE + int(read.numbers[ord("习")])]
    exact = np.log((weighted["学习"] + 3) / (expected + 3))
    assert abs(score / read.unit - exact) < 2 / read.unit  # rounded, as the characters' log counts are
    assert read.matrix[int(read.numbers[ord("文")]) * bigrams.SIZE + int(read.numbers[ord("学")])] < 0
    assert write_notice(sources).count("licence") >= 2

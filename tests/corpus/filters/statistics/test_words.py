"""Words are jieba's, the numbers datatrove's, and only a recipe that names a segmenter pays for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpus.engine.errors import UsageError
from corpus.filters import load
from corpus.filters.statistics.words import COLUMNS, measure_words
from tests.corpus.filters.test_recipes import PROSE
from tests.linear import assert_linear


def measured(text: str) -> dict[str, float]:
    return dict(zip(COLUMNS, measure_words(pa.array([text], pa.large_string()))[0], strict=True))


def test_what_is_counted() -> None:
    found = measured("他来到北京大学。他来到北京大学。\n他来到北京大学！")  # 他 来到 北京大学 and a mark, three times
    assert found["num_words"] == 9 and found["letter_ratio"] == 9 / 12 and found["newline_ratio"] == 1 / 12
    assert found["top_2_gram_ratio"] == pytest.approx(3 * len("他 来到") / 25)
    assert found["duplicate_5_gram_ratio"] == pytest.approx(len("他来到北京大学。他") / 25)  # the sixth word begins it
    assert found["duplicate_10_gram_ratio"] == 0
    assert measured("")["letter_ratio"] == 0


def test_words_are_not_measured_unasked_and_rules_on_them_need_a_segmenter(tmp_path: Path) -> None:
    column = load("web_zh").apply(["学而时习之，不亦说乎？"]).table["words.num_words"]
    assert column.to_pylist() == [None]
    (tmp_path / "my.toml").write_text("[filter.words]\nnum_words = { min = 5 }\n", encoding="utf-8")
    with pytest.raises(UsageError, match='segmenter = "jieba"'):
        load(str(tmp_path / "my.toml"))


def test_fineweb2_judges_by_them() -> None:
    formulas = "".join(f"设 x = {number} + 1，则 y (x) = 2 * x - {number}；" for number in range(60)) + "。"
    verdicts = load("fineweb2_zh").apply([PROSE, formulas, PROSE.replace("。", "，\n")]).table
    assert verdicts["rule"].to_pylist() == [None, "words.letter_ratio", "lines.stop_line_ratio"]
    assert not np.isnan(verdicts["words.duplicate_5_gram_ratio"].to_numpy()).any()


@pytest.mark.parametrize("unit", ["的", "龘齉齾", "a", "1."])
def test_twice_the_text_costs_twice_the_time(unit: str) -> None:
    measured("预热")
    assert assert_linear(lambda text: measured(text), lambda num: (unit * num)[:num], 20_000, slack=0.05) < 20

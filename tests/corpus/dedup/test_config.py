from __future__ import annotations

import pytest

from corpus.dedup import DedupConfig
from corpus.engine.config import parse
from corpus.engine.errors import UsageError


def test_defaults_open_the_bands_below_the_threshold() -> None:
    config = DedupConfig()
    assert config.bands * config.rows == config.num_permutations == 112
    assert 1 - (1 - config.threshold**config.rows) ** config.bands > 0.85  # recall of candidates at the threshold


@pytest.mark.parametrize(
    "values",
    [
        {"bands": 17},  # 17 x 7 > 112
        {"rows": 8},
        {"num_permutations": 100},
        {"bands": 256, "rows": 1, "num_permutations": 1000},
        {"threshold": 0.0},
        {"threshold": 1.1},
        {"ngram": 0},
        {"max_leaders": 0},
        {"ngrams": 5},
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, float | str]) -> None:
    with pytest.raises(UsageError, match=r"dedup\.toml: 1 error"):
        parse(DedupConfig, values, "dedup.toml")


def test_an_integer_threshold_of_one_is_a_number() -> None:
    assert parse(DedupConfig, {"threshold": 1}, "dedup.toml").threshold == 1.0

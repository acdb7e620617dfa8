"""Candidates side by side: figures, who is best, the sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizer.texts import documents
from tokenizer.commands.compare import short_names
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.report import vocabulary_report
from tokenizer.report.compare import MEASURES, SIZES_DIFFER, best_of, compare, comparison_rows, summarize, verdicts
from tokenizer.train import train

TEXTS = {"poems": documents(30), "traditional": ["千山鳥飛絕，萬徑人蹤滅。"], "empty": [""]}


@pytest.fixture(scope="module")
def result(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path: Path = tmp_path_factory.mktemp("small") / "small.model"
    path.write_bytes(train(documents(200), TokenizerConfig(vocab_size=500)))
    return compare({"small": Tokenizer(path), "large": tokenizer}, TEXTS)


def test_a_candidate_has_the_figures_of_its_report(result: dict[str, Any], tokenizer: Tokenizer) -> None:
    large = result["candidates"]["large"]
    report = vocabulary_report(tokenizer, TEXTS)
    assert large["report"] == report
    for measure in MEASURES:
        if measure.key in report:
            assert large[measure.key] == report[measure.key]
    assert large["sources"] == {
        name: report["sources"][name]["characters_per_token"] for name in ("poems", "traditional")
    }
    assert large["worst_characters_per_token"] == min(large["sources"].values())
    assert large["megabytes_per_second"] > 0


def test_the_better_one_is_named(result: dict[str, Any]) -> None:
    best = {entry["measure"]: entry for entry in result["best"]}
    rows = result["candidates"]
    assert best["characters_per_token"] == {
        "measure": "characters_per_token",
        "names": ["large"],
        "value": rows["large"]["characters_per_token"],
        "next": rows["small"]["characters_per_token"],
    }
    assert "vocab_size" not in best and "measured_tokens" not in best
    assert SIZES_DIFFER in verdicts(result)


@pytest.mark.parametrize(
    ("values", "names", "value", "following"),
    [
        ([0.3, 0.1, 0.2], ["b"], 0.1, 0.2),
        ([0.1, 0.1, 0.2], ["a", "b"], 0.1, 0.2),
        ([0.10001, 0.1, 0.2], ["a", "b"], 0.1, 0.2),
        ([0.1, 0.1, 0.1], ["a", "b", "c"], 0.1, None),
        ([0.0, 0.1, 0.2], ["a"], 0.0, 0.1),
        ([None, 0.1, 0.2], ["b"], 0.1, 0.2),
    ],
)
def test_best_is_the_least_fallback(values: list[Any], names: list[str], value: float, following: float | None) -> None:
    rows = {name: dict.fromkeys((m.key for m in MEASURES), 1) for name in "abc"}
    for name, fallback in zip("abc", values, strict=True):
        rows[name]["byte_fallback_ratio"] = fallback
    found = {entry["measure"]: entry for entry in best_of(rows)}["byte_fallback_ratio"]
    assert (found["names"], found["value"], found["next"]) == (names, value, following)


def test_equal_candidates_do_not_differ(tokenizer: Tokenizer) -> None:
    said = verdicts(compare({"a": tokenizer, "b": tokenizer}, TEXTS))
    assert SIZES_DIFFER not in said
    assert [line for line in said if "no difference" not in line and "fastest" not in line] == []


def test_no_text_at_all(tokenizer: Tokenizer) -> None:
    result = compare({"a": tokenizer}, {})
    assert result["candidates"]["a"]["megabytes_per_second"] is None
    assert "characters/token" in summarize(result)


def test_columns_of_long_names_are_told_apart(result: dict[str, Any]) -> None:
    paths = [f"runs/2026-11-20-bpe-{size}-lower/out" for size in ("16000", "32000")]
    candidates = dict(zip(short_names(paths), result["candidates"].values(), strict=True))
    heads = comparison_rows({**result, "candidates": candidates})[0][1:]
    assert heads[0] != heads[1] and all(size in head for size, head in zip(("16000", "32000"), heads, strict=True))

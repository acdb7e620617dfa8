"""The evaluation of cut passages: what is planted is found, its oracle is what a search for every substring finds."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from tools.evaluate import substrings as evaluate_substrings
from tools.evaluate.substrings import cut, oracle, plant, ragged, whole_sentences


def prose(seed: int, num_sentences: int) -> str:
    chance = random.Random(seed)
    return "".join(
        "".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(20)) + "。" for _ in range(num_sentences)
    )


def test_the_oracle_is_a_search_for_every_substring() -> None:
    chance = random.Random(0)
    texts = ["".join(chance.choice("天地，玄") for _ in range(80)) for _ in range(12)]
    ranks = np.arange(1, 13, dtype=np.uint32)
    for min_chars in (1, 5, 8):
        found = oracle(texts, ranks, min_chars)
        expected, folded = [], [text.replace("，", "") for text in texts]
        for number, text in enumerate(folded):
            marks = [False] * len(text)
            for start in range(len(text) - min_chars + 1):
                if any(text[start : start + min_chars] in better for better in folded[:number]):
                    marks[start : start + min_chars] = [True] * min_chars
            left = iter(marks)
            expected += [character != "，" and next(left) for character in texts[number]]
        assert found.tolist() == expected


def test_planted_passages_are_found() -> None:
    texts = [prose(seed, 60) for seed in range(10)]
    collection = plant(texts, 200, whole_sentences, seed=1)
    assert np.array_equal(cut(collection.texts, collection.ranks, 100), collection.planted)
    torn = plant(texts, 200, ragged, seed=1)
    removed = cut(torn.texts, torn.ranks, 100)
    assert 0.5 * torn.planted.sum() < (removed & torn.planted).sum() < torn.planted.sum()


def test_the_tables_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate_substrings, "LENGTHS", (200,))
    monkeypatch.setattr(evaluate_substrings, "MIN_CHARS", (100,))
    (tmp_path / "text").mkdir()
    lines = [json.dumps({"text": prose(seed, 60)}) for seed in range(6)]
    (tmp_path / "text" / "prose.jsonl").write_text("\n".join(lines) + "\n")
    evaluate_substrings.main(["--data", str(tmp_path)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["exact", "200", "100.0%", "100.0%", "0"] in rows
    assert ["prose", "100", "6", "7200", "0.0%", "0.0%", "0"] in rows

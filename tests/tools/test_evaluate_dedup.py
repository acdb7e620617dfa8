"""The evaluation of deduplication: its planted pairs are what they say, its promises are the theory's, its tables are
whole."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from corpus.dedup import DedupConfig
from corpus.engine.errors import UsageError
from tests.corpus.texts import document
from tools.evaluate import dedup as evaluate_dedup
from tools.evaluate.dedup import BANDS, expected_recall, jaccards
from tools.evaluate.planted_duplicates import KINDS, Planted, edit_text, full_width, passages, plant


def sentences(seed: int) -> str:
    """A text whose sentences no other one has."""
    chance = random.Random(seed)
    return "".join("".join(chr(chance.randrange(0x4E00, 0x9000)) for _ in range(24)) + "。" for _ in range(30))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("text", "dups", "html"):
        (tmp_path / name).mkdir(parents=True)
    lines = [json.dumps({"text": sentences(number)}) for number in range(80)]
    (tmp_path / "text" / "prose.jsonl").write_text("\n".join(lines) + "\n")
    pair = {"a": document(1), "b": document(1) + "。", "label": "near_dup"}
    (tmp_path / "dups" / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    for number in range(3):
        (tmp_path / "html" / f"{number}.html").write_text(f"<p>{document(number)}</p>")
    return tmp_path


def test_planted_kinds_are_pairs(data: Path) -> None:
    documents = plant(data / "text", 2)
    assert documents == plant(data / "text", 2) != plant(data / "text", 2, seed=1)
    for kind in KINDS:
        first, second = (pair for pair in evaluate_dedup._clusters(documents, kind))
        assert len(first) == len(second) == 2
        if kind in ("exact", "full width"):
            assert jaccards([[documents[i].text for i in first]], 5)[0] == 1
    assert len({page.cluster for page in documents if page.kind == "templated"}) == 2
    with pytest.raises(UsageError, match="not enough text"):
        plant(data / "text", 1000)


def test_passages_share_little(data: Path) -> None:
    text = (data / "text" / "prose.jsonl").read_text()
    (data / "text" / "twice.jsonl").write_text(text)
    found: list[str] = []
    with pytest.raises(UsageError, match="not enough"):
        for passage in passages(data / "text", random.Random(0)):
            found.append(passage)
    assert len(found) == len(set(found)) == 80


def test_edits_have_their_ratio() -> None:
    text = sentences(0)
    changed = edit_text(text, 0.1, random.Random(0))
    assert 0.3 < jaccards([(text, changed)], 5)[0] < 0.6  # (0.9 ** 5) / (2 - 0.9 ** 5) is 0.42
    assert edit_text(text, 0, random.Random(0)) == text
    assert full_width("a 1。") == "ａ　１。"


def test_promises_are_the_theory() -> None:
    config = DedupConfig(num_permutations=112, bands=14, rows=8, threshold=0.01)
    chances = expected_recall(np.array([0.0, 0.7, 1.0]), config)
    assert chances[0] == 0 and chances[2] == 1
    assert abs(chances[1] - (1 - (1 - 0.7**8) ** 14)) < 0.03


def test_a_false_merge_is_counted() -> None:
    kept = {"ours": {0, 1}, "peer": {1}}
    documents = [Planted("a", "templated", 0), Planted("b", "single", 1), Planted("c", "single", 2)]
    rows = evaluate_dedup.false_merge_table(documents, kept)
    assert rows[1] == ["templated", "1", "0", "1"] and rows[2] == ["single", "2", "1", "1"]


@pytest.mark.long
def test_all_tables_and_the_drawing(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate_dedup, "NGRAMS", (4, 6))
    evaluate_dedup.main(["--data", str(data), "--pairs", "2", "--svg", str(data / "curve.svg")])
    tables = capsys.readouterr().out.split("\n\n")
    assert len(tables[0].splitlines()) == 1 + len(KINDS)
    assert tables[0].splitlines()[1].split()[:2] == ["exact", "2"] and tables[0].splitlines()[1].split()[-1] == "2"
    curves = tables[4].strip().splitlines()
    assert len(curves) == 2 + 2 * len(BANDS) and "verified at 0.75" in curves[-1]
    drawing = (data / "curve.svg").read_text()
    assert drawing.count("<path") == len(BANDS) + 1 and "threshold 0.75" in drawing
    assert "prefers-color-scheme: dark" in drawing

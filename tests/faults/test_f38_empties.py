"""FAULTS row 38: nothing, almost nothing and one of everything have defined results in every filter and stage.

datatrove's Gopher filter divides by zero on such documents; here warnings are errors, and so is a NaN.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpus.__main__ import main
from corpus.engine.run import current, read_run
from corpus.filters import STATISTICS, Filter, load, measure
from corpus.filters.quality.model import KINDS
from tests.corpus.texts import document

EMPTIES = ["", " ", "\n", "\u3000", " \n\t\n ", *"字a。", "，。！？", *"\u0301\ufe0f\u200b\x00\ufffd1👍"]
EDITORS = [
    (),
    ("filter.edit.script=simplified",),
    ("filter.edit.script=traditional",),
    ("filter.edit.boilerplate_lines=false", "filter.edit.personal_data=[]"),
]


@pytest.mark.parametrize("key", STATISTICS)
def test_every_statistic_is_a_number_or_a_label(key: str) -> None:
    if STATISTICS[key].optional:
        pytest.skip("measured where a recipe names what measures it: the test below, and those of KenLM and jieba")
    values = measure(key, EMPTIES)
    entry = STATISTICS[key]
    known = np.isin(values, (*entry.labels, None)) if entry.labels else np.isfinite(values)
    assert known.all(), dict(zip(EMPTIES, values.tolist(), strict=True))
    assert measure(key, []).shape == (0,)
    if entry.unit.startswith("share"):
        assert ((values >= 0) & (values <= 1)).all()


def test_the_shipped_model_has_a_score_and_a_kind_for_each() -> None:
    table = load("web_zh").apply(EMPTIES).table
    scores = np.array(table["quality.score"].to_pylist(), np.float64)
    assert ((scores >= 0) & (scores <= 1)).all(), dict(zip(EMPTIES, scores.tolist(), strict=True))
    assert set(table["quality.kind"].to_pylist()) <= set(KINDS)


@pytest.mark.parametrize("overrides", EDITORS, ids=str)
@pytest.mark.parametrize("text", EMPTIES, ids=ascii)
def test_every_editor_and_the_filter(text: str, overrides: tuple[str, ...]) -> None:
    judge = load("web_zh", overrides)
    (verdict,) = judge.apply([text])
    assert (verdict.kept, verdict.rule) == (False, "length.num_chars")
    assert verdict.value == len(verdict.text) <= len(text)


@pytest.mark.parametrize(
    "documents",
    [[], pa.table({"text": pa.array([], pa.string())}), pa.table({"text": pa.nulls(0)})],
    ids=["list", "strings", "nulls"],
)  # fmt: skip
def test_no_documents(documents: object) -> None:
    judge: Filter = load("web_zh")
    assert len(judge.apply(documents)) == 0


@pytest.mark.parametrize(
    ("texts", "kept"),
    [([], 0), ([""], 0), ([" \n"], 0), (["字"], 0), ([document(1)], 1), ([document(1)] * 3, 1)],
    ids=["no document", "one empty", "white space", "one character", "one document", "one document three times"],
)
def test_every_stage(texts: list[str], kept: int, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts))
    arguments = ["run", "--recipe", "web_zh", "--input", str(source), "--out", str(tmp_path / "out"), "--quiet"]
    arguments += ["--set", "sources.max_error_ratio=1.0"]
    assert main([*arguments, "--workers", "0"]) == (0 if kept else 4)  # nothing is no success
    stages = read_run(str(tmp_path / "out"))["stages"]
    assert {"filter", "clusters", "text"} <= set(stages)
    counts = {stage: current(str(tmp_path / "out"), stage).counts for stage in stages}
    assert counts["filter"].documents_out == sum(len(text) > 50 for text in texts)
    assert counts["text"].documents_out == kept

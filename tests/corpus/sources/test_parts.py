"""Long documents in parts: where they are cut, what stays, what is counted, and how a part is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.report.lookup import find
from corpus.sources.parts import split_text
from tests.corpus.sources.test_stage import extract, rows
from tests.corpus.texts import document, write_records

LIMIT = 1000


@given(st.text(st.sampled_from("文字。！\n”. a"), max_size=300), st.integers(2, 40))
def test_nothing_but_line_ends_is_lost_and_no_part_is_longer(text: str, limit: int) -> None:
    parts = split_text(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@pytest.mark.parametrize("mark", ["\n", "。"])
def test_parts_end_where_paragraphs_or_sentences_do_and_none_is_a_rest(mark: str) -> None:
    text = mark.join(["字" * 60] * 34)
    parts = split_text(text + "尾" * 10, LIMIT)
    assert [part.count("字") % 60 for part in parts] == [0, 0, 0]
    assert min(map(len, parts)) > LIMIT / 2


def test_each_part_is_a_document_of_its_own(tmp_path: Path) -> None:
    long = "\n".join(document(seed, 12) for seed in range(12))
    texts = [document(50, 4), long, document(51, 4)]
    records = [{"text": text, "url": f"https://a.cn/{row}", "extra": row} for row, text in enumerate(texts)]
    write_records(tmp_path / "in" / "a.jsonl", [*records, {"text": ""}])
    whole = extract(tmp_path / "in", tmp_path / "w", meta=["extra"])
    build = extract(tmp_path / "in", tmp_path / "o", meta=["extra"], split_chars=LIMIT)
    found = rows(build)
    parts = [row for row in found if row["url"] == "https://a.cn/1"]
    assert len(parts) > 2 and "\n".join(row["text"] for row in parts).split() == long.split()
    assert [json.loads(row["meta"]) for row in parts] == [
        {"extra": 1, "part": number + 1, "parts": len(parts)} for number in range(len(parts))
    ]
    assert len({row["id"] for row in found}) == len(found) == len(parts) + 2
    assert {row["id"] for row in rows(whole)} < {row["id"] for row in found}
    counts = build.counts
    assert (counts.documents_in, counts.documents_out, counts.errors) == (len(found) + 1, len(found), {"empty": 1})
    assert (counts.extra["split_documents"], counts.extra["parts"]) == (1, len(parts))
    assert "parts" not in whole.counts.extra and whole.counts.documents_out == 3
    at = len(json.dumps(records[0], ensure_ascii=False).encode()) + 1
    assert [one.row for one in find(str(tmp_path / "o"), f"a.jsonl:{at}")] == [row["row"] for row in parts]
    assert [one.row for one in find(str(tmp_path / "o"), f"a.jsonl:offset {at} part 2")] == [parts[1]["row"]]

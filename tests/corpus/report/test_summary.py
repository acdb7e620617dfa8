"""The funnel adds up, and says so when it does not."""

from __future__ import annotations

import json
from pathlib import Path

from corpus.report.summary import funnel, render
from tests.corpus.report.build import RECORDS, RULE, build


def test_the_funnel_counts_every_document_once(out: str) -> None:
    summary = funnel(out)
    records = sum(map(len, RECORDS.values()))
    assert summary.documents_in == records + 2
    assert summary.documents_kept == sum(record.end == "kept" for some in RECORDS.values() for record in some)
    gone = sum(summary.errors.values()) + sum(summary.dropped.values())
    assert summary.documents_in == summary.documents_kept + gone
    assert summary.errors == {"truncated": 2}
    assert summary.filtered == {"length.num_chars": 2, RULE: 2}
    assert summary.duplicates == {"dedup.exact": 4, "dedup.near": 2}
    assert list(summary.tokens) == ["train"]
    assert summary.breaches == ()
    assert [step.stage for step in summary.steps] == ["extract", "filter", "text", "tokens"]


def test_the_text_fits_a_terminal(out: str) -> None:
    text = render(funnel(out))
    assert max(map(len, text.splitlines())) <= 80 and "\x1b" not in text
    assert "near duplicates" in text and "near duplicates" in render(funnel(out), terminal=True)


def test_documents_lost_between_stages_are_reported_first(tmp_path: Path) -> None:
    summary = funnel(build(tmp_path / "lossy", tokens=False, lost=1))
    assert summary.breaches[0] == "filter let 20 documents through, but text received 18"
    assert "bytes through, but text received" in summary.breaches[1]
    assert render(summary).startswith("CONSERVATION BROKEN: filter let 20")


def test_a_manifest_that_does_not_add_up_is_reported(copy: Path) -> None:
    manifest = next(copy.glob("filter-*/MANIFEST.json"))
    value = json.loads(manifest.read_text())
    value["counts"]["dropped"]["length.num_chars"] -= 1
    manifest.write_text(json.dumps(value))
    assert funnel(str(copy)).breaches == ("filter: 24 documents in, but 20 out and 3 dropped or in error",)


def test_an_unfinished_build_has_a_summary(copy: Path) -> None:
    run = json.loads((copy / "run.json").read_text())
    for stage in ("text", "tokens"):
        del run["stages"][stage]
    (copy / "run.json").write_text(json.dumps(run))
    summary = funnel(str(copy))
    assert summary.documents_kept == 20 and summary.tokens == {} and summary.breaches == ()

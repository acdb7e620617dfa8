"""The page: complete, escaped, without a request, equal for equal builds; test_browser.py opens it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from corpus.report import metadata as facts_module
from corpus.report.html import render_html, write_report
from corpus.report.markdown import render_markdown
from corpus.report.metadata import gather
from tests.corpus.report.build import RULE, build
from tests.html_page import Page


@pytest.fixture(scope="module")
def page(out: str) -> str:
    return render_html(gather(out))


@pytest.fixture(scope="module")
def markdown(out: str) -> str:
    return render_markdown(gather(out))


def test_nothing_is_requested_and_one_script_may_run(page: str) -> None:
    Page(page).check(num_scripts=2)  # one of them the numbers
    (script,) = re.findall("<script>(.*)</script>", page, re.DOTALL)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in page


def test_samples_stand_on_both_sides_nearest_first(out: str) -> None:
    samples = [one for one in gather(out).samples if one.limit.key == RULE]
    assert [one.value for one in samples if one.dropped] == [0.31]  # the same text twice is shown once
    assert next(one.value for one in samples if not one.dropped) == 0.19
    assert len(samples) <= 20


def test_clusters_and_origins(out: str) -> None:
    facts = gather(out)
    assert facts.clusters == [("2", 2, 4), ("3", 2, 6)]
    assert "kept documents." not in render_markdown(facts)
    domains = {one.name: (one.documents, one.kept) for one in facts.origins["domain"]}
    assert domains["site0.example"] == (6, 4) and domains["copy.example"] == (2, 0)


def test_of_a_huge_corpus_some_shards_tell_the_clusters(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "spread", lambda files: files[:1])
    facts = gather(out)
    read, total = facts.clusters_read
    assert 0 < read < total and sum(clusters for _, clusters, _ in facts.clusters) < 4
    assert f"Of {read} of {total} kept documents." in render_markdown(facts)


def test_equal_builds_give_equal_reports_but_for_times(tmp_path: Path, page: str, markdown: str) -> None:
    other = build(tmp_path / "elsewhere")
    timings = tmp_path / "elsewhere" / "timings.json"
    timings.write_text(json.dumps({}))
    facts = gather(other)

    def without_times(text: str) -> str:
        return re.split(r'<h2 id="throughput">|## Throughput', text)[0]

    assert without_times(render_html(facts)) == without_times(page)
    assert without_times(render_markdown(facts)) == without_times(markdown)


def test_a_breach_stands_on_the_page(tmp_path: Path) -> None:
    facts = gather(build(tmp_path / "lossy", tokens=False, lost=1))
    assert "Conservation broken.</b> filter let 20 documents through" in render_html(facts)
    assert "**Conservation broken.** filter let 20 documents through" in render_markdown(facts)


def test_all_files_are_written(copy: Path) -> None:
    path = Path(write_report(str(copy)))
    assert path == copy / "report.html"
    for page in (path, copy / "report.zh.html"):
        assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert (copy / "report.md").read_text(encoding="utf-8").startswith("# Corpus report")
    assert (copy / "DATASET_CARD.md").read_text(encoding="utf-8").startswith("---\n")

"""The pages: complete, escaped, without a request."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.engine.chart import NUM_COLORS
from tests.html_page import Page
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer
from tokenizer.report import vocabulary_report
from tokenizer.report.compare import best_of, compare
from tokenizer.report.page import comparison_page, report_page

HOSTILE = '<script>alert("1")</script>\u202e\x1b[31m&amp;'


@pytest.fixture(scope="module")
def report(tokenizer: Tokenizer) -> dict[str, Any]:
    return vocabulary_report(tokenizer, {"poems": documents(20), HOSTILE: ["千山鳥飛絕"]})


@pytest.fixture(scope="module")
def pages(tokenizer: Tokenizer, report: dict[str, Any]) -> list[str]:
    hostile = report | {
        "longest_pieces": [HOSTILE],
        "longest_han_pieces": [HOSTILE],
        "most_frequent": [[HOSTILE, 3]],
        "unused": {"pieces": 1, "by_script": {}, "longest": [HOSTILE]},
        "suspicious": [[HOSTILE, HOSTILE, 1]],
        "rejected_pieces": {HOSTILE: HOSTILE},
        "tokenizer_sha256": HOSTILE,
    }
    result = compare({HOSTILE: tokenizer, "other": tokenizer}, {"poems": documents(3), HOSTILE: ["千山"]})
    for row in result["candidates"].values():
        row["report"] = hostile
        row["encoder"] = HOSTILE
    return [report_page(hostile, HOSTILE), comparison_page(result)]


def test_hostile_pieces_are_text(pages: list[str]) -> None:
    for page in pages:
        Page(page).check()
        assert page.count("&lt;script&gt;alert(") > 8 and "\\u202e\\x1b[31m&amp;amp;" in page


def test_a_model_without_texts_has_a_page(tokenizer: Tokenizer) -> None:
    page = Page(report_page(vocabulary_report(tokenizer, {}), "bare")).text
    assert "Longest pieces" in page and "Never used" not in page and "Sources" not in page


def test_candidates_beyond_the_colours_are_in_the_table(tokenizer: Tokenizer) -> None:
    result = compare({f"model{number}": tokenizer for number in range(NUM_COLORS + 2)}, {"poems": documents(1)})
    for figures in result["candidates"].values():
        figures["megabytes_per_second"] = 1.0  # the measured fastest would be named once more
    result["best"] = best_of(result["candidates"])
    page = comparison_page(result)
    assert page.count('class="line ') == NUM_COLORS
    assert page.count(f"model{NUM_COLORS + 1}") == 2  # a column and its pieces

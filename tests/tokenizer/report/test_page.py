"""The pages: complete, escaped, without a request."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import pytest
from rich.cells import cell_len

from tests.html_page import Page
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer
from tokenizer.report import vocabulary_report
from tokenizer.report.compare import best_of, compare
from tokenizer.report.page import MAX_SERIES, comparison_page, report_page
from tokenizer.report.shown import cut, table

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


def test_nothing_is_requested_and_nothing_may_run(pages: list[str]) -> None:
    for page in pages:
        tags = Page(page).tags
        assert not {"img", "link", "iframe", "object", "form", "base", "script", "a"} & {tag for tag, _ in tags}
        for tag, attributes in tags:
            assert not any(name.startswith("on") or name in ("src", "href", "style") for name in attributes), tag
        (style,) = re.findall("<style>(.*)</style>", page, re.DOTALL)
        assert "url(" not in style and "@import" not in style
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = next(a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_hostile_pieces_are_text(pages: list[str]) -> None:
    for page in pages:
        assert "<script" not in page and "&lt;script&gt;alert(" in page
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
        assert "\\u202e\\x1b[31m&amp;amp;" in page


def test_every_element_is_closed(pages: list[str]) -> None:
    for page in pages:
        for tag in ("table", "tr", "td", "th", "ul", "li", "svg", "figure", "details", "div", "main", "html", "text"):
            assert len(re.findall(f"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag


def test_the_page_tells_all(report: dict[str, Any]) -> None:
    text = Page(report_page(report, "mine")).text
    for words in ("mine", "poems", "traditional", "Renyi", "Longest pieces", "Never used", "Suspicious pieces: "):
        assert words in text
    assert f"{report['characters_per_token']:.3f}" in text
    assert "Kept out" not in text and "phrase: because" not in text
    rejected = Page(report_page(report | {"rejected_pieces": {"甲乙": "phrase: because"}}, "mine")).text
    assert "Kept out of the vocabulary: 1" in rejected and "phrase: because" in rejected


def test_a_model_without_texts_has_a_page(tokenizer: Tokenizer) -> None:
    page = Page(report_page(vocabulary_report(tokenizer, {}), "bare")).text
    assert "Longest pieces" in page and "Never used" not in page and "Sources" not in page


def test_candidates_beyond_the_colours_are_in_the_table(tokenizer: Tokenizer) -> None:
    result = compare({f"model{number}": tokenizer for number in range(MAX_SERIES + 2)}, {"poems": documents(1)})
    for figures in result["candidates"].values():
        figures["megabytes_per_second"] = 1.0  # the measured fastest would be named once more
    result["best"] = best_of(result["candidates"])
    page = comparison_page(result)
    assert page.count("<polyline") == MAX_SERIES
    assert page.count(f"model{MAX_SERIES + 1}") == 2  # a column and its pieces


def test_columns_of_han_and_latin_line_up() -> None:
    lines = table([["", "诗", "x"], ["古文", "1", "22"], ["a", "333", "4"]]).split("\n")
    assert {cell_len(line) for line in lines} == {13}
    assert cell_len(cut("一二三四五六七八九十", 9)) == 9
    assert cut("一二三四五六七八九十", 9) == "一…八九十"

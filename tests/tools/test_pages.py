"""Labelled pages: every template's main text is found, with title, date and author, also without the names we know."""

from __future__ import annotations

import statistics

import pytest

from corpus.extract import ExtractConfig, extract_html
from tests.corpus.texts import document
from tools.bench.extraction import NAMES
from tools.pages import make_page, score
from tools.pages.templates import TEMPLATES

MIN_F1 = 0.95


@pytest.mark.parametrize("template", TEMPLATES)
def test_main_text_and_facts_of_a_template(template: str) -> None:
    pages = [make_page(template, seed, document(seed, 30).split("\n") if seed % 2 else ()) for seed in range(8)]
    found = [extract_html(page.html, ExtractConfig()) for page in pages]
    assert statistics.mean(score(*pair).f1 for pair in zip(pages, (page.text for page in found), strict=True)) >= MIN_F1
    assert [page.date for page in found] == [page.date for page in pages]
    assert [page.author for page in found] == [page.author for page in pages]
    if template != "shop":  # its title tag alone has the name, in brackets
        assert [page.title for page in found] == [page.title for page in pages]


def test_names_are_not_what_it_hangs_on() -> None:
    scores = []
    for template in TEMPLATES:
        page = make_page(template, 5)
        scores.append(score(page, extract_html(NAMES.sub("", page.html), ExtractConfig()).text).f1)
    assert statistics.mean(scores) >= MIN_F1


def test_a_wrong_text_scores_low() -> None:
    page, other = make_page("blog", 1), make_page("blog", 2)
    assert score(page, other.text).f1 < 0.8 < 1.0 == score(page, page.text).f1
    assert score(page, page.title + "\n" + page.text).f1 == 1.0
    assert score(page, "").f1 == 0.0

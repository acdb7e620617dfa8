"""The whole fake web, crawled: every allowed page once, nothing else, and an end by itself.

FAULTS.md rows 21 to 25 are cases of it; `python -m tools.evaluate.crawl` prints the table, and crawls in a process of
its own. Here the crawls are in this one, which starts and imports once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.__main__ import main
from tools.evaluate import crawl as evaluate_crawl
from tools.evaluate.crawl import coverage, second_visit
from tools.fake_site.crawling import command
from tools.fake_site.expected import GROUPS, format_table

pytestmark = pytest.mark.timeout(250)


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def crawl(config: Path, out: Path, *arguments: str) -> None:
        assert main(command(config, out, *arguments)[3:]) == 0

    monkeypatch.setattr(evaluate_crawl, "crawl", crawl)


@pytest.mark.long
def test_every_page_is_treated_as_it_should_be(tmp_path: Path) -> None:
    rows = coverage(tmp_path)
    assert not any(row.wrong for row in rows), format_table(rows)
    assert {row.group for row in rows} == set(GROUPS) and sum(row.fetched for row in rows) > 500


@pytest.mark.long
def test_pages_that_are_visited_again(tmp_path: Path) -> None:
    rows = second_visit(tmp_path)
    assert not any(row.wrong for row in rows), format_table(rows)

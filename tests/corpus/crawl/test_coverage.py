"""The whole fake web, crawled by a process of its own: every allowed page once, nothing else, and an end by itself.

FAULTS.md rows 21 to 25 are cases of it; `python -m tools.evaluate_crawl` prints the table.
"""

from __future__ import annotations

from pathlib import Path

from tools.evaluate_crawl import coverage, second_visit
from tools.fake_site.expected import GROUPS, format_table

MAX_SECONDS = 250.0


def test_every_page_is_treated_as_it_should_be(tmp_path: Path) -> None:
    rows = coverage(tmp_path, timeout=MAX_SECONDS)
    assert not any(row.wrong for row in rows), format_table(rows)
    assert {row.group for row in rows} == set(GROUPS) and sum(row.fetched for row in rows) > 500


def test_pages_that_are_visited_again(tmp_path: Path) -> None:
    rows = second_visit(tmp_path, timeout=MAX_SECONDS)
    assert not any(row.wrong for row in rows), format_table(rows)

"""FAULTS row 24, in the frontier: each budget and each cap stops what it is for, one step too late for nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus.crawl.fates import Outcome
from corpus.crawl.frontier import url_counts as frontier_books
from corpus.crawl.frontier.budget import QUEUED_PER_PAGE
from corpus.crawl.frontier.frontier import Frontier
from tests.corpus.crawl.frontier.frontiers import Clock, claimed, drained, fetched, link, opened

CLOCK = Clock()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    made: list[Frontier] = []

    def make(**budget: int) -> Frontier:
        made.append(opened(tmp_path, CLOCK, **budget))
        return made[-1]

    yield make
    for frontier in made:
        frontier.check_books()
        frontier.close()


def fates(frontier: Frontier, host: str = "") -> dict[str, int]:
    return dict(Counter(known["fate"] for known in frontier.iter_urls() if host in known["url"]))


def test_depth(begin: Any) -> None:
    frontier = begin(max_depth=3)
    frontier.add([link(f"http://a.cn/{depth}", depth=depth) for depth in range(6)])
    frontier.add([link("http://a.cn/seed", depth=9, seed=True)])
    assert frontier.counts() == {"pending": 5, "drop:max_depth": 2}


def test_pages_of_a_host(begin: Any) -> None:
    frontier = begin(max_pages_per_host=3)
    frontier.add([link(f"http://a.cn/{n}", priority=0.9 - n / 10) for n in range(8)])
    frontier.add([link("http://b.cn/1", priority=0.4)])
    assert drained(frontier, CLOCK) == ["http://a.cn/0", "http://b.cn/1", "http://a.cn/1", "http://a.cn/2"]
    frontier.add([link("http://a.cn/new", priority=1.0)])
    assert fates(frontier, "a.cn") == {"fetched": 3, "drop:max_pages_per_host": 6}
    assert fates(frontier, "b.cn") == {"fetched": 1}


def test_answers_that_are_no_pages_count_for_their_host_and_silence_does_not(begin: Any) -> None:
    frontier = begin(max_pages_per_host=2)
    frontier.add([link(f"http://a.cn/{n}") for n in range(8)])
    for outcome in (Outcome("error:timeout"), Outcome("drop:soft_404", 200), Outcome("error:http_404", 404)):
        claim = claimed(frontier, CLOCK)
        frontier.finish(claim, outcome, CLOCK.now)
    assert claimed(frontier, CLOCK) is None
    assert frontier.counts()["drop:max_pages_per_host"] == 5


def test_a_host_cannot_fill_the_disk_with_what_waits(begin: Any) -> None:
    frontier = begin(max_pages_per_host=10)
    frontier.add([link(f"http://a.cn/{n}/") for n in range(100)])
    assert fates(frontier) == {"pending": 40, "drop:max_pages_per_host": 60} and QUEUED_PER_PAGE == 4
    frontier.add([link("http://b.cn/")])
    assert fates(frontier, "b.cn") == {"pending": 1}


def test_bytes_of_a_host(begin: Any) -> None:
    frontier = begin(max_bytes_per_host=250)
    frontier.add([link(f"http://{host}.cn/{n}") for host in "ab" for n in range(5)])
    drained(frontier, CLOCK)  # 100 bytes each
    for host in "ab":
        assert fates(frontier, f"{host}.cn") == {"fetched": 3, "drop:max_bytes_per_host": 2}


def test_hosts_of_a_domain(begin: Any) -> None:
    frontier = begin(max_hosts_per_domain=2)
    frontier.add([link(f"http://{n}.wild.cn/") for n in range(5)])
    frontier.add([link("http://0.wild.cn/more"), link("http://other.cn/"), link("http://s.wild.cn/", seed=True)])
    assert fates(frontier, "wild") == {"pending": 4, "drop:max_hosts_per_domain": 3}
    assert fates(frontier, "other") == {"pending": 1}


def test_urls_of_a_pattern_as_of_a_calendar(begin: Any) -> None:
    frontier = begin(max_urls_per_pattern=4)
    frontier.add([link(f"http://a.cn/calendar/{n}") for n in range(9)])
    frontier.add([link("http://a.cn/article/1"), link("http://a.cn/calendar/seed", seed=True)])
    assert fates(frontier, "calendar") == {"pending": 5, "drop:trap_pattern": 5}
    assert fates(frontier, "article") == {"pending": 1}


def test_parameter_names_of_a_path(begin: Any) -> None:
    frontier = begin(max_query_patterns=3)
    frontier.add([link(f"http://a.cn/list?filter{n}=1") for n in range(7)])
    frontier.add([link("http://a.cn/list?filter0=2"), link("http://a.cn/list"), link("http://a.cn/other?filter6=1")])
    assert fates(frontier, "list?") == {"pending": 4, "drop:trap_query": 4}
    assert fates(frontier, "other") == {"pending": 1} and frontier.counts()["pending"] == 6


def test_one_content_under_many_urls(begin: Any) -> None:
    frontier = begin(max_repeats=3)
    frontier.add([link(f"http://a.cn/session/{n}") for n in range(20)])
    frontier.add([link(f"http://a.cn/news/{n}") for n in range(5)])
    while (claim := claimed(frontier, CLOCK)) is not None:
        content = b"the same content" if "session" in claim.url else claim.key
        frontier.finish(claim, fetched(claim, content=content), CLOCK.now)
    assert fates(frontier, "session") == {"fetched": 4, "drop:trap_repeats": 16}  # the first repeats nothing
    assert fates(frontier, "news") == {"fetched": 5}
    frontier.add([link("http://a.cn/session/new"), link("http://b.cn/session/new")])
    assert fates(frontier, "session/new") == {"drop:trap_repeats": 1, "pending": 1} and fates(frontier, "b.cn") == {
        "pending": 1
    }


def test_contents_that_alternate_are_repeats_and_a_new_one_breaks_the_row(begin: Any) -> None:
    frontier = begin(max_repeats=3)
    frontier.add([link(f"http://a.cn/s/{n}", depth=n) for n in range(12)])
    for content in "ababcab":  # a, b, (a, b), c, (a, b)
        claim = claimed(frontier, CLOCK)
        frontier.finish(claim, fetched(claim, content=content.encode() * 16), CLOCK.now)
    assert frontier.counts()["pending"] == 5
    claim = claimed(frontier, CLOCK)
    frontier.finish(claim, fetched(claim, content=b"c" * 16), CLOCK.now)
    assert frontier.counts() == {"pending": 0, "fetched": 8, "drop:trap_repeats": 4}


def test_pages_in_all_with_what_is_under_way(begin: Any) -> None:
    frontier = begin(max_pages=3)
    frontier.add([link(f"http://{n}.cn/") for n in range(9)])
    claims = [frontier.next(CLOCK.now) for _ in range(4)]
    assert [claim is not None for claim in claims] == [True, True, True, False]
    assert frontier.seconds_until_due(CLOCK.now) is None and not frontier.done
    frontier.finish(claims[0], Outcome("error:dns"), CLOCK.now)  # makes room for one more
    claims[0] = frontier.next(CLOCK.now)
    for claim in claims[:3]:
        frontier.finish(claim, fetched(claim), CLOCK.now)
    assert frontier.next(CLOCK.now) is None and frontier.done
    assert frontier.counts() == {"pending": 5, "error:dns": 1, "fetched": 3}


def test_refusals_beyond_what_is_remembered_only_count(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_books, "REMEMBERED", 10)
    frontier = begin()
    refused = [link(f"http://out.com/{n}", refused="scope") for n in range(15)]
    for again, beyond in ((0, 5), (10, 10)):
        frontier.add(refused)
        assert frontier.offered() == (10, again, {"drop:scope": beyond})
    frontier.add([link("http://out.com/t", refused="trap_url")])
    assert frontier.counts() == {"pending": 0, "drop:scope": 10, "drop:trap_url": 1}
    assert frontier.offered() == (11, 10, {"drop:scope": 10})

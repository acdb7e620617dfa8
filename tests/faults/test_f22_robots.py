"""FAULTS row 22: whatever /robots.txt answers, nothing is fetched that it forbids, nor faster than it asks."""

from __future__ import annotations

import tracemalloc

import pytest
from protego import Protego

from corpus.crawl.config import PolitenessConfig
from corpus.crawl.politeness.delays import HostClock, HostState
from corpus.crawl.politeness.robots import LIFETIME_SECONDS, MAX_BYTES, MAX_REDIRECTS, Robots, RobotsCache
from tests.corpus.crawl.small_site import fetched

AGENT = "wenhaibot"
SHUT = b"User-agent: *\nDisallow: /\n"
PARTLY = b"User-agent: *\nDisallow: /private\n"
PAGE = "https://example.org/page"
PRIVATE = "https://example.org/private"


@pytest.mark.parametrize(
    ("what", "status", "body", "page", "private"),
    [
        ("found", 200, PARTLY, True, False),
        ("found and shut", 200, SHUT, False, False),
        ("empty", 200, b"", True, True),
        ("a page of HTML", 200, b"<!DOCTYPE html>\n<html><body>Disallow: /</body></html>", True, True),
        ("a byte order mark", 200, b"\xef\xbb\xbf" + PARTLY, True, False),
        ("UTF-16", 200, PARTLY.decode().encode("utf-16"), True, False),
        ("not found", 404, SHUT, True, True),
        ("gone", 410, SHUT, True, True),
        ("forbidden", 403, SHUT, True, True),
        ("wants a password", 401, SHUT, True, True),
        ("too many redirects", 302, SHUT, True, True),
        ("too many requests", 429, PARTLY, False, False),
        ("out of order", 500, PARTLY, False, False),
        ("overloaded", 503, b"", False, False),
        ("no answer in time", None, b"", False, False),
    ],
)
def test_what_an_answer_allows(what: str, status: int | None, body: bytes, page: bool, private: bool) -> None:
    robots = Robots.parse(status, body, AGENT)
    assert (robots.allowed(PAGE), robots.allowed(PRIVATE)) == (page, private), what
    assert robots.allowed("https://example.org/robots.txt")


def test_the_redirects_of_the_rfc() -> None:
    assert MAX_REDIRECTS == 5


def test_a_huge_file_is_read_to_500_kib_in_bounded_memory() -> None:
    body = PARTLY + b"".join(b"Disallow: /%07d\n" % number for number in range(60_000))
    last = body[:MAX_BYTES].count(b"\n") - PARTLY.count(b"\n") - 1  # the last that is whole
    tracemalloc.start()
    robots = Robots.parse(200, body, AGENT)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 30_000_000
    assert not robots.allowed(PRIVATE) and not robots.allowed(f"https://example.org/{last:07}")
    assert robots.allowed(f"https://example.org/{last + 1:07}"), "beyond the limit"


@pytest.mark.parametrize(
    "body",
    [
        b"User-agent: a\n" * 30_000 + b"Disallow: /\n" * 10_000,
        b"User-agent: *\nDisallow: /" + b"*a" * 200_000,
        b"User-agent: *\n" + b"Disallow: /*a*b*c*d$\n" * 20_000,
        b":" * MAX_BYTES,
        b"\0" * MAX_BYTES,
        b"\r" * MAX_BYTES,
        b"User-agent: *\nDisallow: /" + b"%25" * 150_000,
        b"User-agent: *\n" + b"Sitemap: https://example.org/\n" * 15_000,
        bytes(range(256)) * 2_000,
    ],
)
def test_hostile_files_are_read(body: bytes) -> None:
    robots = Robots.parse(200, body, AGENT)
    assert robots.allowed("https://example.org/robots.txt") and robots.size < 20_000_000
    assert robots.allowed("https://example.org/" + "abc" * 600) in (True, False)


def test_a_crawl_delay_is_kept_up_to_a_cap() -> None:
    politeness = HostClock(PolitenessConfig(min_delay_seconds=1.0, max_crawl_delay_seconds=30.0))
    for asked, seconds in ((b"0.1", 1.0), (b"7", 7.0), (b"30", 30.0), (b"86400", 30.0), (b"soon", 1.0), (b"-3", 1.0)):
        robots = Robots.parse(200, b"User-agent: *\nCrawl-delay: " + asked, AGENT)
        host = HostState(crawl_delay=robots.crawl_delay)
        assert politeness.after(host, fetched()) == seconds


def test_nothing_is_believed_for_longer_than_a_day() -> None:
    cache = RobotsCache()
    for status in (200, 404, 503, None):
        cache.put(str(status), Robots.parse(status, PARTLY, AGENT), now=0.0)
        assert cache.get(str(status), 86_400.0) is None
    assert LIFETIME_SECONDS == 86_400.0


GROUPS = b"""User-agent: first
User-agent: second
Disallow: /a

User-agent: FIRST
Allow: /a/b
Disallow: /c*d$

User-agent: *
Disallow: /
"""


@pytest.mark.parametrize("agent", ["first", "second", "third"])
@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/b/c", "/cd", "/cxd", "/cxde", "/e"])
def test_groups_and_wildcards_as_protego_has_them(agent: str, path: str) -> None:
    url = f"https://example.org{path}"
    expected = Protego.parse(GROUPS.decode()).can_fetch(url, agent)
    assert Robots.parse(200, GROUPS, agent).allowed(url) == expected

"""Links, outcomes and frontiers for tests, and a clock that stands where it is put."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from corpus.crawl.config import BudgetConfig, CrawlConfig
from corpus.crawl.fates import FETCHED, Claim, Link, Outcome, Place, Reference
from corpus.crawl.frontier.frontier import Frontier

DATE = "2026-01-02T03:04:05Z"


class Clock:
    """Monotonic seconds; each process has its own zero."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def config(**budget: Any) -> CrawlConfig:
    return CrawlConfig(seeds=("http://a.cn/",), contact="a@b.cn", budget=BudgetConfig(**budget))


def opened(folder: Path, clock: Clock, **budget: Any) -> Frontier:
    return Frontier(folder / "frontier.sqlite", config(**budget), clock)


def link(url: str, **changes: Any) -> Link:
    """A link to `url`; its pattern is the host and the first part of the path."""
    parts = urlsplit(url)
    host, first = parts.netloc, parts.path.split("/")[1]
    names = sorted(part.split("=")[0] for part in parts.query.split("&"))
    values: dict[str, Any] = {
        "url": url,
        "key": hashlib.md5(url.encode()).digest(),
        "host": host,
        "domain": ".".join(host.split(".")[-2:]),
        "pattern": hashlib.md5(f"{host}/{first}?{names}".encode()).digest()[:8],
        "query_path": hashlib.md5(f"{host}{parts.path}".encode()).digest()[:8] if parts.query else bytes(8),
        "depth": 1,
        "priority": 0.5,
    }
    return Link(**(values | changes))


def fetched(claim: Claim, **changes: Any) -> Outcome:
    """A Chinese page of 100 bytes that nobody else has."""
    digest = f"sha1:{claim.key.hex()}"
    values: dict[str, Any] = {
        "digest": digest,
        "record": Reference(f"urn:uuid:{claim.key.hex()}", claim.url, DATE),
        "status": 200,
    }
    values |= {"text_bytes": 9_000, "chinese_bytes": 9_000}
    return Outcome(**({"fate": FETCHED, "fetched_bytes": 100, **values} | changes))


def claimed(frontier: Frontier, clock: Clock) -> Claim | None:
    """The next claim, whenever it is due; None when there is none."""
    while (claim := frontier.next(clock.now)) is None:
        wait = frontier.seconds_until_due(clock.now)
        if wait is None:
            return None
        assert wait > 0, "a frontier that says that something is due has it"
        clock.now += wait
    return claim


def taken(frontier: Frontier, clock: Clock) -> Claim:
    """The next claim, which is due at once."""
    claim = frontier.next(clock.now)
    assert claim is not None
    return claim


def drained(frontier: Frontier, clock: Clock, **changes: Any) -> list[str]:
    """Fetch all there is; the URLs in order."""
    urls = []
    while (claim := claimed(frontier, clock)) is not None:
        urls.append(claim.url)
        frontier.finish(claim, fetched(claim, **changes), clock.now + 1, place=Place("00000.warc.gz", len(urls), DATE))
    frontier.check_books()
    return urls

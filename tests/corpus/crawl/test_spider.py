"""Scrapy's part: what of it is off, and what becomes of answers and failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import NotSupported
from scrapy.settings import Settings

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import Claim
from corpus.crawl.network.fetched import FetchError
from corpus.crawl.network.handler import NETWORK_SETTING, GuardedHandler
from corpus.crawl.spider import CrawlSpider, settings
from corpus.crawl.visits import Visit
from corpus.engine.errors import DiskError

CONFIG = CrawlConfig(seeds=("http://a.cn/",), contact="me@example.org")
CLAIM = Claim(1, "http://a.cn/%B9", bytes(16), "a.cn", "a.cn", 0, 0, 0)
VISIT = Visit(CLAIM, CLAIM.url, "a.cn", 1000, {"User-Agent": "x"}, ("text/html",))


class Script:
    """Visits that give out what they are told to, and note what they hear."""

    def __init__(self, *visits: Visit, error: Exception | None = None) -> None:
        self.waiting = list(visits)
        self.error = error
        self.told: list[Any] = []
        self.under_way = 0
        self.mistakes: list[BaseException] = []

    def next(self) -> Visit | None:
        if not self.waiting:
            return None
        self.under_way += 1
        return self.waiting.pop(0)

    def seconds_until_next(self) -> float | None:
        return 0.0 if self.waiting else None

    def record(self, visit: Visit, answer: Any) -> Visit | None:
        if self.error is not None:
            raise self.error
        self.under_way -= 1
        self.told.append(answer)
        return None

    def unexpected(self, error: BaseException) -> None:
        self.mistakes.append(error)


class Failed:
    """What Scrapy hands to an errback."""

    def __init__(self, request: Request, value: BaseException) -> None:
        self.request, self.value = request, value


def spider_of(script: Script, concurrency: int = 8) -> CrawlSpider:
    return CrawlSpider(script, concurrency)  # type: ignore[arg-type]


async def requests(spider: CrawlSpider, answer: Any) -> list[Request]:
    """Everything that `start` yields; each is answered before the next one is asked for."""
    found = []
    async for request in spider.start():
        found.append(request)
        asyncio.get_running_loop().call_soon(answer, Failed(request, FetchError("dns", "")))
        await asyncio.sleep(0)  # as Scrapy's engine does between two requests
    return found


def test_nothing_of_scrapys_own_is_on() -> None:
    made = Settings(settings(CONFIG))
    for name in ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "ITEM_PIPELINES"):
        assert not dict(made.getwithbase(name)), name
    assert not made.getbool("TWISTED_REACTOR_ENABLED") and not made.getbool("TELNETCONSOLE_ENABLED")
    assert made["DOWNLOAD_HANDLERS"]["https"] is GuardedHandler
    assert made.copy()[NETWORK_SETTING] == CONFIG.network
    assert made.getint("CONCURRENT_REQUESTS_PER_DOMAIN") == 1 and made.getfloat("DOWNLOAD_DELAY_JITTER") == 0.0


def test_it_asks_for_every_visit_and_ends_when_nothing_is_left() -> None:
    script = Script(VISIT, VISIT, VISIT)
    spider = spider_of(script)
    found = asyncio.run(requests(spider, spider.failed))
    assert len(found) == len(script.told) == 3
    assert found[0].url == "http://a.cn/%B9"  # byte for byte
    assert found[0].meta["download_slot"] == "a.cn" and found[0].meta["accept"] == ("text/html",)


def test_no_more_than_so_many_are_under_way() -> None:
    script, most = Script(*[VISIT] * 6), 0
    spider = spider_of(script, concurrency=2)

    def answer(failure: Failed) -> None:
        nonlocal most
        most = max(most, script.under_way)
        asyncio.get_running_loop().call_later(0.001, spider.failed, failure)

    assert len(asyncio.run(requests(spider, answer))) == 6
    assert most == 2


def test_stopped_it_asks_for_nothing_more() -> None:
    script = Script(*[VISIT] * 6)
    spider = spider_of(script)

    def answer(failure: Failed) -> None:
        spider.failed(failure)
        spider.stop()

    assert len(asyncio.run(requests(spider, answer))) <= 2
    assert len(script.waiting) >= 4


@pytest.mark.parametrize("error", [DiskError("full"), KeyError("x")])
def test_what_cannot_be_recorded_ends_the_crawl(error: Exception) -> None:
    spider = spider_of(Script(*[VISIT] * 6, error=error))
    assert len(asyncio.run(requests(spider, spider.failed))) <= 2
    assert spider.failure is error


def test_a_failure_that_nobody_foresaw_costs_its_url() -> None:
    script = Script(VISIT)
    spider = spider_of(script)
    request, error = Request(VISIT.url, meta={"visit": VISIT}), ZeroDivisionError("秘密")
    spider.failed(Failed(request, error))
    assert [(told.kind, told.detail) for told in script.told] == [("internal", "ZeroDivisionError")]
    assert script.mistakes == [error] and spider.failure is None


def test_without_a_handler_nothing_goes_on() -> None:
    script = Script(VISIT)
    spider = spider_of(script)
    error = NotSupported("Unsupported URL scheme 'http'")
    spider.failed(Failed(Request(VISIT.url, meta={"visit": VISIT}), error))
    assert spider.failure is error and not script.told


def test_what_was_cut_off_has_no_fate() -> None:
    script = Script(VISIT)
    spider = spider_of(script)
    spider.aborted = True
    spider.failed(Failed(Request(VISIT.url, meta={"visit": VISIT}), asyncio.CancelledError()))
    assert not script.told and not script.mistakes

"""Scrapy's part: it carries requests to the handler and answers back, paced by the frontier.

Scrapy's own middlewares and extensions are all off (robots, redirects, retries, cookies, proxies of the environment,
telnet ...): what they do is done here where the frontier can record it, or not at all. One request a host is under way
at a time, and never more than `concurrency` in all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from scrapy import Request, Spider
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import NotSupported
from scrapy.http import Response
from scrapy.logformatter import LogFormatter
from twisted.python.failure import Failure

from corpus.crawl.config import CrawlConfig
from corpus.crawl.network.fetched import FetchError
from corpus.crawl.network.handler import NETWORK_SETTING, GuardedHandler
from corpus.crawl.visits import Visit, Visits

MAX_REST_SECONDS = 1.0  # a frontier that is asked this often at least


class CrawlSpider(Spider):  # type: ignore[misc]
    """Asks for what `Visits` says and tells it what came of it."""

    name = "crawl"

    def __init__(self, visits: Visits, concurrency: int) -> None:
        super().__init__()
        self.visits = visits
        self.concurrency = concurrency
        self.failure: BaseException | None = None
        self.on_stop: Callable[[], None] = lambda: None
        self.aborted = False
        """What was under way was cut off: its URLs stay pending, whatever its tasks say on their way out."""
        self._stopping = False
        self._changed = asyncio.Event()

    @classmethod
    def from_crawler(cls, crawler: Any, *arguments: Any, **options: Any) -> CrawlSpider:
        """Scrapy's way to make a spider; ours is given."""
        spider: CrawlSpider = arguments[0]
        spider._set_crawler(crawler)
        return spider

    def stop(self) -> None:
        """Ask for nothing more; what is under way may come to its end."""
        if not self._stopping:
            self._stopping = True
            self._changed.set()
            self.on_stop()

    def fail(self, error: BaseException) -> None:
        """What cannot be recorded ends the crawl."""
        self.failure = self.failure or error
        self.stop()

    async def start(self) -> AsyncIterator[Request]:
        """Yield a request whenever a host is due, until nothing is left or the crawl is stopped."""
        try:
            while not self._stopping:
                self._changed.clear()
                visit = self.visits.next() if self.visits.under_way < self.concurrency else None
                if visit is not None:
                    yield self._request(visit)
                    continue
                rest = self.visits.seconds_until_next()
                if rest is None and not self.visits.under_way:
                    return
                await self._rest(MAX_REST_SECONDS if rest is None else rest)
        except Exception as error:
            self.fail(error)

    async def _rest(self, seconds: float) -> None:
        """Wait until an answer is in, or for so long."""
        try:
            await asyncio.wait_for(self._changed.wait(), min(max(seconds, 0.0), MAX_REST_SECONDS))
        except TimeoutError:
            return

    def _request(self, visit: Visit) -> Request:
        meta: dict[str, Any] = {
            "visit": visit,
            "accept": visit.accept,
            "max_bytes": visit.max_bytes,
            "download_slot": visit.host,
            "verbatim_url": True,  # it is normalized, and GBK escapes must stay as they are
        }
        return Request(
            visit.url, headers=visit.headers, meta=meta, callback=self.answered, errback=self.failed, dont_filter=True
        )

    async def answered(self, response: Response) -> AsyncIterator[Request]:
        """An answer is in; a redirect of robots.txt is followed at once, in the host's own pace."""
        assert response.request is not None
        meta = response.request.meta
        following = self._tell(meta["visit"], meta["fetched"])
        if following is not None:
            await asyncio.sleep(following.wait_seconds)
            yield self._request(following)

    def failed(self, failure: Failure) -> None:
        """No answer came."""
        if self.aborted:
            return
        visit = failure.request.meta["visit"]
        error = failure.value
        if isinstance(error, NotSupported):  # the handler could not be made: every request would end like this
            self.fail(error)
            return
        if not isinstance(error, FetchError):  # ours or a library's: it ends one URL
            self.visits.unexpected(error)
            error = FetchError("internal", type(error).__name__)
        self._tell(visit, error)

    def _tell(self, visit: Visit, answer: Any) -> Visit | None:
        """Hand an answer over; what cannot be recorded (a full disk) ends the crawl."""
        if self.aborted:
            return None
        try:
            return self.visits.record(visit, answer)
        except Exception as error:
            self.fail(error)
            return None
        finally:
            self._changed.set()


class Queue(BaseScheduler):  # type: ignore[misc]
    """What `start` yields goes on at once: the frontier has ordered it."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def has_pending_requests(self) -> bool:
        """Whether a request waits."""
        return bool(self._requests)

    def enqueue_request(self, request: Request) -> bool:
        """Take a request."""
        self._requests.append(request)
        return True

    def next_request(self) -> Request | None:
        """The oldest request."""
        return self._requests.popleft() if self._requests else None


class SilentLog(LogFormatter):  # type: ignore[misc]
    """No line a page: URLs may hold personal data, and the books say what became of each."""

    def crawled(self, request: Request, response: Response, spider: Spider) -> None:
        """Nothing."""


def settings(config: CrawlConfig) -> dict[str, Any]:
    """Scrapy's settings for a crawl."""
    return {
        "TWISTED_REACTOR_ENABLED": False,
        "DOWNLOAD_HANDLERS": {"http": GuardedHandler, "https": GuardedHandler},
        NETWORK_SETTING: config.network,
        "DOWNLOADER_MIDDLEWARES_BASE": {},
        "SPIDER_MIDDLEWARES_BASE": {},
        "EXTENSIONS_BASE": {},
        "TELNETCONSOLE_ENABLED": False,
        "SCHEDULER": Queue,
        "LOG_FORMATTER": SilentLog,
        "WARN_ON_GENERATOR_RETURN_VALUE": False,
        "CONCURRENT_ITEMS": 1,  # tasks that wait for what a callback yields, made for each answer
        "CONCURRENT_REQUESTS": 0,  # the spider paces itself
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,  # of a slot, which is a host here
        "DOWNLOAD_DELAY": 0,
        "DOWNLOAD_DELAY_JITTER": 0,
    }

"""A Scrapy spider of an hour, to compare the crawler with: python -m tools.evaluate.plain_spider WEB

WEB is JSON: `seeds` and `addresses` (by host). Links are followed by a LinkExtractor, and nothing is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer

NUM_HOSTS = 64
ADDRESSES: dict[str, str] = {}


class Resolver(CachingThreadedResolver):  # type: ignore[misc]
    """Knows the fake web's hosts."""

    def getHostByName(self, name: str, timeout: Any = ()) -> Any:
        """The address of a host."""
        return defer.succeed(ADDRESSES[name])


class PlainSpider(scrapy.Spider):  # type: ignore[misc]
    """Follows every link."""

    name = "plain"
    links = LinkExtractor()
    seeds: list[str] = []

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The seeds."""
        for seed in self.seeds:
            yield scrapy.Request(seed)

    def parse(self, response: Any) -> Iterator[scrapy.Request]:
        """Follow the links."""
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)


def main() -> None:
    """Crawl the web to its end."""
    web = json.loads(Path(sys.argv[1]).read_text())
    ADDRESSES.update(web["addresses"])
    PlainSpider.seeds = web["seeds"]
    settings = {
        "CONCURRENT_REQUESTS": NUM_HOSTS,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "COOKIES_ENABLED": False,
        "TWISTED_DNS_RESOLVER": Resolver,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        "USER_AGENT": "plain (+mailto:owner@wenhai.test)",
    }
    process = AsyncCrawlerProcess(settings)
    process.crawl(PlainSpider)
    process.start()


if __name__ == "__main__":
    main()

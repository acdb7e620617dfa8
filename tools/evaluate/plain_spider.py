"""A Scrapy spider of an hour, to compare the crawler with: python -m tools.evaluate.plain_spider WEB [WARC]

WEB is JSON: `seeds` and `addresses` (by host). Links are followed by a LinkExtractor; WARC, if it is given, gets every
response through warcio's writer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

NUM_HOSTS = 64
ADDRESSES: dict[str, str] = {}


class Resolver(CachingThreadedResolver):  # type: ignore[misc]
    """Knows the fake web's hosts."""

    def getHostByName(self, name: str, timeout: Any = ()) -> Any:
        """The address of a host."""
        return defer.succeed(ADDRESSES[name])


class PlainSpider(scrapy.Spider):  # type: ignore[misc]
    """Follows every link and keeps every page."""

    name = "plain"
    links = LinkExtractor()
    seeds: list[str] = []
    writer: WARCWriter | None = None

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The seeds."""
        for seed in self.seeds:
            yield scrapy.Request(seed)

    def parse(self, response: Any) -> Iterator[scrapy.Request]:
        """Write the page, and follow its links."""
        if self.writer is not None:
            lines = [(name.decode(), value.decode()) for name, values in response.headers.items() for value in values]
            head = StatusAndHeaders(f"{response.status} OK", lines, protocol="HTTP/1.1")
            body = BytesIO(response.body)
            self.writer.write_record(
                self.writer.create_warc_record(response.url, "response", payload=body, http_headers=head)
            )
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
    with open(sys.argv[2] if len(sys.argv) > 2 else os.devnull, "wb") as file:
        PlainSpider.writer = WARCWriter(file, gzip=True) if len(sys.argv) > 2 else None
        process = AsyncCrawlerProcess(settings)
        process.crawl(PlainSpider)
        process.start()


if __name__ == "__main__":
    main()

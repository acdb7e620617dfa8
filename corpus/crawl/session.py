"""One run of a crawl: opens the frontier and the archive, carries requests until nothing is left, records on the way.

Durable is what a checkpoint wrote: the archive's files are synced first, then their lengths are committed with the
frontier, so after a kill at any moment both fall back to the same state.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.crawler import AsyncCrawlerRunner

from corpus.crawl.answers import Judge
from corpus.crawl.archive.archive import Archive, ArchiveFile
from corpus.crawl.archive.records import warc_info
from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import Tally
from corpus.crawl.folders import FRONTIER_NAME, STATUS_NAME
from corpus.crawl.frontier.frontier import Frontier
from corpus.crawl.network.address import Guard
from corpus.crawl.network.handler import tls_context
from corpus.crawl.pages.page import warm_up
from corpus.crawl.progress import Pulse, show_progress
from corpus.crawl.seeds import seed_links
from corpus.crawl.spider import CrawlSpider, settings
from corpus.crawl.summary import status_of
from corpus.crawl.urls.url import Scope
from corpus.crawl.visits import Visits, user_agent
from corpus.engine import durable

GRACE_SECONDS = 5.0  # for what is under way when the crawl is asked to stop
PULSE_SECONDS = 1.0
TALLY, SEEDS = "tally", "seeds"  # beside the names of the archive's files in what the frontier saves


class Session:
    """A crawl in `folder`, opened; the caller holds the folder's lock. `since` begins a round, unless one `goes_on`.

    Raises:
        UsageError: a network or certificate of the configuration is wrong.
        WenhaiError: the frontier or the archive is damaged, or of another crawl.
        DiskError: the disk refuses.
    """

    def __init__(
        self,
        config: CrawlConfig,
        folder: Path,
        seeds: Sequence[str],
        since: datetime | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        Guard(config.network), tls_context(config.network.ca_file)  # refuse now what the download handler would
        self.config, self.folder = config, folder
        self.stopped = False
        self._opened = time.monotonic()
        self.frontier = Frontier(folder / FRONTIER_NAME, config, time.monotonic)
        saved = self.frontier.saved()
        tally, saved_seeds = Tally(**saved.pop(TALLY, {})), saved.pop(SEEDS, "")
        self.files = {name: ArchiveFile(name, *entry) for name, entry in saved.items()}
        info = warc_info(user_agent(config), config.contact)
        self._archives = [Archive(folder / name, config.file_bytes, info) for name in ("data", "robots")]
        for archive in self._archives:
            archive.recover(self.files.values())
        scope = Scope(config.follow, seeds, self.frontier.seed_hosts() if config.follow == "hosts" else ())
        judge = Judge(config, scope, self.frontier.host_evidence)
        self.visits = Visits(config, self.frontier, judge, *self._archives, tally=tally)
        digest = durable.digest(seeds)
        if saved_seeds != digest:
            self.frontier.add(seed_links(seeds, config, scope))
        if since is not None and not (goes_on and self.frontier.round):
            self.frontier.begin_round(since)
        self._unsaved: dict[str, Any] = {SEEDS: digest}
        self.checkpoint()

    def tally(self) -> dict[str, Any]:
        """What the crawl has done, this run included, as JSON."""
        seconds = self.visits.before.seconds + time.monotonic() - self._opened
        return asdict(self.visits.tally) | {"seconds": round(seconds, 3)}

    def checkpoint(self) -> None:
        """Make durable what was fetched so far."""
        self._commit([file for archive in self._archives for file in archive.sync()])

    def close_files(self) -> None:
        """Give the open files of the archive their final names."""
        self._commit([file for archive in self._archives for file in archive.close()])

    def close(self) -> None:
        """Let go of the frontier; what came after the last checkpoint is forgotten."""
        self.frontier.close()

    def run(self, *, quiet: bool) -> None:
        """Crawl until nothing is left, a budget is spent or a signal comes (then `stopped` is set)."""
        warm_up()
        asyncio.run(self._run(quiet))

    def _commit(self, files: Sequence[ArchiveFile]) -> None:
        """Record the files that have grown, and with them all that rests on them."""
        self.files.update((file.name, file) for file in files)
        tally = self.tally()
        entries = {file.name: [file.bytes, file.records, file.sha256] for file in files}
        self.frontier.checkpoint({**entries, **self._unsaved, TALLY: tally})
        self._unsaved = {}
        durable.write_json(self.folder / STATUS_NAME, status_of(self.frontier.counts(), tally))

    # ------------------------------------------------------------------------------------------------------------ loop

    async def _run(self, quiet: bool) -> None:
        loop = asyncio.get_running_loop()
        crawler = AsyncCrawlerRunner(settings(self.config)).create_crawler(CrawlSpider)
        spider = CrawlSpider(self.visits, self.config.concurrency)
        crawl = loop.create_task(crawler.crawl_async(spider))
        ending = Ending(crawl, spider)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ending.asked)
        with show_progress(quiet) as draw:
            helpers = [
                loop.create_task(_every(self.config.checkpoint_seconds, self.checkpoint, spider.fail)),
                loop.create_task(_every(PULSE_SECONDS, lambda: draw(self._pulse()), spider.fail)),
            ]
            try:
                with suppress(asyncio.CancelledError):
                    await crawl
            finally:
                for helper in helpers:
                    helper.cancel()
                for number in (signal.SIGINT, signal.SIGTERM):
                    loop.remove_signal_handler(number)
                if spider.aborted:  # connections are still open
                    await crawler.signals.send_catch_log_async(signal=signals.engine_stopped)
        self.stopped = ending.is_asked
        if spider.failure is not None:
            raise spider.failure
        self.checkpoint()

    def _pulse(self) -> Pulse:
        tally, fates = self.visits.tally, self.frontier.counts()
        pending = fates.pop("pending", 0)
        return Pulse(
            pages=tally.pages - self.visits.before.pages,
            fetched_bytes=tally.fetched_bytes - self.visits.before.fetched_bytes,
            busy=self.visits.under_way,
            done=sum(fates.values()),
            pending=pending,
            chinese_bytes=tally.chinese_bytes,
            text_bytes=tally.text_bytes,
        )


class Ending:
    """The end of a crawl before its time: at a first signal what is under way gets a moment, at a second none."""

    def __init__(self, crawl: asyncio.Task[None], spider: CrawlSpider) -> None:
        self._crawl, self._spider = crawl, spider
        self.is_asked = False
        spider.on_stop = self._wind_down

    def asked(self) -> None:
        """A signal came."""
        if self.is_asked:
            self._cut()
        self.is_asked = True
        self._spider.stop()

    def _wind_down(self) -> None:
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cut)

    def _cut(self) -> None:
        if not self._crawl.done():
            self._spider.aborted = True
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # tasks and connections are left behind
            self._crawl.cancel()


async def _every(seconds: float, action: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
    """Do something again and again; its failure ends the crawl."""
    try:
        while True:
            await asyncio.sleep(seconds)
            action()
    except Exception as error:
        failed(error)

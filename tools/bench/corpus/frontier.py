"""The crawler's frontier on made-up URLs: rates, peak memory, size of its file.

A hundred links at a time, as a page has them: four in five to the page's own host, and of all links a third are known
already. Hosts are drawn by Zipf's law, one for a hundred URLs. Rates are of the calls alone, with a checkpoint every
five seconds; the clock that politeness sees stands wherever the next host is due. The work is done in a process of its
own, so that the peak of memory is its own.
"""

from __future__ import annotations

import random
import tempfile
import time
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import xxhash

from corpus.crawl.config import BudgetConfig, CrawlConfig
from corpus.crawl.fates import FETCHED, Claim, Link, Outcome, Reference
from corpus.crawl.frontier.frontier import Frontier, Place
from tools.bench.resident import status
from tools.bench.timing import in_child

LINKS_PER_PAGE = 100
OWN_RATIO = 0.8
KNOWN_RATIO = 1 / 3
URLS_PER_HOST = 100
URLS_PER_PATTERN = 50
VISITS = 100_000
CONCURRENCY = 64
CHECKPOINT_SECONDS = 5.0
DATE = "2026-01-01T00:00:00Z"


def run(arguments: Namespace) -> None:
    """Print rates; the file lies in a temporary folder below `--data` or TMPDIR and is removed."""
    with tempfile.TemporaryDirectory(prefix="wenhai-bench-", dir=arguments.data) as folder:
        in_child(measure, Path(folder), arguments.urls)


def measure(folder: Path, urls: int) -> None:
    """Links in, then visits: print what each call costs."""
    budget = BudgetConfig(max_pages_per_host=1 << 40, max_urls_per_pattern=1 << 40, max_hosts_per_domain=1 << 40)
    now = [0.0]
    config = CrawlConfig(seeds=("-",), contact="-", budget=budget)
    frontier = Frontier(folder / "frontier.sqlite", config, lambda: now[0])
    watch = Stopwatch(frontier, folder)
    for page in pages(urls):
        with watch.time("add", len(page)):
            frontier.add(page)
    pending = frontier.counts()["pending"]
    watch.tell(f"{pending:,} URLs")
    visit(frontier, watch, now, min(VISITS, pending))
    watch.tell(f"{min(VISITS, pending):,} visits")
    start = time.perf_counter()
    frontier.check_books()
    print(f"books checked in {time.perf_counter() - start:,.1f} s: {frontier.counts()}")
    frontier.close()


def visit(frontier: Frontier, watch: Stopwatch, now: list[float], visits: int) -> None:
    """Claim and finish pages that nobody has seen before, as many under way at a time as a crawl has."""
    claims: list[Claim] = []
    for index in range(visits):
        with watch.time("next", 1):
            claim = frontier.next(now[0])
            while claim is None and (wait := frontier.seconds_until_due(now[0])) is not None:
                now[0] += wait
                claim = frontier.next(now[0])
        if claim is not None:
            claims.append(claim)
        if claim is None or len(claims) == CONCURRENCY or index == visits - 1:
            for one in claims:
                name = one.key.hex()
                record = Reference(f"urn:uuid:{name}", one.url, DATE)
                done = Outcome(FETCHED, 200, 20_000, 8_000, 9_000, f"sha1:{name}", one.key, "etag", None, record)
                with watch.time("finish", 1):
                    frontier.finish(one, done, now[0] + 2.0, place=Place("00000.warc.gz", 0, DATE))
            claims = []


def pages(urls: int) -> Iterator[list[Link]]:
    """Links of page after page, until so many different URLs have been made."""
    source = random.Random(0)
    hosts = max(1, urls // URLS_PER_HOST)
    weights = list(accumulate(1 / rank for rank in range(1, hosts + 1)))
    made: Counter[int] = Counter()  # of a host
    total = 0
    while total < urls:
        own, *others = source.choices(range(hosts), cum_weights=weights, k=1 + round(LINKS_PER_PAGE * (1 - OWN_RATIO)))
        page = []
        for host in [own] * round(LINKS_PER_PAGE * OWN_RATIO) + others:
            if made[host] and source.random() < KNOWN_RATIO:
                page.append(link(host, source.randrange(made[host])))
            elif total < urls:
                page.append(link(host, made[host]))
                made[host] += 1
                total += 1
        yield page


def link(host: int, number: int) -> Link:
    """The URL of that number on that host; the same each time."""
    name = f"www.site{host}.{'cn' if host % 3 else 'com'}"
    url = f"http://{name}/section{number // URLS_PER_PATTERN}/2026/article_{number}.html?from=list"
    key = xxhash.xxh3_128_digest(url.encode())
    pattern = xxhash.xxh3_64_digest(f"{name}/section{number // URLS_PER_PATTERN}".encode())
    return Link(url, key, name, name, pattern, bytes(8), 1 + number % 7, key[0] / 255)


class Stopwatch:
    """Seconds and counts of calls, with the checkpoints that fall between them."""

    def __init__(self, frontier: Frontier, folder: Path) -> None:
        self.frontier, self.folder = frontier, folder
        self.spent: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0])  # seconds, and how many
        self.log_bytes, self.checkpointed, self.before = 0, time.perf_counter(), status("VmHWM")

    @contextmanager
    def time(self, what: str, count: int) -> Iterator[None]:
        """Add the block to what `what` took."""
        start = time.perf_counter()
        yield
        end = time.perf_counter()
        self.spent[what] = [self.spent[what][0] + end - start, self.spent[what][1] + count]
        if what != "checkpoint" and end - self.checkpointed > CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Commit, and see how long the log has become."""
        with self.time("checkpoint", 1):
            self.frontier.checkpoint({})
        self.checkpointed = time.perf_counter()
        self.log_bytes = max(self.log_bytes, (self.folder / "frontier.sqlite-wal").stat().st_size)

    def tell(self, what: str) -> None:
        """Commit, print it all, and begin anew."""
        self.checkpoint()
        size = (self.folder / "frontier.sqlite").stat().st_size / 1e6
        print(
            f"{what}: file {size:,.0f} MB, log at most {self.log_bytes / 1e6:,.0f} MB, "
            f"peak memory {status('VmHWM') / 1e6:,.0f} MB ({self.before / 1e6:,.0f} before the first)"
        )
        for name, (seconds, count) in self.spent.items():
            print(f"  {name:<12}{count:>12,} in {seconds:8,.1f} s  {count / seconds:>10,.0f}/s", flush=True)
        self.spent.clear()

"""The crawler's frontier on made-up URLs: rates, peak memory, size of its file.

A hundred links at a time, as a page has them: four in five to the page's own host, and of all links a third are known
already. Hosts are drawn by Zipf's law, one for a hundred URLs. Rates are of the calls alone, with a checkpoint every
five seconds; the clock that politeness sees stands wherever the next host is due. The work is done in a process of its
own, so that the peak of memory is its own.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import shutil
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
from corpus.crawl.fates import FETCHED, Claim, Link, Outcome, Place, Reference
from corpus.crawl.frontier.frontier import Frontier

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
    folder = Path(tempfile.mkdtemp(prefix="wenhai-bench-", dir=arguments.data))
    try:
        work = multiprocessing.get_context("spawn").Process(target=_work, args=(folder, arguments.urls))
        work.start()
        work.join()
    finally:
        shutil.rmtree(folder)


def _work(folder: Path, urls: int) -> None:
    budget = BudgetConfig(max_pages_per_host=1 << 40, max_urls_per_pattern=1 << 40, max_hosts_per_domain=1 << 40)
    before, now = _peak_mb(), [0.0]
    frontier = Frontier(
        folder / "frontier.sqlite", CrawlConfig(seeds=("-",), contact="-", budget=budget), lambda: now[0]
    )
    watch = Stopwatch(frontier, folder)
    for page in pages(urls):
        with watch.time("add", len(page)):
            frontier.add(page)
    watch.checkpoint()
    counts = frontier.counts()
    watch.tell(f"{counts['pending']:,} URLs", before)
    visits = min(VISITS, counts["pending"])
    visit(frontier, watch, now, visits)
    watch.checkpoint()
    watch.tell(f"{visits:,} visits", before)
    start = time.perf_counter()
    frontier.check_books()
    print(f"books checked in {time.perf_counter() - start:,.1f} s: {frontier.counts()}")
    frontier.close()


def visit(frontier: Frontier, watch: Stopwatch, now: list[float], visits: int) -> None:
    """Claim and finish, as many under way at a time as a crawl has."""
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
            finish(frontier, watch, now[0], claims)
            claims = []


def finish(frontier: Frontier, watch: Stopwatch, now: float, claims: list[Claim]) -> None:
    """Pages that nobody has seen before."""
    for claim in claims:
        name = claim.key.hex()
        record = Reference(f"urn:uuid:{name}", claim.url, DATE)
        done = Outcome(FETCHED, 200, 20_000, 8_000, 9_000, f"sha1:{name}", claim.key, "etag", None, record)
        with watch.time("finish", 1):
            frontier.finish(claim, done, now + 2.0, place=Place("00000.warc.gz", 0, DATE))


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
        self.frontier = frontier
        self.folder = folder
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self.log_bytes = 0
        self.checkpointed = time.perf_counter()

    @contextmanager
    def time(self, what: str, count: int) -> Iterator[None]:
        """Add the block to what `what` took."""
        start = time.perf_counter()
        yield
        end = time.perf_counter()
        self.seconds[what] += end - start
        self.counts[what] += count
        if end - self.checkpointed > CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Commit, and see how long the log has become."""
        start = time.perf_counter()
        self.frontier.checkpoint({})
        self.checkpointed = time.perf_counter()
        self.seconds["checkpoint"] += self.checkpointed - start
        self.counts["checkpoint"] += 1
        self.log_bytes = max(self.log_bytes, (self.folder / "frontier.sqlite-wal").stat().st_size)

    def tell(self, what: str, before: float) -> None:
        """Print it all, and begin anew."""
        size = (self.folder / "frontier.sqlite").stat().st_size / 1e6
        print(
            f"{what}: file {size:,.0f} MB, log at most {self.log_bytes / 1e6:,.0f} MB, "
            f"peak memory {_peak_mb():,.0f} MB ({before:,.0f} before the first)"
        )
        for name, seconds in self.seconds.items():
            count = self.counts[name]
            print(f"  {name:<12}{count:>12,} in {seconds:8,.1f} s  {count / seconds:>10,.0f}/s", flush=True)
        self.seconds.clear()
        self.counts.clear()


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

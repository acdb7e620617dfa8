"""How fast the crawler is beside plain Scrapy, on the same web, with the same number of connections.

Three crawlers go over one web of `many.NUM_HOSTS` hosts, each in a process of its own, the server in another: ours as
it is (robots.txt, guard, frontier, page reading, WARC), a Scrapy spider with a LinkExtractor that keeps nothing, and
the same spider writing WARC with warcio. No delays, one connection a host. CPU is the crawler's own process, user and
system: what a crawl of one page a host costs is told apart as the start (imports, tables, certificates, connections),
and a page costs what the others add to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.fake_site import world
from tools.fake_site.crawling import ROOT, command, write_config
from tools.fake_site.log import read_log
from tools.fake_site.many import NUM_HOSTS
from tools.fake_site.site import Web

OURS, SCRAPY, SCRAPY_WARC = "wenhai crawl", "Scrapy, keeps nothing", "Scrapy, writes WARC"
SCRATCH = ("-m", "tools.evaluate.plain_spider")


@dataclass(frozen=True)
class Timing:
    """One crawler's run: distinct pages, seconds of wall clock and of CPU, and the most memory it held."""

    pages: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def compare(out: Path, pages: int) -> int:
    """Run all three on small and on large pages, print the tables; the exit code is 1 if one did not see every page.

    `pages` is more than `NUM_HOSTS`.
    """
    if pages <= NUM_HOSTS:
        raise ValueError(f"{pages} pages: more than {NUM_HOSTS} are needed, one for each host and others")
    print(f"{NUM_HOSTS} hosts, one connection a host, no delay; {os.cpu_count()} cores shared with the server")
    wrong = 0
    for large in (False, True):
        start, _ = _time(out, NUM_HOSTS, large)
        whole, page_bytes = _time(out, pages, large)
        _print(start, whole, f"{pages} pages of {page_bytes / 1e3:.0f} KB")
        wrong += any(timing.pages != pages for timing in whole.values())
    return int(wrong > 0)


def _print(start: dict[str, Timing], whole: dict[str, Timing], title: str) -> None:
    """A row a crawler. Pages a second are of the whole crawl; what a page costs is without the start."""
    print(
        f"\n{title:24}{'pages':>7}{'pages/s':>9}{'start CPU s':>13}{'CPU ms/page':>13}{'Scrapy = 1':>12}{'peak MB':>9}"
    )
    cost = {
        name: (timing.cpu_seconds - start[name].cpu_seconds) / (timing.pages - start[name].pages)
        for name, timing in whole.items()
    }
    for name, timing in whole.items():
        print(
            f"{name:24}{timing.pages:7}{timing.pages / timing.seconds:9.0f}{start[name].cpu_seconds:13.2f}"
            f"{cost[name] * 1000:13.2f}{cost[name] / cost[SCRAPY]:12.2f}{timing.peak_bytes / 1e6:9.0f}"
        )


def _time(out: Path, pages: int, large: bool) -> tuple[dict[str, Timing], float]:
    """Each crawler over a web of its own folder below `out`, and the mean size of its pages."""
    folder = out / f"{'large' if large else 'small'}-{pages}"
    folder.mkdir(parents=True, exist_ok=True)
    log, config = folder / "requests.jsonl", folder / "crawl.toml"
    with world.start(log, kinds=(), pages=pages, large=large) as web:
        calm = {"min_delay_seconds": 0.0, "latency_factor": 0.0}
        budget = {"max_pages_per_host": pages, "max_urls_per_pattern": pages, "max_depth": 100}
        write_config(config, web, politeness=calm, budget=budget, concurrency=NUM_HOSTS, checkpoint_seconds=5.0)
        (folder / "peer.json").write_text(json.dumps({"seeds": web.seeds, "addresses": world.addresses(web)}))
        peer = [sys.executable, *SCRATCH, str(folder / "peer.json")]
        timings = {
            name: _run(arguments, web, log)
            for name, arguments in {
                SCRAPY: peer,
                OURS: command(config, folder / "crawl"),
                SCRAPY_WARC: [*peer, str(folder / "peer.warc.gz")],
            }.items()
        }
    fetched = json.loads((folder / "crawl" / "status.json").read_text())["tally"]
    return timings, fetched["fetched_bytes"] / max(1, fetched["pages"])


def _run(arguments: Sequence[str], web: Web, log: Path) -> Timing:
    """Run a crawler to its end; seconds count from its first request to its last answer."""
    before = len(read_log(log).entries)
    with subprocess.Popen(arguments, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit code {process.returncode}")
    time.sleep(0.1)
    entries = [entry for entry in read_log(log).entries[before:] if entry.target != "/robots.txt"]
    pages = {(entry.host, entry.target) for entry in entries}
    seconds = entries[-1].answered - entries[0].at
    return Timing(len(pages), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)

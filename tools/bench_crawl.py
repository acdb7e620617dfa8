"""How fast the crawler is beside plain Scrapy, on the same web, with the same number of connections.

Three crawlers go over one web of `many.NUM_HOSTS` hosts, each in a process of its own, the server in another: ours as it
is (robots.txt, guard, frontier, page reading, WARC), a Scrapy spider with a LinkExtractor that keeps nothing, and the
same spider writing WARC with warcio. No delays, one connection a host. CPU is the crawler's own process, user and system.
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
SCRATCH = ("-m", "tools.plain_spider")


@dataclass(frozen=True)
class Timing:
    """One crawler's run: distinct pages, seconds of wall clock and of CPU, and the most memory it held."""

    pages: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def compare(out: Path, pages: int) -> int:
    """Run all three, print the table, and return the exit code: 1 if one of them did not see every page."""
    log, config = out / "requests.jsonl", out / "crawl.toml"
    timings = {}
    with world.start(log, kinds=(), pages=pages) as web:
        calm = {"min_delay_seconds": 0.0, "latency_factor": 0.0}
        budget = {"max_pages_per_host": pages, "max_urls_per_pattern": pages, "max_depth": 100}
        write_config(config, web, politeness=calm, budget=budget, concurrency=NUM_HOSTS, checkpoint_seconds=5.0)
        (out / "peer.json").write_text(json.dumps({"seeds": web.seeds, "addresses": world.addresses(web)}))
        peer = [sys.executable, *SCRATCH, str(out / "peer.json")]
        for name, arguments in {
            SCRAPY: peer,
            OURS: command(config, out / "crawl"),
            SCRAPY_WARC: [*peer, str(out / "peer.warc.gz")],
        }.items():
            timings[name] = _run(arguments, web, log)
    print(
        f"{pages} pages of {NUM_HOSTS} hosts, one connection a host, no delay; {os.cpu_count()} cores shared with the server"
    )
    print(f"{'':24}{'pages':>7}{'pages/s':>9}{'CPU ms/page':>13}{'peak MB':>9}{'CPU, Scrapy = 1':>17}")
    for name, timing in timings.items():
        cpu = timing.cpu_seconds / timing.pages
        ratio = cpu / (timings[SCRAPY].cpu_seconds / timings[SCRAPY].pages)
        print(
            f"{name:24}{timing.pages:7}{timing.pages / timing.seconds:9.0f}{cpu * 1000:13.2f}"
            f"{timing.peak_bytes / 1e6:9.0f}{ratio:17.2f}"
        )
    return int(any(timing.pages != pages for timing in timings.values()))


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

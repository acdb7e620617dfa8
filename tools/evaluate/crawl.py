"""Whether the crawler does right, case by case, on a web that knows the answers; how fast it is.

    python -m tools.evaluate.crawl [--data FOLDER] [--out FOLDER]     the coverage table
    python -m tools.evaluate.crawl ssrf                               addresses that must not be reached
    python -m tools.evaluate.crawl speed --pages 4000                 beside plain Scrapy

The web is tools/fake_site, served on loopback by a process of its own. FOLDER of --data holds `html/` with folders of
real pages. The exit code is 1 if anything is wrong.

For the speed two crawlers go over one web of `many.NUM_HOSTS` hosts, each in a process of its own, the server in
another: ours as it is (robots.txt, guard, frontier, page reading, WARC), and a Scrapy spider with a LinkExtractor that
keeps nothing. No delays, one connection a host. CPU is the crawler's own process, user and system: what a crawl of one
page a host costs is told apart as the start (imports, tables, certificates, connections), and a page costs what the
others add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tools.fake_site import world
from tools.fake_site.crawling import ROOT, command, count_records, crawl, look, politeness, read_log, write_config
from tools.fake_site.expected import Row, format_table
from tools.fake_site.many import NUM_HOSTS

OURS, SCRAPY = "wenhai crawl", "Scrapy, keeps nothing"
LATER = "2999-01-01"  # whatever was fetched before is to be visited again


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one evaluation, print its table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("coverage", "ssrf", "speed"), default="coverage")
    parser.add_argument("--data", type=Path, help="see above (default: made-up pages only)")
    parser.add_argument("--out", type=Path, help="keep the crawl here (default: nowhere)")
    parser.add_argument("--pages", type=int, default=4000, help="of the web that speed is measured on")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() if options.out is None else nullcontext(str(options.out)) as folder:
        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        if options.what == "coverage":
            rows = [*coverage(out, options.data), *second_visit(out)]
            print(format_table(rows))
            return int(any(row.wrong for row in rows))
        if options.what == "speed":
            return compare(out, options.pages)
        return ssrf()


def coverage(out: Path, data: Path | None = None) -> list[Row]:
    """Crawl the whole fake web into OUT/crawl; the table."""
    log, config, html = out / "requests.jsonl", out / "crawl.toml", data / "html" if data else None
    log.unlink(missing_ok=True)
    shutil.rmtree(out / "crawl", ignore_errors=True)
    with world.start(log, data=html, tls_folder=out / "tls") as web:
        write_config(config, web)
        crawl(config, out / "crawl")
        return [*web.truth.compare(look(web, log, out / "crawl")), *politeness(log)]


def second_visit(out: Path) -> list[Row]:
    """Crawl the honest sites into OUT/again, and once more after some of their pages have changed; the table of
    that."""
    log, config, folder = out / "again.jsonl", out / "again.toml", out / "again"
    log.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    with world.start(log, kinds=["chinese"]) as web:
        write_config(config, web)
        crawl(config, folder)
        skip = count_records(folder)
    with world.start(log, web.port, kinds=["chinese"], round_number=2) as web:
        crawl(config, folder, "--since", LATER)
        rows = web.truth.compare(look(web, log, folder, skip))
    return [replace(row, case=f"second visit: {row.case}") for row in (*rows, *politeness(log))]


def ssrf() -> int:
    """Print what the guard says to each spelling of an address, and return the exit code."""
    from tools.evaluate.ssrf_cases import rows

    wrong = 0
    for name, url, expected, got in rows():
        print(f"{name:44}{url:72}{expected:12}{got:12}{'' if got == expected else 'WRONG'}")
        wrong += got != expected
    print(f"{wrong} wrong")
    return int(wrong > 0)


@dataclass(frozen=True)
class Timing:
    """One crawler's run: distinct pages, seconds of wall clock and of CPU, and the most memory it held."""

    pages: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def compare(out: Path, pages: int) -> int:
    """How fast the crawler is beside plain Scrapy, on the same web, with the same number of connections.

    Run both on small and on large pages, print the tables; the exit code is 1 if one did not see every page.

    `pages` is more than `NUM_HOSTS`.
    """
    if pages <= NUM_HOSTS:
        raise ValueError(f"{pages} pages: more than {NUM_HOSTS} are needed, one for each host and others")
    print(f"{NUM_HOSTS} hosts, one connection a host, no delay; {os.cpu_count()} cores shared with the server")
    wrong = 0
    for large in (False, True):
        start, _ = _time(out, NUM_HOSTS, large)
        whole, page_bytes = _time(out, pages, large)
        _print_speed(start, whole, f"{pages} pages of {page_bytes / 1e3:.0f} KB")
        wrong += any(timing.pages != pages for timing in whole.values())
    return int(wrong > 0)


def _print_speed(start: dict[str, Timing], whole: dict[str, Timing], title: str) -> None:
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
        peer = [sys.executable, "-m", "tools.evaluate.plain_spider", str(folder / "peer.json")]
        timings = {SCRAPY: _run(peer, log), OURS: _run(command(config, folder / "crawl"), log)}
    fetched = json.loads((folder / "crawl" / "status.json").read_text())["tally"]
    return timings, fetched["fetched_bytes"] / max(1, fetched["pages"])


def _run(arguments: Sequence[str], log: Path) -> Timing:
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

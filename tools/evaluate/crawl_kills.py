"""Kill a crawl at random moments, go on each time, and hold what it leaves against a crawl that nobody killed.

Traps and faults are left out of this web: which of their pages are met before a budget is spent is a matter of time.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fastwarc.warc import ArchiveIterator

from tools.fake_site import world
from tools.fake_site.crawling import ROOT, command, crawl, read_fates, read_payloads, warc_files, write_config
from tools.fake_site.log import read_log

KINDS = ("chinese", "robots", "redirects")
CHECKPOINT_SECONDS = 0.3
KEPT_QUERY = "SELECT url FROM urls JOIN fates ON fates.id = fate WHERE name IN ('fetched', 'revisit', 'not_modified')"


@dataclass
class Deaths:
    """What became of a crawl that was killed again and again."""

    kills: int = 0
    committed: list[int] = field(default_factory=list)  # pages recorded at each kill
    fetched_again: list[str] = field(default_factory=list)  # though they were recorded at an earlier kill
    lost: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    pages: int = 0
    records: int = 0

    @property
    def wrong(self) -> int:
        """How much is wrong."""
        return len(self.fetched_again) + len(self.lost) + len(self.extra) + len(self.damaged)


def kills(out: Path, data: Path | None, times: int, seed: int, pages: int = 1500) -> int:
    """Kill `times` times, print what came of it, and return the exit code."""
    deaths = die(out, data, times, seed, pages)
    print(f"kills                                     {deaths.kills}")
    print(f"pages recorded at each                    {' '.join(map(str, deaths.committed))}")
    print(f"pages in the end                          {deaths.pages}")
    print(f"WARC records, read by fastwarc            {deaths.records}")
    for name, found in (
        ("recorded pages that were fetched again", deaths.fetched_again),
        ("(URL, digest) that the killed crawl lost", deaths.lost),
        ("(URL, digest) that only it has", deaths.extra),
        ("damaged WARC files, by warcio and fastwarc", deaths.damaged),
    ):
        print(f"{name:41} {len(found)}")
        for line in found[:20]:
            print(f"WRONG {line}")
    return int(deaths.wrong > 0)


def die(out: Path, data: Path | None, times: int, seed: int, pages: int) -> Deaths:
    """Crawl once in peace, into OUT/peace, and once under kills, into OUT/killed.

    A crawl that ends before its last kill is not begun anew: `Deaths.kills` says how many there were.
    """
    log, config = out / "requests.jsonl", out / "crawl.toml"
    log.unlink(missing_ok=True)
    for name in ("peace", "killed"):
        shutil.rmtree(out / name, ignore_errors=True)
    deaths = Deaths()
    with world.start(log, kinds=KINDS, data=data / "html" if data else None, pages=pages) as web:
        write_config(config, web, checkpoint_seconds=CHECKPOINT_SECONDS, file_bytes=1 << 20)
        crawl(config, out / "peace")
        requests = len(read_log(log).entries)
        marks = list(_killed(config, out / "killed", log, times, requests, random.Random(seed)))
        crawl(config, out / "killed")
        entries = read_log(log).entries
    for position, recorded in marks:
        deaths.kills += 1
        deaths.committed.append(len(recorded))
        later = {entry.url for entry in entries[position:]}
        deaths.fetched_again += sorted(later & recorded)
    _compare(out, deaths)
    return deaths


def _killed(
    config: Path, out: Path, log: Path, times: int, requests: int, chance: random.Random
) -> Iterator[tuple[int, set[str]]]:
    """Start and kill; after each kill the length of the log, and the pages that the crawl had recorded.

    A start lives for some of the `requests` that the whole crawl makes, and then for a part of a second: moments go by
    work and not by time, so that a slow machine has as many of them in the middle of the crawl.
    """
    for _ in range(times):
        size = log.stat().st_size
        wanted = chance.randint(1, 2 * requests // times)
        with subprocess.Popen(command(config, out), cwd=ROOT, stderr=subprocess.PIPE) as process:
            while process.poll() is None and _requests_after(log, size) < wanted:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 2 * CHECKPOINT_SECONDS))
            ended = process.poll()
            process.kill()
            _, said = process.communicate()
        if ended is not None:
            if ended:
                raise RuntimeError(f"the crawler ended with exit code {ended}:\n{said.decode()[-4000:]}")
            return
        yield len(read_log(log).entries), _recorded(out)


def _requests_after(log: Path, offset: int) -> int:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read().count(b'"event": "request"')


def _recorded(out: Path) -> set[str]:
    """The pages that a killed crawl would find recorded; read from a copy, so that nothing is repaired here."""
    if not (out / "frontier.sqlite").exists():
        return set()
    with tempfile.TemporaryDirectory() as folder:
        for path in out.glob("frontier.sqlite*"):
            shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder, "frontier.sqlite"))) as database:
            try:
                return {url for (url,) in database.execute(KEPT_QUERY)}
            except sqlite3.OperationalError:  # killed before it had its tables
                return set()


def _compare(out: Path, deaths: Deaths) -> None:
    """Set against set, and every file through two readers."""
    peace, killed = (set(read_payloads(out / name).items()) for name in ("peace", "killed"))
    deaths.pages = len(killed)
    deaths.lost = [f"{url} {digest}" for url, digest in sorted(peace - killed)]
    deaths.extra = [f"{url} {digest}" for url, digest in sorted(killed - peace)]
    fates = read_fates(out / "killed")
    deaths.lost += [
        f"{url}: in the ledger only before" for url in sorted(read_fates(out / "peace").keys() - fates.keys())
    ]
    for path in warc_files(out / "killed"):
        checked = subprocess.run(
            [sys.executable, "-m", "warcio.cli", "check", str(path)], capture_output=True, text=True, check=False
        )
        if checked.returncode:
            deaths.damaged.append(f"{path.name}: {checked.stdout[-500:]}{checked.stderr[-500:]}")
        with path.open("rb") as file:
            for record in ArchiveIterator(file, parse_http=False):
                deaths.records += 1
                if not record.verify_block_digest():
                    deaths.damaged.append(f"{path.name}: block digest of the record at {record.stream_pos}")

"""FAULTS row 1 for the crawler: killed at any moments and run again, it ends with the pages of an undisturbed crawl.

The server kills the crawl at requests that a seed draws, so a kill falls between any two steps of the crawl; it is run
again each time. What a checkpoint had recorded is never asked for again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.cli import main as warcio

from corpus.report.verify import verify
from tests.corpus.crawl.small_site import Answer, Child, Site, command, crawl, page, serve, tree

PAGES = 60
LINKS = {f"/{n}": [f"/{child}" for child in range(4 * n + 1, 4 * n + 5) if child < PAGES] for n in range(PAGES)}
HOSTS = ("a.test", "b.test", "c.test")
OPTIONS = ("--set", "crawl.checkpoint_seconds=0.02", "--set", "crawl.file_bytes=20000", "--quiet")


class Killer:
    """Answers like a site, and kills `pid` when `countdown` requests have come."""

    def __init__(self) -> None:
        self.pages = tree(PAGES)
        self.pid = 0
        self.countdown = -1

    def __call__(self, path: str, headers: Mapping[str, str]) -> Answer:
        self.countdown -= 1
        if self.countdown == 0:
            os.kill(self.pid, signal.SIGKILL)
        if path not in self.pages:
            return Answer(b"", 404)
        host = "" if path == "/3" else headers["Host"]  # one page is the same everywhere
        return page(host + path, LINKS[path])


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
def site(killer: Killer) -> Iterator[Site]:
    with serve(killer) as running:
        yield running


def records(out: Path) -> Iterator[tuple[str, str]]:
    """(URL, payload digest) of every page in the archive."""
    for path in sorted((out / "data").glob("*.warc.gz")):
        with open(path, "rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type in ("response", "revisit"):
                    headers = record.rec_headers
                    yield headers.get_header("WARC-Target-URI"), headers.get_header("WARC-Payload-Digest")


def recorded(out: Path, scratch: Path) -> set[str]:
    """The URLs that the last checkpoint knows as finished: read from a copy, as the next run will find them."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for path in out.glob("frontier.sqlite*"):
        shutil.copy(path, scratch)
    if not (scratch / "frontier.sqlite").exists():
        return set()
    db = sqlite3.connect(scratch / "frontier.sqlite")
    try:
        if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'urls'").fetchone()[0]:
            return set()
        return {url for (url,) in db.execute("SELECT url FROM urls WHERE fate IS NOT NULL")}
    finally:
        db.close()


def seeds(site: Site) -> list[str]:
    return [site.url("/0", host) for host in HOSTS]


def crawl_until_killed(killer: Killer, site: Site, out: Path, after: int) -> bool:
    """Run the crawl until its `after`-th request; False when it came to its end before."""
    child = Child(command(site, out, *OPTIONS, seeds=seeds(site), hosts=HOSTS))
    killer.pid, killer.countdown = child.pid, after
    code, said = child.wait()
    killer.countdown = -1
    assert code in (0, -signal.SIGKILL), said
    return code != 0


def warcio_check(files: list[str]) -> int:
    """The exit code of `warcio check`."""
    try:
        return int(warcio(["check", *files]) or 0)
    except SystemExit as ended:
        return int(ended.code or 0)


def check_killed(killer: Killer, site: Site, tmp_path: Path, kills: int, seed: int) -> None:
    crawl(site, tmp_path / "reference", *OPTIONS, seeds=seeds(site), hosts=HOSTS)
    reference = Counter(records(tmp_path / "reference"))
    assert len(reference) == len(HOSTS) * PAGES
    assert set(reference.values()) == {1}
    draw = random.Random(seed)
    out, done, deaths = tmp_path / "out", set[str](), 0
    for _ in range(kills):
        site.requests.clear()
        deaths += crawl_until_killed(killer, site, out, draw.randint(1, 2 * len(HOSTS) * PAGES // kills))
        assert not {site.url(path, host) for host, path in site.requests} & done
        done = recorded(out, tmp_path / "copy")
    site.requests.clear()
    crawl(site, out, *OPTIONS, seeds=seeds(site), hosts=HOSTS)
    assert not {site.url(path, host) for host, path in site.requests} & done
    assert deaths > kills // 2
    assert Counter(records(out)) == reference
    assert warcio_check([str(path) for path in out.glob("*/*.warc.gz")]) == 0
    assert verify(str(out)) == []


@pytest.mark.long
def test_killed_and_resumed_it_ends_as_if_nothing_had_happened(killer: Killer, site: Site, tmp_path: Path) -> None:
    check_killed(killer, site, tmp_path, kills=3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_twenty_times(killer: Killer, site: Site, tmp_path: Path) -> None:
    check_killed(killer, site, tmp_path, kills=20, seed=2)

"""A crawl of the fake web in a child process, and what it left: its ledger and its archive."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from corpus.engine.toml import dump
from tools.fake_site import world
from tools.fake_site.expected import Row, Seen, digest_of
from tools.fake_site.faults import HANGING_UP
from tools.fake_site.log import ill_manners, read_log
from tools.fake_site.robots import CRAWL_DELAYS
from tools.fake_site.site import Web

ROOT = Path(__file__).resolve().parents[2]


def write_config(path: Path, web: Web, **changes: Any) -> None:
    """A recipe with [crawl] for this web; `changes` are values of sections or keys of it, `politeness={...}`."""
    config = world.crawl_config(web)
    for key, value in changes.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    path.write_text(dump({"crawl": config}), "utf-8")


def command(config: Path, out: Path, *arguments: str) -> list[str]:
    """The crawler's command line."""
    return [sys.executable, "-m", "corpus", "crawl", "--config", str(config), "--out", str(out), "--quiet", *arguments]


def crawl(config: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Crawl to the end in a child process.

    Raises:
        RuntimeError: the crawler failed; with the end of what it said.
    """
    done = subprocess.run(command(config, out, *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the crawler ended with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    return done


def read_fates(out: Path) -> dict[str, str]:
    """The finished crawl's ledger: the fate of each URL."""
    table = pq.read_table(out / "urls.parquet", columns=["url", "fate"])
    return dict(zip(table["url"].to_pylist(), table["fate"].to_pylist(), strict=True))


def warc_files(out: Path) -> list[Path]:
    """The archive's closed files: pages, then robots.txt answers."""
    return [*sorted((out / "data").glob("*.warc.gz")), *sorted((out / "robots").glob("*.warc.gz"))]


def read_payloads(out: Path, skip: int = 0) -> dict[str, str]:
    """What the archive has for each URL: of its last record the digest, of a revisit's the digest it names.

    `skip` records at the archive's beginning are of an earlier round.
    """
    found: dict[str, str] = {}
    for record in islice(_records(out), skip, None):
        if record.rec_type == "response":
            found[record.rec_headers["WARC-Target-URI"]] = digest_of(record.content_stream().read())
        elif record.rec_type == "revisit":
            found[record.rec_headers["WARC-Target-URI"]] = record.rec_headers["WARC-Payload-Digest"]
    return found


def count_records(out: Path) -> int:
    """Records of the archive's pages."""
    return sum(1 for _ in _records(out))


def _records(out: Path) -> Iterator[Any]:
    for path in sorted((out / "data").glob("*.warc.gz")):
        with path.open("rb") as file:
            yield from ArchiveIterator(file)


def look(web: Web, log: Path, out: Path, skip: int = 0) -> Seen:
    """What a finished crawl did; `skip` as in `read_payloads`."""
    entries = read_log(log)
    return Seen(entries.asked(web.round), read_fates(out), read_payloads(out, skip), entries.canaries)


def manners(log: Path) -> list[Row]:
    """Rows for what no site's owner may have to complain of; hosts that hang up have one of their own."""
    entries = read_log(log)
    delays = {host: min(seconds, world.MAX_DELAY) for host, seconds in CRAWL_DELAYS.items()}
    found = ill_manners(entries, contact=world.CONTACT, delay=world.MIN_DELAY, crawl_delays=delays)
    hosts = entries.by_host().keys()
    rows = []
    for case, of_case in (
        ("manners: hosts without complaint", hosts - set(HANGING_UP)),
        ("manners: hosts that hang up", hosts & set(HANGING_UP)),
    ):
        complaints = tuple(line for line in found if line.rpartition(": ")[0] in of_case)
        rows.append(Row("allowed", case, len(of_case), len(of_case), complaints))
    return rows

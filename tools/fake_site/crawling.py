"""A crawl of the fake web in a child process, and what it left: its ledger, its archive, and the server's log of who
was asked for what, and with what politeness."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from warcio.archiveiterator import ArchiveIterator

from corpus.engine.toml import dump
from tools.fake_site import world
from tools.fake_site.expected import Row, Seen, digest_of
from tools.fake_site.faults import HANGING_UP
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


def politeness(log: Path) -> list[Row]:
    """Rows for what no site's owner may have to complain of; hosts that hang up have one of their own."""
    entries = read_log(log)
    delays = {host: min(seconds, world.MAX_DELAY) for host, seconds in CRAWL_DELAYS.items()}
    found = ill_manners(entries, contact=world.CONTACT, delay=world.MIN_DELAY, crawl_delays=delays)
    hosts = entries.by_host().keys()
    rows = []
    for case, of_case in (
        ("politeness: hosts without complaint", hosts - set(HANGING_UP)),
        ("politeness: hosts that hang up", hosts & set(HANGING_UP)),
    ):
        complaints = tuple(line for line in found if line.rpartition(": ")[0] in of_case)
        rows.append(Row("allowed", case, len(of_case), len(of_case), complaints))
    return rows


@dataclass(frozen=True, slots=True)
class Entry:
    """A request. `at` and `answered` (when its answer began) are seconds of one clock; `at_once`: connections that its
    host had then."""

    at: float
    answered: float
    host: str
    target: str
    agent: str
    sent: tuple[str, ...]  # names of the header fields
    connection: int
    at_once: int
    round: int
    origin: str  # as in URLs

    @property
    def url(self) -> str:
        """What was asked for."""
        return self.origin + self.target


@dataclass(frozen=True, slots=True)
class Log:
    """All requests in the order in which they came."""

    entries: tuple[Entry, ...]
    canaries: int

    def asked(self, round_number: int = 1) -> Counter[str]:
        """How often each URL was asked for, robots.txt left out."""
        return Counter(
            entry.url for entry in self.entries if entry.target != "/robots.txt" and entry.round == round_number
        )

    def by_host(self) -> Mapping[str, Sequence[Entry]]:
        """Requests of each host, in order; what it says over TLS, on another port, is another host's."""
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.host if entry.origin.startswith("http:") else entry.origin].append(entry)
        return found

    def pauses(self, host: str) -> list[float]:
        """Seconds from the beginning of each answer of a host to its next request: never less than the crawler
        waited."""
        entries = self.by_host().get(host, ())
        return [after.at - before.answered for before, after in pairwise(entries)]


def read_log(path: Path) -> Log:
    """Read what the server wrote; a request without an answer counts as answered when it came."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    answered = {(line["server"], line["request"]): line["at"] for line in lines if line["event"] == "answered"}
    entries = [
        Entry(
            line["at"],
            answered.get((line["server"], line["request"]), line["at"]),
            line["host"],
            line["target"],
            line["agent"],
            tuple(line["sent"]),
            line["connection"],
            line["at_once"],
            line["round"],
            f"{line['scheme']}://{line['host']}:{line['port']}",
        )
        for line in lines
        if line["event"] == "request"
    ]
    return Log(tuple(entries), sum(line["event"] == "canary" for line in lines))


def ill_manners(log: Log, *, contact: str, delay: float, crawl_delays: Mapping[str, float] = {}) -> list[str]:
    """What a site's owner would complain of, in words: two connections at once, no name, no pause, no robots.txt first.

    `delay` and `crawl_delays` (by host) are in seconds.
    """
    found = []
    for host, entries in log.by_host().items():
        at_once = max(entry.at_once for entry in entries)
        if at_once > 1:
            found.append(f"{host}: {at_once} connections at once")
        nameless = sum(contact not in entry.agent for entry in entries)
        if nameless:
            found.append(f"{host}: {nameless} requests without {contact} in the agent's name")
        if entries[0].target != "/robots.txt" and not entries[0].target.startswith(("/hop-", "/rules.txt")):
            found.append(f"{host}: {entries[0].target} was asked for before robots.txt")
        wanted = max(delay, crawl_delays.get(host, 0.0))
        short = [pause for pause in log.pauses(host) if pause < wanted]
        if short:
            found.append(f"{host}: {len(short)} pauses shorter than {wanted} s, the shortest {min(short):.3f} s")
        private = {name for entry in entries for name in entry.sent} & {"cookie", "authorization", "referer"}
        if private:
            found.append(f"{host}: was told {', '.join(sorted(private))}")
    return found

"""The server's log: who was asked for what, and with what manners."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


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

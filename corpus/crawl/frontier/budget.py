"""Links into the frontier, and which are not let in: budgets of hosts and domains, and patterns that only a trap makes
(FAULTS row 24).

A pattern is what URLs of a host have in common but for their numbers and values. It takes so many URLs; one path of a
host takes so many sets of parameter names; and a pattern whose pages keep saying what an earlier page of it said is
closed. A host that says the same under ever new names, each a pattern of its own, is closed after more of them. Seeds
are exempt from what counts links (depth, patterns, hosts of a domain): somebody wrote them down.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from corpus.crawl.config import BudgetConfig
from corpus.crawl.fates import Link
from corpus.crawl.frontier.hosts import Hosts
from corpus.crawl.frontier.url_counts import UrlCounts

QUEUED_PER_PAGE = 4
"""A host may have this many times the pages that it may yet give waiting, so that its best URLs are fetched, not its
first; what waits when the budget is spent falls to it."""
HOST_REPEATS = 10
"""So many times `max_repeats` pages in a row that say what the host said before, each of a pattern with fewer than
`max_repeats` URLs, close the host. Pages of a larger pattern (a printed version of each article) are its own affair."""
NO_QUERY = bytes(8)


@dataclass(slots=True)
class _Host:
    """A host while links are added to it."""

    id: int
    closed: str | None
    queued: int
    round_pages: int
    added: int = 0
    seed: bool = False


class Budgets:
    """Takes links in, and counts them by pattern, query path and domain in the frontier's tables; what it writes
    belongs to the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, config: BudgetConfig, books: UrlCounts, hosts: Hosts) -> None:
        self.db, self.config, self.books, self.hosts = db, config, books, hosts

    def add(self, links: Iterable[Link]) -> None:
        """Take links in, in order: each is known from then on (pending, or refused by a budget), or counted."""
        hosts = dict[str, _Host | None]()
        for link in links:
            if self.db.execute("SELECT 1 FROM urls WHERE key = ?", (link.key,)).fetchone():
                self.books.state.again += 1
                continue
            if link.host not in hosts:
                hosts[link.host] = self._find_host(link.host)
            host = hosts[link.host]
            fate = self._refusal(link, host)
            if fate is None:
                host = hosts[link.host] = host or self._new_host(link)
                fate = self._admit(link, host.id)
            if fate is None:
                assert host is not None
                host.queued += 1
                host.added += 1
                host.seed |= link.depth == 0
            elif not self.books.remembers(fate):
                continue
            self._insert(link, host, fate)
        for host in hosts.values():
            if host is not None and host.added:
                self._queued(host)

    def _find_host(self, name: str) -> _Host | None:
        row = self.db.execute("SELECT id, closed, pending, round_pages FROM hosts WHERE name = ?", (name,)).fetchone()
        return None if row is None else _Host(row[0], self.books.names.get(row[1]), row[2], row[3])

    def _new_host(self, link: Link) -> _Host:
        self.db.execute("INSERT INTO domains VALUES (?, 1) ON CONFLICT DO UPDATE SET hosts = hosts + 1", (link.domain,))
        (id,) = self.db.execute(
            "INSERT INTO hosts (name, domain, hint, turn) VALUES (?, ?, ?, ?) RETURNING id",
            (link.host, link.domain, link.priority, self.hosts.first_turn(link.priority)),
        ).fetchone()
        return _Host(id, None, 0, 0)

    def _insert(self, link: Link, host: _Host | None, fate: str | None) -> None:
        self.db.execute(
            "INSERT INTO urls (key, url, host, pattern, depth, redirects, priority, fate)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(link.key, link.url, None if host is None else host.id, to_signed(link.pattern)),
                *(link.depth, link.redirects, round(1_000 * link.priority)),
                None if fate is None else self.books.fate(fate),
            ),
        )
        self.books.known(fate)

    def _queued(self, host: _Host) -> None:
        """Its new URLs are pending."""
        self.db.execute(
            "UPDATE hosts SET pending = pending + ?, seed = seed OR ? WHERE id = ?", (host.added, host.seed, host.id)
        )
        self.hosts.gain(host.id, host.added, was_idle=host.queued == host.added)

    def _refusal(self, link: Link, host: _Host | None) -> str | None:
        """The fate of a link that is not let in; None: it is (`_admit`). `host` is None when it is new."""
        if link.refused is not None:
            return f"drop:{link.refused}"
        if not link.seed and link.depth > self.config.max_depth:
            return "drop:max_depth"
        if host is None:
            row = self.db.execute("SELECT hosts FROM domains WHERE name = ?", (link.domain,)).fetchone()
            full = row is not None and row[0] >= self.config.max_hosts_per_domain
            return "drop:max_hosts_per_domain" if full and not link.seed else None
        if host.closed is not None:
            return host.closed
        if host.queued >= QUEUED_PER_PAGE * (self.config.max_pages_per_host - host.round_pages):
            return "drop:max_pages_per_host"
        return None

    def _admit(self, link: Link, host: int) -> str | None:
        """Count a link that `_refusal` lets in against its pattern; the fate, if the pattern takes no more."""
        pattern = to_signed(link.pattern)
        row = self.db.execute(
            "SELECT urls, closed FROM patterns WHERE host = ? AND pattern = ?", (host, pattern)
        ).fetchone()
        if row is not None and row[1]:
            return "drop:trap_repeats"
        if row is not None and row[0] >= self.config.max_urls_per_pattern and not link.seed:
            return "drop:trap_pattern"
        if row is None and link.query_path != NO_QUERY and not self._new_query(link):
            return "drop:trap_query"
        self.db.execute(
            "INSERT INTO patterns (host, pattern, urls) VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET urls = urls + 1",
            (host, pattern),
        )
        return None

    def repeats(self, host: int, pattern: int, content: bytes) -> Literal["pattern", "host"] | None:
        """Note what a page says; what is to be closed by it. A pattern is closed here, a host by the caller."""
        said = self.db.execute("SELECT 1 FROM contents WHERE host = ? AND content = ?", (host, content)).fetchone()
        if said is None:
            self.db.execute("UPDATE hosts SET repeats = 0 WHERE id = ? AND repeats > 0", (host,))
        elif self._host_repeats(host, pattern):
            return "host"
        key = (host, pattern)
        if self.db.execute("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", (*key, content)).rowcount:
            self.db.execute("UPDATE patterns SET repeats = 0 WHERE host = ? AND pattern = ? AND repeats > 0", key)
            return None
        (repeats,) = self.db.execute(
            "UPDATE patterns SET repeats = repeats + 1 WHERE host = ? AND pattern = ? RETURNING repeats", key
        ).fetchone()
        if repeats < self.config.max_repeats:
            return None
        self.db.execute("UPDATE patterns SET closed = 1 WHERE host = ? AND pattern = ?", key)
        return "pattern"

    def _host_repeats(self, host: int, pattern: int) -> bool:
        """Count a page that says what its host said before; whether it is one too many."""
        row = self.db.execute(
            "UPDATE hosts SET repeats = repeats + 1 WHERE id = ?"
            " AND (SELECT urls FROM patterns WHERE host = hosts.id AND pattern = ?) < ? RETURNING repeats",
            (host, pattern, self.config.max_repeats),
        ).fetchone()
        return row is not None and row[0] >= HOST_REPEATS * self.config.max_repeats

    def spent(self, round_pages: int, round_bytes: int) -> str | None:
        """The fate that closes a host which gave so much in this round."""
        if round_pages >= self.config.max_pages_per_host:
            return "drop:max_pages_per_host"
        if round_bytes >= self.config.max_bytes_per_host:
            return "drop:max_bytes_per_host"
        return None

    def _new_query(self, link: Link) -> bool:
        path = link.query_path
        row = self.db.execute("SELECT patterns FROM query_paths WHERE path = ?", (path,)).fetchone()
        if row is not None and row[0] >= self.config.max_query_patterns and not link.seed:
            return False
        self.db.execute(
            "INSERT INTO query_paths VALUES (?, 1) ON CONFLICT DO UPDATE SET patterns = patterns + 1", (path,)
        )
        return True


def to_signed(pattern: bytes) -> int:
    """Eight bytes as the integer that SQLite stores."""
    return int.from_bytes(pattern, "big", signed=True)

"""Which URLs are not let in: budgets of hosts and domains, and patterns that only a trap makes (FAULTS row 24).

A pattern is what URLs of a host have in common but for their numbers and values. It takes so many URLs; one path of a
host takes so many sets of parameter names; and a pattern whose pages keep saying what an earlier page of it said is
closed. A host that says the same under ever new names, each a pattern of its own, is closed after more of them. Seeds
are exempt from what counts links (depth, patterns, hosts of a domain): somebody wrote them down.
"""

from __future__ import annotations

import sqlite3
from typing import Literal, Protocol

from corpus.crawl.config import BudgetConfig
from corpus.crawl.fates import Link

QUEUED_PER_PAGE = 4
"""A host may have this many times the pages that it may yet give waiting, so that its best URLs are fetched, not its
first; what waits when the budget is spent falls to it."""
HOST_REPEATS = 10
"""So many times `max_repeats` pages in a row that say what the host said before, each of a pattern with fewer than
`max_repeats` URLs, close the host. Pages of a larger pattern (a printed version of each article) are its own affair."""
NO_QUERY = bytes(8)


class HostBudget(Protocol):
    """What a budget asks of a host."""

    id: int
    closed: str | None
    queued: int
    round_pages: int


class Budgets:
    """The counters of patterns, query paths and domains, in the frontier's tables."""

    def __init__(self, db: sqlite3.Connection, config: BudgetConfig):
        self.db = db
        self.config = config

    def refusal(self, link: Link, host: HostBudget | None) -> str | None:
        """The fate of a link that is not let in; None: it is (`admit`). `host` is None when it is new."""
        if link.refused is not None:
            return f"drop:{link.refused}"
        if not link.seed and link.depth > self.config.max_depth:
            return "drop:max_depth"
        if host is None:
            full = not link.seed and self._hosts_of(link.domain) >= self.config.max_hosts_per_domain
            return "drop:max_hosts_per_domain" if full else None
        if host.closed is not None:
            return host.closed
        if host.queued >= QUEUED_PER_PAGE * (self.config.max_pages_per_host - host.round_pages):
            return "drop:max_pages_per_host"
        return None

    def admit(self, link: Link, host: int) -> str | None:
        """Count a link that `refusal` lets in against its pattern; the fate, if the pattern takes no more."""
        pattern = signed(link.pattern)
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

    def count_host(self, domain: str) -> None:
        """A domain has one host more."""
        self.db.execute("INSERT INTO domains VALUES (?, 1) ON CONFLICT DO UPDATE SET hosts = hosts + 1", (domain,))

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

    def begin_round(self) -> None:
        """Pages that are fetched again say what they said before: that is no trap. The first new one ends a row,
        too."""
        self.db.execute("DELETE FROM contents")

    def _new_query(self, link: Link) -> bool:
        path = link.query_path
        row = self.db.execute("SELECT patterns FROM query_paths WHERE path = ?", (path,)).fetchone()
        if row is not None and row[0] >= self.config.max_query_patterns and not link.seed:
            return False
        self.db.execute(
            "INSERT INTO query_paths VALUES (?, 1) ON CONFLICT DO UPDATE SET patterns = patterns + 1", (path,)
        )
        return True

    def _hosts_of(self, domain: str) -> int:
        row = self.db.execute("SELECT hosts FROM domains WHERE name = ?", (domain,)).fetchone()
        return 0 if row is None else int(row[0])


def signed(pattern: bytes) -> int:
    """Eight bytes as the integer that SQLite stores."""
    return int.from_bytes(pattern, "big", signed=True)

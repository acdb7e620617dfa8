"""Links into the frontier: known already, refused by a budget, or pending from now on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from corpus.crawl.fates import Link
from corpus.crawl.frontier.books import Books
from corpus.crawl.frontier.budget import Budgets, signed
from corpus.crawl.frontier.hosts import Hosts


@dataclass(slots=True)
class Added:
    """What became of links: new and pending, refused and remembered, known before, refused and only counted."""

    new: int = 0
    refused: int = 0
    again: int = 0
    beyond: int = 0


@dataclass(slots=True)
class _Host:
    """A host while links are added to it."""

    id: int
    closed: str | None
    queued: int
    round_pages: int
    added: int = 0
    seed: bool = False


class Intake:
    """Takes links in; what it writes belongs to the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, books: Books, budgets: Budgets, hosts: Hosts) -> None:
        self.db = db
        self.books = books
        self.budgets = budgets
        self.hosts = hosts

    def add(self, links: Iterable[Link]) -> Added:
        """Take them in, in order."""
        added, hosts = Added(), dict[str, _Host | None]()
        for link in links:
            if self.db.execute("SELECT 1 FROM urls WHERE key = ?", (link.key,)).fetchone():
                self.books.state.again += 1
                added.again += 1
                continue
            if link.host not in hosts:
                hosts[link.host] = self._find_host(link.host)
            host = hosts[link.host]
            fate = self.budgets.refusal(link, host)
            if fate is None:
                host = hosts[link.host] = host or self._new_host(link)
                fate = self.budgets.admit(link, host.id)
            if fate is None:
                assert host is not None
                host.queued += 1
                host.added += 1
                host.seed |= link.depth == 0
                added.new += 1
            elif self.books.remembers(fate):
                added.refused += 1
            else:
                added.beyond += 1
                continue
            self._insert(link, host, fate)
        for host in hosts.values():
            if host is not None and host.added:
                self._queued(host)
        return added

    def _insert(self, link: Link, host: _Host | None, fate: str | None) -> None:
        self.db.execute(
            "INSERT INTO urls (key, url, host, pattern, depth, redirects, priority, fate) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(link.key, link.url, None if host is None else host.id, signed(link.pattern)),
                *(link.depth, link.redirects, round(1_000 * link.priority)),
                None if fate is None else self.books.fate(fate),
            ),
        )
        self.books.known(fate)

    def _find_host(self, name: str) -> _Host | None:
        row = self.db.execute("SELECT id, closed, pending, round_pages FROM hosts WHERE name = ?", (name,)).fetchone()
        return None if row is None else _Host(row[0], self.books.names.get(row[1]), row[2], row[3])

    def _new_host(self, link: Link) -> _Host:
        self.budgets.count_host(link.domain)
        (id,) = self.db.execute(
            "INSERT INTO hosts (name, domain, hint, turn) VALUES (?, ?, ?, ?) RETURNING id",
            (link.host, link.domain, link.priority, self.hosts.first_turn(link.priority)),
        ).fetchone()
        return _Host(id, None, 0, 0)

    def _queued(self, host: _Host) -> None:
        """Its new URLs are pending."""
        self.db.execute(
            "UPDATE hosts SET pending = pending + ?, seed = seed OR ? WHERE id = ?", (host.added, host.seed, host.id)
        )
        self.hosts.gain(host.id, host.added, was_idle=host.queued == host.added)

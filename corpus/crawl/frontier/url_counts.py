"""The books of the frontier: how many URLs have which fate, kept as they change and checked against the rows.

Known URLs = pending + the URLs of each fate (a claimed URL is pending until it is finished). Links offered = known +
links to what was known already + refusals that were only counted. Of refused URLs the first `REMEMBERED` of each fate
become known; beyond that only a counter grows, once for each link, so no trap fills the disk.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from corpus.crawl.fates import FETCHED, KEPT, MOVED, NOT_MODIFIED, Outcome, Place, Reference
from corpus.engine.durable import canonical_json, parse_json
from corpus.engine.errors import WenhaiError

PENDING = "pending"
REMEMBERED = 100_000
MAX_TEXT = 500  # characters of a validator that is kept, and of a detail
MAX_CIRCLE = 100  # redirects that are followed in the books to see whether they lead back


# Of a known URL, as the ledger has it. `host` is None of a refused URL whose host is not crawled, `round` (of the last
# visit) begins at 0, `fetched` is in seconds since 1970.
_URL = "url, name AS host, fate, depth, attempts, round, status, urls.bytes, digest, file, offset, fetched, detail"
_HOST = "name, domain, pending, pages, bytes, chinese_bytes, text_bytes, errors, closed"


@dataclass(slots=True)
class State:
    """What the frontier remembers beside rows; written with each checkpoint."""

    time: float = 0.0  # crawl time
    turn: float = 0.0  # hosts.py
    round: int = 0
    since: str | None = None  # the argument that began the round
    round_pages: int = 0
    known: int = 0
    pending: int = 0
    again: int = 0
    beyond: dict[str, int] = field(default_factory=dict)
    reopened: int | None = None  # the last URL that a round which has only begun has gone through


class UrlCounts:
    """Counters, and the numbers that stand for fates in the rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        saved = db.execute("SELECT value FROM meta WHERE name = 'state'").fetchone()
        self.state = State(**parse_json(saved[0].encode(), "frontier, table meta")) if saved else State()
        rows = db.execute("SELECT id, name, urls FROM fates ORDER BY id").fetchall()
        self._ids = {name: fate for fate, name, _ in rows}
        self.names = {fate: name for fate, name, _ in rows}
        self._urls = Counter({name: urls for _, name, urls in rows})

    def save(self) -> None:
        """Write what is counted in memory; the caller commits."""
        text = canonical_json(asdict(self.state)).decode()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('state', ?)", (text,))
        self.db.executemany("UPDATE fates SET urls = ? WHERE name = ?", [(n, name) for name, n in self._urls.items()])

    def fate(self, name: str) -> int:
        """The number of a fate, given when it first occurs."""
        if name not in self._ids:
            (fate,) = self.db.execute("INSERT INTO fates (name) VALUES (?) RETURNING id", (name,)).fetchone()
            self._ids[name], self.names[fate] = fate, name
        return int(self._ids[name])

    def known(self, fate: str | None) -> None:
        """A URL is new: pending, or refused with a fate."""
        self.state.known += 1
        if fate is None:
            self.state.pending += 1
        else:
            self._urls[fate] += 1

    def remembers(self, fate: str) -> bool:
        """Whether one more URL refused with this fate becomes known; else it is counted here."""
        if self._urls[fate] < REMEMBERED:
            return True
        self.state.beyond[fate] = self.state.beyond.get(fate, 0) + 1
        return False

    def ended(self, fate: str, urls: int = 1) -> None:
        """Pending URLs have a fate now."""
        self.state.pending -= urls
        self._urls[fate] += urls

    def reopen(self, kept: Iterable[str], since: datetime, passing: Iterable[str], ids: range) -> int:
        """Make URLs pending again: of `kept` fates what was fetched before `since`, of `passing` all; how many."""
        old, failed = (
            json.dumps([self._ids[name] for name in names if name in self._ids]) for names in (kept, passing)
        )
        which = (
            "id >= ? AND id < ? AND ((fate IN (SELECT value FROM json_each(?)) AND fetched < ?)"
            " OR fate IN (SELECT value FROM json_each(?)))"
        )
        values = (ids.start, ids.stop, old, int(since.timestamp()), failed)
        numbers = Counter(chain.from_iterable(self.db.execute(f"SELECT fate FROM urls WHERE {which}", values)))
        for fate, urls in numbers.items():
            self._urls[self.names[fate]] -= urls
        self.db.execute(f"UPDATE urls SET fate = NULL, attempts = 0 WHERE {which}", values)
        self.state.pending += numbers.total()
        return numbers.total()

    def store(self, url: int, outcome: Outcome, place: Place | None) -> int:
        """Write the outcome to the URL's row; the row's pattern."""
        row: dict[str, Any] = {
            "fate": self.fate(outcome.fate),
            "round": self.state.round,
            "status": outcome.status,
            "bytes": outcome.fetched_bytes,
            "target": outcome.links[0].key if outcome.fate == MOVED and outcome.links else None,
            "detail": _storable(outcome.detail[:MAX_TEXT]) or None,
        }
        if outcome.fate in KEPT:
            said = {"digest": outcome.digest, "etag": outcome.etag, "last_modified": outcome.last_modified}
            for name, text in said.items():
                if text is not None or outcome.fate != NOT_MODIFIED:  # what a 304 does not say is as it was
                    row[name] = None if text is None or len(text) > MAX_TEXT else _storable(text)
        if place is not None:
            row |= {
                "file": place.file,
                "offset": place.offset,
                "fetched": int(datetime.fromisoformat(place.date).timestamp()),
            }
        names = ", ".join(f"{name} = ?" for name in row)
        (pattern,) = self.db.execute(
            f"UPDATE urls SET attempts = attempts + 1, {names} WHERE id = ? RETURNING pattern", (*row.values(), url)
        ).fetchone()
        if outcome.fate == FETCHED and outcome.digest is not None and outcome.record is not None:
            record = (outcome.digest, outcome.record.record_id, outcome.record.url, outcome.record.date)
            self.db.execute("INSERT OR IGNORE INTO payloads VALUES (?, ?, ?, ?)", record)
        return int(pattern)

    def leads_back(self, url: bytes, target: bytes) -> bool:
        """Whether redirects that are known lead from `target` to the URL of key `url`, which leads to `target`."""
        for _ in range(MAX_CIRCLE):
            if target == url:
                return True
            row = self.db.execute(
                "SELECT target FROM urls WHERE key = ? AND fate = ?", (target, self.fate(MOVED))
            ).fetchone()
            if row is None or row[0] is None:
                return False
            (target,) = row
        return True

    def payload(self, digest: str) -> Reference | None:
        """The record that holds the payload of this digest, the first there was."""
        row = self.db.execute("SELECT record_id, url, date FROM payloads WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else Reference(*row)

    def last_id(self, table: str) -> int:
        """The last number of a row of `urls` or `hosts`; 0 when there is none."""
        (last,) = self.db.execute(f"SELECT max(id) FROM {table}").fetchone()
        return last or 0

    def counts(self) -> dict[str, int]:
        """How many URLs are pending, and how many have each fate that occurs."""
        return {PENDING: self.state.pending, **{name: urls for name, urls in sorted(self._urls.items()) if urls}}

    def check(self) -> None:
        """Count all rows anew.

        Raises:
            WenhaiError: the books do not balance.
        """
        numbers = Counter(chain.from_iterable(self.db.execute("SELECT fate FROM urls")))  # GROUP BY would sort them all
        found = {PENDING: numbers.pop(None, 0)} | {self.names[fate]: urls for fate, urls in numbers.items()}
        pending, wrong = self.db.execute(
            "SELECT total(pending), total(pending <>"
            " (SELECT count(*) FROM urls WHERE host = hosts.id AND fate IS NULL)) FROM hosts"
        ).fetchone()
        if found != self.counts() or sum(found.values()) != self.state.known or wrong or pending != found[PENDING]:
            raise WenhaiError(
                f"frontier: the books do not balance (written {self.counts()}, found {found}, {wrong:.0f} hosts "
                "wrong): a fault of this program. Begin the crawl anew in an empty folder, and report this line."
            )

    def urls(self) -> Iterator[dict[str, Any]]:
        """All known URLs, in order of discovery: the columns of `_URL`."""
        for row in self._rows(f"SELECT {_URL} FROM urls LEFT JOIN hosts ON hosts.id = urls.host ORDER BY urls.id"):
            yield row | {"fate": PENDING if row["fate"] is None else self.names[row["fate"]]}

    def top_hosts(self, count: int) -> list[dict[str, Any]]:
        """The hosts with most pages: the columns of `_HOST`, bytes of text in UTF-8. Reads all hosts."""
        rows = self._rows(f"SELECT {_HOST} FROM hosts ORDER BY pages DESC, id LIMIT ?", count)
        return [row | {"closed": self.names.get(row["closed"])} for row in rows]

    def _rows(self, query: str, *values: int) -> Iterator[dict[str, Any]]:
        cursor = self.db.execute(query, values)
        names = [column for column, *_ in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)


def _storable(text: str) -> str:
    """Lone surrogates, which headers may hold, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode()

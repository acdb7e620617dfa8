"""What came of a URL, written to its row; and the payloads that were recorded, by digest."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from corpus.crawl.fates import FETCHED, KEPT, MOVED, NOT_MODIFIED, Outcome, Reference
from corpus.crawl.frontier.books import Books

MAX_TEXT = 500  # characters of a validator that is kept, and of a detail
MAX_CIRCLE = 100  # redirects that are followed in the books to see whether they lead back


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when the record of a visit stands."""

    file: str
    offset: int
    date: str  # WARC-Date


class Visits:
    """Stores outcomes; what it writes belongs to the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, books: Books) -> None:
        self.db = db
        self.books = books

    def store(self, url: int, outcome: Outcome, place: Place | None) -> int:
        """Write the outcome to the URL's row; the row's pattern."""
        row: dict[str, Any] = {
            "fate": self.books.fate(outcome.fate),
            "round": self.books.state.round,
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
            row |= {"file": place.file, "offset": place.offset, "fetched": _seconds(place.date)}
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
                "SELECT target FROM urls WHERE key = ? AND fate = ?", (target, self.books.fate(MOVED))
            ).fetchone()
            if row is None or row[0] is None:
                return False
            (target,) = row
        return True

    def payload(self, digest: str) -> Reference | None:
        """The record that holds the payload of this digest, the first there was."""
        row = self.db.execute("SELECT record_id, url, date FROM payloads WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else Reference(*row)


def _seconds(date: str) -> int:
    return int(datetime.fromisoformat(date).timestamp())


def _storable(text: str) -> str:
    """Lone surrogates, which headers may hold, as backslash escapes."""
    return text.encode("utf-8", "backslashreplace").decode()

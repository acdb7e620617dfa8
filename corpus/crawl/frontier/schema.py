"""The frontier's file: its tables, how it is opened, and what SQLite's errors mean to a person.

One process at a time (`locking_mode=EXCLUSIVE`), one transaction that is always open. Nothing is durable before its
COMMIT, so a kill at any moment falls back to the last one. Pages that do not fit into the cache wait in the write-ahead
log; it is emptied into the file after a commit.

A URL is found by its 16 bytes through an index beside the rows. The rows themselves lie in order of discovery, so a
million new ones touch the short index at random places, and the long rows only at the end of the table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpus.engine.errors import DiskError, LockHeld, WenhaiError

APPLICATION_ID = 0x77656E68  # "wenh", in the header of the file
FORMAT = 2
CACHE_KIB = 64 << 10
LOG_PAGES = 4_000  # the log is emptied after a commit that leaves it longer
LOG_KEPT_BYTES = 64 << 20  # and cut to this when it starts anew

# Times are seconds of crawl time: of a clock that stands still while no process works (frontier.py).
SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE saved (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID; -- JSON that checkpoints are given
CREATE TABLE fates (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, urls INTEGER NOT NULL DEFAULT 0);
CREATE TABLE domains (name TEXT PRIMARY KEY, hosts INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE hosts (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, domain TEXT NOT NULL,
    pending INTEGER NOT NULL DEFAULT 0,
    turn REAL NOT NULL, due REAL NOT NULL DEFAULT 0, delay REAL NOT NULL DEFAULT 0,
    hint REAL NOT NULL,                           -- priority of the first link to it
    seed INTEGER NOT NULL DEFAULT 0,              -- a seed is of it, or a redirect of one led to it
    repeats INTEGER NOT NULL DEFAULT 0,           -- see budget.py
    closed INTEGER,                               -- fate of whatever would be pending
    round_pages INTEGER NOT NULL DEFAULT 0, round_bytes INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
    chinese_bytes INTEGER NOT NULL DEFAULT 0, text_bytes INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0,
    state TEXT                                    -- JSON, what politeness remembers
);
CREATE INDEX hosts_pending ON hosts (turn, id, due) WHERE pending > 0;
CREATE TABLE urls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL, url TEXT NOT NULL,
    host INTEGER, pattern INTEGER, depth INTEGER NOT NULL, redirects INTEGER NOT NULL,
    priority INTEGER NOT NULL,                    -- thousandths
    fate INTEGER,                                 -- NULL: pending
    attempts INTEGER NOT NULL DEFAULT 0, round INTEGER, status INTEGER, bytes INTEGER,
    digest TEXT, etag TEXT, last_modified TEXT,
    file TEXT, offset INTEGER, fetched INTEGER,   -- seconds since 1970
    target BLOB,                                  -- key of what a moved URL leads to
    detail TEXT
);
CREATE UNIQUE INDEX urls_key ON urls (key);
CREATE INDEX urls_pending ON urls (host, priority DESC, depth) WHERE fate IS NULL;
CREATE TABLE patterns (
    host INTEGER NOT NULL, pattern INTEGER NOT NULL, urls INTEGER NOT NULL,
    repeats INTEGER NOT NULL DEFAULT 0, closed INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (host, pattern)
) WITHOUT ROWID;
CREATE TABLE query_paths (path BLOB PRIMARY KEY, patterns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE contents (
    host INTEGER NOT NULL, pattern INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (host, content, pattern)
) WITHOUT ROWID;
CREATE TABLE payloads (digest TEXT PRIMARY KEY, record_id TEXT NOT NULL, url TEXT NOT NULL, date TEXT NOT NULL)
    WITHOUT ROWID;
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it, for this process alone; a transaction is begun.

    Raises:
        LockHeld: another process has it open.
        WenhaiError: it is damaged, of another format, or not ours.
        DiskError: the disk refuses.
    """
    with explain_errors(path):
        db = sqlite3.connect(path, timeout=0, isolation_level=None, cached_statements=256)
        try:
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
    owner, version, tables = (
        db.execute(question).fetchone()[0]
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
    )
    new = (owner, version, tables) == (0, 0, 0)
    if not new and owner != APPLICATION_ID:
        raise WenhaiError(f"{path}: not a frontier of ours. Choose another folder for the crawl.")
    if not new and version != FORMAT:
        raise WenhaiError(
            f"{path}: format {version}, this version reads {FORMAT}. Continue with the version that began the crawl, "
            "or begin another in an empty folder."
        )
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"cache_size=-{CACHE_KIB}",
        f"wal_autocheckpoint={LOG_PAGES}",
        f"journal_size_limit={LOG_KEPT_BYTES}",
        "temp_store=FILE",
        "secure_delete=OFF",
        "cell_size_check=ON",
    ):
        db.execute(f"PRAGMA {pragma}")
    db.execute("BEGIN IMMEDIATE")
    if new:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={FORMAT}")
        commit(db)


def commit(db: sqlite3.Connection) -> None:
    """Make durable what was done since the last time, and go on."""
    db.execute("COMMIT")
    db.execute("BEGIN IMMEDIATE")


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors that are not bugs of ours into what to do about them."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF  # the rest of an extended code says where it happened
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LockHeld(f"{path}: another process has it open. Wait for that crawl, or stop it.") from error
        if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise DiskError(
                f"disk: {path} cannot be written ({error}). Free space or mend the disk, then run the same command "
                "again; it goes on from the last checkpoint."
            ) from error
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise WenhaiError(
                f"{path}: damaged ({error}). Restore it from a backup together with the folder data/ beside it, or "
                "begin the crawl anew in an empty folder."
            ) from error
        raise

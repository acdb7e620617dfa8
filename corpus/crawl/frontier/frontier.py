"""Every URL the crawl knows and what became of it, which one is next, and when: on disk, in bounded memory.

Calls change an open transaction, `checkpoint` commits it: after a kill the frontier is what it was at the last
checkpoint, and what was claimed since is pending again. No call reads a wall clock. Due times are kept in crawl time,
which stands still while no process works: after a restart a host is owed the whole rest of its delay, whatever
happened to the machine's clock meanwhile.

Beside it: schema.py (the file), url_counts.py (what balances, and what is written of a visit), budget.py (links, and
which are not let in), hosts.py (whose turn it is).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import KEPT, MOVED, Claim, Link, Outcome, Place, Reference
from corpus.crawl.frontier.budget import Budgets
from corpus.crawl.frontier.hosts import Hosts, Slot
from corpus.crawl.frontier.schema import commit, connect, explain_errors
from corpus.crawl.frontier.url_counts import UrlCounts
from corpus.crawl.pages.focus import host_evidence
from corpus.engine.durable import canonical_json
from corpus.engine.errors import WenhaiError

TRANSIENT = tuple(
    f"error:{kind}" for kind in ("dns", "connect", "timeout", "slow", "truncated", "host_down", "robots_unreachable")
)
"""What a new round tries again."""
REDIRECT_LOOP = "drop:redirect_loop"
TRAP_REPEATS = "drop:trap_repeats"
ROWS_AT_A_TIME = 100_000  # of a transaction that begins a round


class Frontier:
    """The frontier of one crawl. `clock` is monotonic, in seconds; the times of all calls are its times.

    Raises:
        LockHeld: another process has the file open.
        WenhaiError: the file is damaged, not ours, or of another format.
        DiskError: the disk is full or refuses (any call; the last checkpoint stands).
    """

    def __init__(self, path: Path, config: CrawlConfig, clock: Callable[[], float]) -> None:
        self.path = path
        self._clock = clock
        self._max_pages = config.budget.max_pages
        self._claims: dict[int, Slot] = {}
        self._broken = False
        self._db = connect(path)
        try:
            with self._work():
                self._books = UrlCounts(self._db)
        except BaseException:
            self._db.close()
            raise
        self._state = self._books.state
        self._shift = self._state.time - clock()
        limits = config.politeness
        delays = (limits.min_delay_seconds, limits.max_delay_seconds, limits.max_crawl_delay_seconds)
        self._longest = max(*delays, limits.max_retry_after_seconds)
        self._hosts = Hosts(self._db, self._state.time, self._state.turn, max(delays), limits.max_hosts_per_domain)
        self._budgets = Budgets(self._db, config.budget, self._books, self._hosts)
        if self._state.reopened is not None:
            with self._work():
                self._reopen()

    # ------------------------------------------------------------------------------------------------------ durability

    def checkpoint(self, changed: Mapping[str, Any]) -> None:
        """Make everything so far durable, with what has `changed` of what is saved beside it: JSON by name."""
        with self._work():
            rows = [(name, canonical_json(value).decode()) for name, value in changed.items()]
            self._db.executemany("INSERT OR REPLACE INTO saved VALUES (?, ?)", rows)
            self._state.time, self._state.turn = self._clock() + self._shift, self._hosts.turn
            self._books.save()
            commit(self._db)

    def saved(self) -> dict[str, Any]:
        """What checkpoints were given, the last value of each name."""
        with self._work():
            rows = self._db.execute("SELECT name, value FROM saved").fetchall()
            return {name: json.loads(value) for name, value in rows}

    def close(self) -> None:
        """Let go of the file. What came after the last checkpoint is forgotten, as by a kill."""
        self._broken = True
        self._db.close()

    @contextmanager
    def _work(self) -> Iterator[None]:
        """What is interrupted half-way must not be committed by a later call."""
        if self._broken:
            raise WenhaiError(f"{self.path}: closed, or stopped by an error. Run the same command again to resume.")
        self._broken = True
        with explain_errors(self.path):
            yield
        self._broken = False

    # ----------------------------------------------------------------------------------------------------------- links

    def add(self, links: Iterable[Link]) -> None:
        """Take links in, in order: each is known afterwards, or counted."""
        with self._work():
            self._budgets.add(links)

    # ---------------------------------------------------------------------------------------------------------- claims

    def next(self, now: float) -> Claim | None:
        """The best pending URL of the host whose turn it is; None: none is due, or `max_pages` is reached.

        Of a host: by priority, then depth, then order of discovery. The host is left alone until the claim is finished
        or given back.
        """
        with self._work():
            slot = self._hosts.take(now + self._shift) if self._wanted() else None
            if slot is None:
                return None
            id, url, key, depth, redirects, attempts, etag, last_modified, digest = self._db.execute(
                "SELECT id, url, key, depth, redirects, attempts, etag, last_modified, digest FROM urls"
                " WHERE host = ? AND fate IS NULL ORDER BY priority DESC, depth, id LIMIT 1",
                (slot.id,),
            ).fetchone()
            self._claims[id] = slot
            refers_to = None if digest is None else self._books.payload(digest)
            last = (etag, last_modified, digest, refers_to)
            return Claim(id, url, key, slot.name, slot.domain, depth, redirects, attempts, *last)

    def seconds_until_due(self, now: float) -> float | None:
        """How long until `next` may have something; None: not before a claim ends or links are added, if ever."""
        with self._work():
            return self._hosts.seconds_until_due(now + self._shift) if self._wanted() else None

    @property
    def claimed(self) -> int:
        """How many claims are open."""
        return len(self._claims)

    @property
    def done(self) -> bool:
        """Nothing is claimed, and nothing will be unless links are added."""
        return not self._claims and (not self._state.pending or not self._wanted())

    def finish(
        self,
        claim: Claim,
        outcome: Outcome,
        due_at: float,
        *,
        place: Place | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        """Store what came of a claim and take its links in; its host is due again at `due_at`.

        `place` is where its record stands, `state` (JSON) what politeness remembers of the host.
        """
        slot = self._slot(claim)
        with self._work():
            if outcome.fate == MOVED and any(self._books.leads_back(claim.key, link.key) for link in outcome.links):
                outcome = replace(outcome, fate=REDIRECT_LOOP, links=())
            pattern = self._books.store(claim.id, outcome, place)
            self._ended(slot.id, outcome.fate)
            self._visited(slot, outcome)
            closed = outcome.content and self._budgets.repeats(slot.id, pattern, outcome.content)
            if closed == "host":
                self._close(slot.id, TRAP_REPEATS)
            elif closed == "pattern":
                self._drop(slot.id, TRAP_REPEATS, pattern)
            self._budgets.add(outcome.links)
            self._release(claim, slot, due_at, state)

    def give_back(self, claim: Claim, due_at: float, attempt: bool, *, state: dict[str, Any] | None = None) -> None:
        """Let the URL be pending again; `attempt` says whether this counts as one.

        If its host was given up meanwhile, it has the host's fate.
        """
        slot = self._slot(claim)
        with self._work():
            if attempt:
                self._db.execute("UPDATE urls SET attempts = attempts + 1 WHERE id = ?", (claim.id,))
            (closed,) = self._db.execute("SELECT closed FROM hosts WHERE id = ?", (slot.id,)).fetchone()
            if closed is not None:
                self._db.execute("UPDATE urls SET fate = ? WHERE id = ?", (closed, claim.id))
                self._ended(slot.id, self._books.names[closed])
            self._release(claim, slot, due_at, state)

    def give_up_host(self, host: str, fate: str, detail: str = "") -> None:
        """Whatever of a known host is pending, or found later in this round, has this fate.

        A URL of it that is claimed is still to be finished or given back.
        """
        with self._work():
            (id,) = self._db.execute("SELECT id FROM hosts WHERE name = ?", (host,)).fetchone()
            self._close(id, fate, detail)

    def begin_round(self, since: datetime) -> int:
        """Make pages fetched before `since` due again, and what failed for a passing reason; how many there are.

        Claims of a URL that was fetched carry its validators, digest and record. Budgets of hosts, and hosts that were
        given up, begin anew. A round that was begun with the same `since` goes on (0).

        What it changes is made durable piece by piece; a frontier that is opened after a kill in between does the rest.
        """
        if self._claims or since.tzinfo is None:
            raise ValueError("a round begins without claims, and at a time in a time zone")
        if self._state.since == since.isoformat():
            return 0
        with self._work():
            self._state.round, self._state.round_pages = self._state.round + 1, 0
            self._state.since, self._state.reopened = since.isoformat(), 0
            return self._reopen()

    def _reopen(self) -> int:
        """Bring the beginning of a round to its end, from wherever a kill left it: URLs, then hosts."""
        assert self._state.since is not None and self._state.reopened is not None
        since, due = datetime.fromisoformat(self._state.since), 0
        self._db.execute("DELETE FROM contents")  # pages that are fetched again say what they said before: no trap
        for start in range(self._state.reopened + 1, self._books.last_id("urls") + 1, ROWS_AT_A_TIME):
            ids = range(start, start + ROWS_AT_A_TIME)
            due += self._books.reopen(KEPT, since, TRANSIENT, ids)
            self._state.reopened = ids.stop - 1
            self._books.save()
            commit(self._db)
        for start in range(1, self._books.last_id("hosts") + 1, ROWS_AT_A_TIME):
            self._db.execute(
                "UPDATE hosts SET round_pages = 0, round_bytes = 0, closed = NULL, state = NULL,"
                " pending = (SELECT count(*) FROM urls WHERE host = hosts.id AND fate IS NULL)"
                " WHERE id >= ? AND id < ?",
                (start, start + ROWS_AT_A_TIME),
            )
            commit(self._db)
        self._hosts.forget()
        self._state.reopened = None
        self._books.save()
        commit(self._db)
        return due

    # ------------------------------------------------------------------------------------------------------- questions

    def counts(self) -> dict[str, int]:
        """How many URLs are pending, and how many have each fate that occurs."""
        return self._books.counts()

    @property
    def round(self) -> int:
        """Of this crawl; the first is 0."""
        return self._state.round

    def offered(self) -> tuple[int, int, dict[str, int]]:
        """Links so far, as url_counts.py tells them apart: to URLs not known before, to known ones, and refused and
        only counted, by fate."""
        return self._state.known, self._state.again, dict(self._state.beyond)

    def seen_digest(self, digest: str) -> Reference | None:
        """The record that holds this payload."""
        with self._work():
            return self._books.payload(digest)

    def host_evidence(self, host: str) -> float:
        """How likely it is that the next page of a host is Chinese, 0..1."""
        with self._work():
            row = self._db.execute(
                "SELECT chinese_bytes, text_bytes, pages FROM hosts WHERE name = ?", (host,)
            ).fetchone()
            chinese_bytes, text_bytes, pages = row or (0, 0, 0)
            return host_evidence(chinese_bytes, text_bytes, pages, host)

    def due(self, host: str) -> float | None:
        """When a host is due again, or was; None while it is claimed."""
        with self._work():
            if any(slot.name == host for slot in self._claims.values()):
                return None
            row = self._db.execute("SELECT due FROM hosts WHERE name = ?", (host,)).fetchone()
            return -math.inf if row is None else float(row[0]) - self._shift

    def seed_hosts(self) -> list[str]:
        """The hosts of seeds, and those that a redirect of one led to. Reads all hosts."""
        with self._work():
            return [name for (name,) in self._db.execute("SELECT name FROM hosts WHERE seed")]

    def host_state(self, host: str) -> dict[str, Any] | None:
        """What politeness remembers of a host."""
        with self._work():
            row = self._db.execute("SELECT state FROM hosts WHERE name = ?", (host,)).fetchone()
            return None if row is None or row[0] is None else dict(json.loads(row[0]))

    def top_hosts(self, count: int) -> list[dict[str, Any]]:
        """The hosts with most pages: columns of their table. Reads all hosts: for the end of a run."""
        with self._work():
            return self._books.top_hosts(count)

    def iter_urls(self) -> Iterator[dict[str, Any]]:
        """All known URLs, in order of discovery, by column of the ledger; no call that changes anything may come
        before the last."""
        with explain_errors(self.path):
            yield from self._books.urls()

    def check_books(self) -> None:
        """Count all rows anew; raises `WenhaiError` when the books do not balance."""
        with self._work():
            self._books.check()

    # ---------------------------------------------------------------------------------------------------------- helpers

    def _slot(self, claim: Claim) -> Slot:
        try:
            return self._claims[claim.id]
        except KeyError:
            raise ValueError(f"{claim.url} is not claimed") from None

    def _wanted(self) -> bool:
        """Whether `max_pages` leaves room for one more page."""
        return self._max_pages is None or self._state.round_pages + len(self._claims) < self._max_pages

    def _visited(self, slot: Slot, outcome: Outcome) -> None:
        """Count the answer to the host's budgets, whatever its status: a trap's pages may all be soft 404s."""
        answers = int(outcome.status is not None)
        self._state.round_pages += outcome.fate in KEPT
        round_pages, round_bytes, pages, chinese_bytes, text_bytes, hint = self._db.execute(
            "UPDATE hosts SET round_pages = round_pages + ?, round_bytes = round_bytes + ?, pages = pages + ?,"
            " bytes = bytes + ?, chinese_bytes = chinese_bytes + ?, text_bytes = text_bytes + ?, errors = errors + ?"
            " WHERE id = ? RETURNING round_pages, round_bytes, pages, chinese_bytes, text_bytes, hint",
            (
                *(answers, outcome.fetched_bytes, int(outcome.fate in KEPT), outcome.fetched_bytes),
                *(outcome.chinese_bytes, outcome.text_bytes, int(outcome.fate.startswith("error:")), slot.id),
            ),
        ).fetchone()
        slot.rank = self._hosts.rank(slot.name, hint, pages, chinese_bytes, text_bytes)
        spent = self._budgets.spent(round_pages, round_bytes)
        if spent is not None:
            self._close(slot.id, spent)

    def _release(self, claim: Claim, slot: Slot, due_at: float, state: dict[str, Any] | None) -> None:
        del self._claims[claim.id]
        time = self._clock() + self._shift
        slot.due = min(due_at + self._shift, time + self._longest)
        self._db.execute(
            "UPDATE hosts SET turn = ?, due = ?, delay = ?, state = coalesce(?, state) WHERE id = ?",
            (
                *(slot.turn, slot.due, max(0.0, slot.due - time)),
                *(None if state is None else canonical_json(state).decode(), slot.id),
            ),
        )
        self._hosts.release(slot, time)

    def _ended(self, host: int, fate: str, urls: int = 1) -> None:
        """So many pending URLs of a host have this fate; their rows say so already."""
        self._books.ended(fate, urls)
        self._db.execute("UPDATE hosts SET pending = pending - ? WHERE id = ?", (urls, host))
        self._hosts.gain(host, -urls, was_idle=False)

    def _close(self, host: int, fate: str, detail: str = "") -> None:
        closed = (self._books.fate(fate), host)
        self._db.execute("UPDATE hosts SET closed = ? WHERE id = ? AND closed IS NULL", closed)
        self._drop(host, fate, None, detail)

    def _drop(self, host: int, fate: str, pattern: int | None, detail: str = "") -> None:
        """Pending URLs of a host (of one pattern, or all) fall to `fate`; the claimed one is spared."""
        claimed = next((url for url, slot in self._claims.items() if slot.id == host), None)
        urls = self._db.execute(
            "UPDATE urls SET fate = ?, detail = coalesce(?, detail)"
            " WHERE host = ? AND fate IS NULL AND id IS NOT ? AND (? IS NULL OR pattern = ?)",
            (self._books.fate(fate), detail or None, host, claimed, pattern, pattern),
        ).rowcount
        self._ended(host, fate, urls)

"""Whose turn it is: the hosts table, and the few hosts of it that are held in memory.

Start-time fair queuing (Goyal, Vin, Cheng 1996): each request moves a host's turn on by 1 / weight, and of the hosts
that are due the one with the least turn goes first. A Chinese host weighs up to 16 times another, so it comes first and
more often, and none waits for ever. A host becomes due at the present turn at the earliest: rest earns nothing.

In memory are at most `WINDOW` hosts, whatever the crawl knows. A host whose turn comes after that of one outside
leaves; when half of the window is free, those with the least turn come in. One that is due only after `FAR_SECONDS`
waits outside, too.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections import Counter
from dataclasses import dataclass
from typing import Any

from corpus.crawl.pages.focus import host_evidence

WINDOW = 4_096
FAR_SECONDS = 60.0
TICK_SECONDS = 1e-6  # what sums of times may be wrong by
MAX_WEIGHT = 16.0


@dataclass(slots=True)
class Slot:
    """A host in the window. It is waiting (until due), ready, or claimed; `pending` counts the claimed URL, too."""

    id: int
    name: str
    domain: str
    pending: int
    turn: float
    due: float
    rank: float  # 0..1


class Hosts:
    """The window over the table, and its order. Times are crawl time; `opened` is when this process began."""

    def __init__(self, db: sqlite3.Connection, opened: float, turn: float, max_floor: float, at_a_time: int) -> None:
        self.db = db
        self.turn = turn
        """The present turn: that of the last host served."""
        self._opened = opened
        self._max_floor = max_floor
        self._at_a_time = at_a_time
        self._claimed = Counter[str]()  # hosts by domain
        self._blocked: dict[str, list[int]] = {}  # ready, but as many hosts of their domain are claimed as may be
        self._window: dict[int, Slot] = {}
        self._waiting: list[tuple[float, int]] = []  # (due, id); a host is here or below, or claimed
        self._ready: list[tuple[float, float, int]] = []  # (turn, -rank, id)
        self._next_turn = -math.inf  # of the hosts outside that are due soon; infinite: there are none
        self._far_due = math.inf  # when the first of those outside that are due later is

    def forget(self) -> None:
        """Empty the window: the table was changed behind its back."""
        self._window, self._waiting, self._ready, self._blocked = {}, [], [], {}
        self._next_turn, self._far_due = -math.inf, math.inf

    # ---------------------------------------------------------------------------------------------------------- order

    def take(self, time: float) -> Slot | None:
        """The host to ask next; it is claimed until `release`."""
        self._wake(time)
        while self._ready:
            slot = self._window[heapq.heappop(self._ready)[-1]]
            if slot.pending == 0:
                del self._window[slot.id]
                continue
            if self._claimed[slot.domain] >= self._at_a_time:
                self._blocked.setdefault(slot.domain, []).append(slot.id)
                continue
            self._claimed[slot.domain] += 1
            self.turn = max(self.turn, slot.turn)
            slot.turn += 1 / _weight(slot.rank)
            return slot
        return None

    def release(self, slot: Slot, time: float) -> None:
        """Let a claimed host wait until `slot.due`. The caller has written the row."""
        self._claimed -= Counter([slot.domain])  # drops what is zero
        for blocked in self._blocked.pop(slot.domain, ()):
            self._make_ready(self._window[blocked])
        far = slot.due - time > FAR_SECONDS
        if slot.pending and not far and slot.turn <= self._next_turn:
            heapq.heappush(self._waiting, (slot.due, slot.id))
            return
        del self._window[slot.id]
        if slot.pending and far:
            self._far_due = min(self._far_due, slot.due)

    def seconds_until_due(self, time: float) -> float | None:
        """Until `take` may have something; None: not before a claimed host is released or a URL is added."""
        self._wake(time)
        heaps: tuple[list[Any], ...] = (self._ready, self._waiting)
        for heap in heaps:
            while heap and self._window[heap[0][-1]].pending == 0:
                del self._window[heapq.heappop(heap)[-1]]
        if self._ready:
            return 0.0
        due = self._waiting[0][0] if self._waiting else math.inf
        if len(self._window) < WINDOW:
            due = min(due, self._far_due)
        return None if due == math.inf else max(0.0, due - time)

    def gain(self, host: int, count: int, *, was_idle: bool) -> None:
        """`count` URLs more are pending (fewer, if negative); the row is written already."""
        slot = self._window.get(host)
        if slot is not None:
            slot.pending += count
        elif was_idle and count > 0:
            if self._next_turn < math.inf or len(self._window) >= WINDOW:
                self._next_turn = min(self._next_turn, self.turn)
            else:
                self._enter(self.db.execute(f"SELECT {_SLOT} FROM hosts WHERE id = ?", (host,)).fetchone())

    def rank(self, name: str, hint: float, pages: int, chinese_bytes: int, text_bytes: int) -> float:
        """0..1: the first link's promise until there are pages to judge by."""
        return host_evidence(chinese_bytes, text_bytes, pages, name) if pages else hint

    def first_turn(self, hint: float) -> float:
        """Where a new host joins."""
        return self.turn + 1 / _weight(hint)

    def _wake(self, time: float) -> None:
        room = WINDOW - len(self._window)
        if (self._next_turn < math.inf and room >= WINDOW // 2) or (room and self._far_due <= time + FAR_SECONDS):
            self._refill(time)
        while self._waiting and self._waiting[0][0] <= time + TICK_SECONDS:
            self._make_ready(self._window[heapq.heappop(self._waiting)[-1]])

    def _make_ready(self, slot: Slot) -> None:
        slot.turn = max(slot.turn, self.turn)
        heapq.heappush(self._ready, (slot.turn, -slot.rank, slot.id))

    def _refill(self, time: float) -> None:
        near = time + FAR_SECONDS
        rows = self.db.execute(
            f"SELECT {_SLOT} FROM hosts WHERE pending > 0 AND due <= ? ORDER BY turn, id LIMIT ?",
            (near, WINDOW + 1),  # a full window may stand before the first that is outside
        ).fetchall()
        new = [row for row in rows if row[0] not in self._window]
        room = WINDOW - len(self._window)
        for row in new[:room]:
            self._enter(row)
        if len(new) > room:
            self._next_turn = new[room][4]
        else:
            self._next_turn = math.inf if len(rows) <= WINDOW else rows[-1][4]
        (due,) = self.db.execute("SELECT min(due) FROM hosts WHERE pending > 0 AND due > ?", (near,)).fetchone()
        self._far_due = math.inf if due is None else due

    def _enter(self, row: tuple[int, str, str, int, float, float, float, float, int, int, int]) -> None:
        host, name, domain, pending, turn, due, delay, hint, pages, chinese_bytes, text_bytes = row
        if delay:  # a request that a kill made us forget may have come just before: keep the distance to it as well
            due = max(due, self._opened + min(delay, self._max_floor))
        rank = self.rank(name, hint, pages, chinese_bytes, text_bytes)
        self._window[host] = Slot(host, name, domain, pending, turn, due, rank)
        heapq.heappush(self._waiting, (due, host))


_SLOT = "id, name, domain, pending, turn, due, delay, hint, pages, chinese_bytes, text_bytes"


def _weight(rank: float) -> float:
    return 1 + (MAX_WEIGHT - 1) * min(1.0, max(0.0, rank))

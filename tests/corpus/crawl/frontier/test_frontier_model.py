"""Any sequence of calls and kills, against a frontier of dictionaries."""

from __future__ import annotations

import copy
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from corpus.crawl.fates import KEPT, Claim, Link, Outcome
from corpus.crawl.frontier import hosts
from corpus.crawl.frontier.budget import QUEUED_PER_PAGE
from corpus.crawl.frontier.frontier import Frontier
from tests.corpus.crawl.frontier.frontiers import Clock, fetched, link, opened

BUDGET = {"max_depth": 3, "max_pages_per_host": 3, "max_urls_per_pattern": 5, "max_repeats": 2, "max_pages": 20}
HOSTS = ("a.cn", "b.cn", "c.com")
LINKS = st.builds(
    lambda host, section, number, depth, priority, refused: link(
        f"http://{host}/{section}/{number}", depth=depth, priority=priority, refused=refused
    ),
    st.sampled_from(HOSTS),
    st.sampled_from("xy"),
    st.integers(0, 9),
    st.integers(0, 4),
    st.sampled_from((0.1, 0.5, 0.9)),
    st.sampled_from((None, None, None, None, "scope")),
)
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # thousands of commits, each with its fsync
DELAYS = st.sampled_from((0.0, 1.0, 5.0, 100.0))


@dataclass
class Row:
    """A known URL."""

    link: Link
    order: int
    fate: str = "pending"
    attempts: int = 0


@dataclass
class Site:
    """A host that is crawled."""

    due: float = 0.0
    delay: float = 0.0
    pages: int = 0
    closed: str | None = None
    patterns: dict[bytes, int] = field(default_factory=dict)
    repeats: dict[bytes, int] = field(default_factory=dict)
    shut: set[bytes] = field(default_factory=set)
    said: set[tuple[bytes, bytes]] = field(default_factory=set)


@dataclass
class Model:
    """All that is durable after a checkpoint. Times are crawl time."""

    time: float = 0.0
    rows: dict[bytes, Row] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    kept: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def pending(self, host: str) -> list[Row]:
        return [row for row in self.rows.values() if row.link.host == host and row.fate == "pending"]

    def add(self, found: Link) -> None:
        if found.key not in self.rows:
            self.rows[found.key] = Row(found, len(self.rows), self._fate(found))

    def _fate(self, found: Link) -> str:
        if found.refused:
            return f"drop:{found.refused}"
        if found.depth > BUDGET["max_depth"]:
            return "drop:max_depth"
        site = self.sites.setdefault(found.host, Site())
        if site.closed:
            return site.closed
        if len(self.pending(found.host)) >= QUEUED_PER_PAGE * (BUDGET["max_pages_per_host"] - site.pages):
            return "drop:max_pages_per_host"
        if found.pattern in site.shut:
            return "drop:trap_repeats"
        if site.patterns.get(found.pattern, 0) >= BUDGET["max_urls_per_pattern"]:
            return "drop:trap_pattern"
        site.patterns[found.pattern] = site.patterns.get(found.pattern, 0) + 1
        return "pending"

    def drop(self, host: str, fate: str, spared: bytes, pattern: bytes | None = None) -> None:
        for row in self.pending(host):
            if row.link.key != spared and pattern in (None, row.link.pattern):
                row.fate = fate

    def close(self, host: str, fate: str, spared: bytes = b"") -> None:
        self.sites[host].closed = self.sites[host].closed or fate
        self.drop(host, fate, spared)

    def finish(self, claim: Claim, outcome: Outcome) -> None:
        row, site = self.rows[claim.key], self.sites[claim.host]
        row.fate, row.attempts = outcome.fate, row.attempts + 1
        self.kept += outcome.fate in KEPT
        site.pages += outcome.status is not None
        if site.pages >= BUDGET["max_pages_per_host"]:
            self.close(claim.host, "drop:max_pages_per_host")
        if outcome.content is not None:
            pattern, said = row.link.pattern, (row.link.pattern, outcome.content)
            site.repeats[pattern] = site.repeats.get(pattern, 0) + 1 if said in site.said else 0
            site.said.add(said)
            if site.repeats[pattern] >= BUDGET["max_repeats"]:
                site.shut.add(pattern)
                self.drop(claim.host, "drop:trap_repeats", b"", pattern)
        for found in outcome.links:
            self.add(found)


class Calls(RuleBasedStateMachine):
    """What the frontier says must be what the model says, also after it was killed and opened again."""

    window = hosts.WINDOW

    @initialize()
    def begin(self) -> None:
        self.patches = mock.patch.object(hosts, "WINDOW", self.window)
        self.patches.start()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.clock = Clock()
        self.model = Model()
        self.saved = Model()
        self.open()

    def open(self) -> None:
        self.frontier: Frontier = opened(Path(self.folder.name), self.clock, **BUDGET)
        self.claims: dict[str, Claim] = {}
        self.shift = self.model.time - self.clock.now
        for site in self.model.sites.values():
            if site.delay:
                site.due = max(site.due, self.model.time + min(site.delay, 60.0))
                site.delay = 0.0  # the frontier may do this again later, to no effect

    @property
    def time(self) -> float:
        return self.clock.now + self.shift

    @rule(links=st.lists(LINKS, max_size=12))
    def add(self, links: list[Link]) -> None:
        known, again, _ = self.frontier.offered()
        for found in links:
            self.model.add(found)
        self.frontier.add(links)
        assert self.frontier.offered() == (len(self.model.rows), again + known + len(links) - len(self.model.rows), {})

    @rule()
    def next(self) -> None:
        claim = self.frontier.next(self.clock.now)
        wanted = self.model.kept + len(self.claims) < BUDGET["max_pages"]
        due = [
            host
            for host, site in self.model.sites.items()
            if wanted and host not in self.claims and site.due <= self.time + 1e-6 and self.model.pending(host)
        ]
        if claim is None:
            assert not due or self.window < len(HOSTS)
            return
        assert claim.host in due
        best = min(self.model.pending(claim.host), key=lambda row: (-row.link.priority, row.link.depth, row.order))
        assert (claim.url, claim.depth, claim.attempts) == (best.link.url, best.link.depth, best.attempts)
        self.claims[claim.host] = claim

    def ends(self, claim: Claim, delay: float) -> None:
        del self.claims[claim.host]
        site = self.model.sites[claim.host]
        site.due, site.delay = self.time + delay, delay

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        delay=DELAYS,
        status=st.sampled_from((200, 200, 200, 404, None)),
        content=st.sampled_from((None, b"1" * 16, b"2" * 16)),
        links=st.lists(LINKS, max_size=5),
    )
    def finish(
        self, data: st.DataObject, delay: float, status: int | None, content: bytes | None, links: list[Link]
    ) -> None:
        claim = data.draw(st.sampled_from(list(self.claims.values())))
        if status == 200:
            outcome = fetched(claim, content=content, links=tuple(links))
        else:
            outcome = Outcome("error:http_404" if status else "error:timeout", status)
        self.model.finish(claim, outcome)
        self.frontier.finish(claim, outcome, self.clock.now + delay)
        self.ends(claim, delay)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), delay=DELAYS, attempt=st.booleans())
    def give_back(self, data: st.DataObject, delay: float, attempt: bool) -> None:
        claim = data.draw(st.sampled_from(list(self.claims.values())))
        row = self.model.rows[claim.key]
        row.attempts += attempt
        row.fate = self.model.sites[claim.host].closed or "pending"
        self.frontier.give_back(claim, self.clock.now + delay, attempt)
        self.ends(claim, delay)

    @rule(host=st.sampled_from(HOSTS), rarely=st.integers(0, 4))
    def give_up(self, host: str, rarely: int) -> None:
        if host in self.model.sites and not rarely:
            claim = self.claims.get(host)
            self.model.close(host, "error:host_down", b"" if claim is None else claim.key)
            self.frontier.give_up_host(host, "error:host_down")

    @rule(seconds=st.sampled_from((0.5, 3.0, 200.0)))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(number=st.integers(0, 99))
    def checkpoint(self, number: int) -> None:
        self.model.files, self.model.time = {"bytes": number}, self.time
        self.frontier.checkpoint({"bytes": number})
        self.saved = copy.deepcopy(self.model)

    @rule(zero=st.sampled_from((0.0, 5_000.0)))
    def kill(self, zero: float) -> None:
        self.frontier.close()
        self.model = copy.deepcopy(self.saved)
        self.clock.now = zero
        self.open()
        assert self.frontier.saved() == self.model.files

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "frontier"):
            return
        counted = {"pending": 0}
        for row in self.model.rows.values():
            counted[row.fate] = counted.get(row.fate, 0) + 1
        assert self.frontier.counts() == counted
        self.frontier.check_books()
        ledger = [(known["url"], known["fate"], known["attempts"]) for known in self.frontier.iter_urls()]
        assert ledger == [(row.link.url, row.fate, row.attempts) for row in self.model.rows.values()]

    def teardown(self) -> None:
        if hasattr(self, "frontier"):
            self.frontier.close()
            self.folder.cleanup()
            self.patches.stop()


class SmallWindow(Calls):
    """With more hosts than are held in memory."""

    window = 2


CALLS = settings(stateful_step_count=40)
TestCalls = pytest.mark.filterwarnings("ignore::ResourceWarning")(Calls.TestCase)
TestCalls.settings = CALLS
TestSmallWindow = SmallWindow.TestCase
TestSmallWindow.settings = CALLS

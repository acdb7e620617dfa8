"""The crawl as one request after another: which to make next, and what to record of its answer.

Knows nothing of Scrapy: `next` says what to ask, `record` takes what came. Between the two a URL is claimed from the
frontier; a claim that a kill left open is pending again when the frontier is opened. A host's first request is its
robots.txt: the URL that was its turn goes back to the others until that is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from corpus.crawl.answers import MAX_REDIRECTS, PAGE_TYPES, REDIRECTS, Judge, detail_of, location
from corpus.crawl.archive.archive import Archive
from corpus.crawl.archive.records import payload_digest
from corpus.crawl.config import CrawlConfig
from corpus.crawl.fates import FETCHED, KEPT, NOT_MODIFIED, REVISIT, Claim, Outcome, Place, Tally
from corpus.crawl.frontier.frontier import Frontier
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.politeness.delays import HostClock, HostState
from corpus.crawl.politeness.robots import MAX_REDIRECTS as MAX_ROBOTS_REDIRECTS
from corpus.crawl.politeness.robots import Robots, RobotsCache
from corpus.crawl.urls.url import BadUrl, host_of, key_of, normalize
from corpus.engine.errors import WenhaiError

MAX_REFUSALS = 100  # URLs that robots.txt keeps from us in a row, before answers get their turn
MAX_SILENT = 100_000  # origins that are remembered to give no robots.txt; others are tried again
MAX_HOP_REST_SECONDS = 1.0  # after which one looks again whether that request has ended
MAX_VISITED = 10_000  # hosts that another's robots.txt led to, before those that have rested are forgotten
MAX_ROBOTS_BYTES = 10 << 20  # over the wire and decoded; what is read of it is less (robots.MAX_BYTES)
ROBOTS_UNREACHABLE = "error:robots_unreachable"
HOST_DOWN = "error:host_down"
OF_THE_HOST = frozenset({"bad_url", "address", "port", "dns", "connect", "tls", "timeout"})  # not of its robots.txt

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Visit:
    """One request to make for a claim."""

    claim: Claim
    url: str
    host: str  # whose one connection it takes
    max_bytes: int
    headers: Mapping[str, str]
    accept: tuple[str, ...] | None = None  # content types whose body is wanted; None: all
    robots: str | None = None  # the origin whose robots.txt it is
    rules: Robots | None = None  # that a page's request is made under
    hops: int = 0  # redirects from the claim's own URL, or from /robots.txt, to here
    wait_seconds: float = 0.0  # before it is made


@dataclass(slots=True)
class Unreachable:
    """An origin that gives no robots.txt."""

    tries: int
    outcome: Outcome | None = None  # of all its URLs, when it is not tried again


class Visits:
    """Everything between the frontier and the archive, for one run.

    `clock` is monotonic seconds, the frontier's too. What cannot be recorded is raised (`DiskError`): then nothing more
    can be done in this run.
    """

    def __init__(
        self,
        config: CrawlConfig,
        frontier: Frontier,
        judge: Judge,
        pages: Archive,
        robots: Archive,
        *,
        tally: Tally | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.tally = tally or Tally()
        self.before = replace(self.tally)
        self._config, self._frontier, self._judge = config, frontier, judge
        self._pages, self._robots, self._clock = pages, robots, clock
        self._politeness = HostClock(config.politeness)
        self._cache = RobotsCache()
        self._visited: dict[str, float] = {}  # hosts that another's robots.txt led to, and until when they rest
        self._unreachable: dict[str, Unreachable] = {}  # by origin
        self._headers = request_headers(config)

    @property
    def under_way(self) -> int:
        """Requests whose answers are awaited."""
        return self._frontier.claimed

    def seconds_until_next(self) -> float | None:
        """Until `next` may have something to ask; None: not before an answer is in, if ever."""
        return self._frontier.seconds_until_due(self._clock())

    def next(self) -> Visit | None:
        """The next request to make, None when no host is due."""
        for _ in range(MAX_REFUSALS):
            claim = self._frontier.next(self._clock())
            if claim is None:
                return None
            visit = self._begin(claim)
            if visit is not None:
                return visit
        return None

    def _begin(self, claim: Claim) -> Visit | None:
        rest = self._visited.get(claim.host, 0.0) - self._clock()
        if rest > 0:
            self._give_back(claim, min(rest, MAX_HOP_REST_SECONDS), self._state(claim.host))
            return None
        self._visited.pop(claim.host, None)
        origin = origin_of(claim.url)
        silence = self._unreachable.get(origin)
        if silence is not None and silence.outcome is not None:
            self._frontier.finish(claim, silence.outcome, self._clock())
            return None
        robots = self._cache.get(origin, self._clock())
        if robots is None:
            url = f"{origin}/robots.txt"
            return Visit(claim, url, claim.host, MAX_ROBOTS_BYTES, self._headers, robots=origin)
        return self._page_visit(claim, claim.url, robots)

    def _page_visit(self, claim: Claim, url: str, robots: Robots, hops: int = 0, wait: float = 0.0) -> Visit | None:
        """The request for a page, or None and its fate where robots.txt speaks against it."""
        refusal = None if robots.allowed(url) else "drop:robots"
        if refusal is None and robots.opted_out(url):
            refusal = "drop:opt_out"
        if refusal is not None:
            self._frontier.finish(claim, Outcome(refusal), self._clock() + wait)
            return None
        headers = self._headers | conditions(claim)
        return Visit(
            claim,
            url,
            claim.host,
            self._config.budget.max_page_bytes,
            headers,
            PAGE_TYPES,
            rules=robots,
            hops=hops,
            wait_seconds=wait,
        )

    # --------------------------------------------------------------------------------------------------------- answers

    def record(self, visit: Visit, answer: Fetched | FetchError) -> Visit | None:
        """Record what came of a visit; returns the next request for the same claim where a redirect asks for one."""
        if visit.host != visit.claim.host:
            self._rest(visit.host, 0.0)
        if isinstance(answer, Fetched):
            self.tally.fetched_bytes += answer.wire_bytes
        state = self._state(visit.claim.host)
        wait = self._politeness.after(state, answer, datetime.now(UTC))
        if visit.robots is not None:
            return self._robots_answered(visit, visit.robots, answer, state, wait)
        return self._page_answered(visit, answer, state, wait)

    def _robots_answered(
        self, visit: Visit, origin: str, answer: Fetched | FetchError, state: HostState, wait: float
    ) -> Visit | None:
        claim = visit.claim
        if isinstance(answer, FetchError):
            robots = Robots.parse(None, b"", self._config.agent)
            of_host = answer.kind in OF_THE_HOST and visit.hops == 0
            fate = f"error:{answer.kind}" if of_host else ROBOTS_UNREACHABLE
            detail = f"robots.txt: {detail_of(answer)}"
        else:
            self.tally.robots += 1
            self._robots.write_page(visit.url, answer)
            if answer.status in REDIRECTS and visit.hops < MAX_ROBOTS_REDIRECTS:
                following = self._robots_hop(visit, answer, wait)
                if following is not None:
                    return following
            robots = Robots.parse(answer.status, answer.body, self._config.agent)
            fate, detail = ROBOTS_UNREACHABLE, f"robots.txt: status {answer.status}"
        if robots.reachable:
            state.crawl_delay = robots.crawl_delay
            self._cache.put(origin, robots, self._clock())
            self._unreachable.pop(origin, None)
            self._give_back(claim, max(wait, self._politeness.delay(state)), state)
            return None
        silence = self._unreachable.pop(origin, Unreachable(0))
        if len(self._unreachable) >= MAX_SILENT:
            self._unreachable.pop(next(iter(self._unreachable)))
        self._unreachable[origin] = silence
        silence.tries += 1
        if state.given_up or not self._politeness.again(answer, silence.tries):
            silence.outcome = Outcome(fate, detail=detail)
            self._finish(claim, silence.outcome, wait, state)
        else:
            self._give_back(claim, wait, state)
        if state.given_up:
            self._frontier.give_up_host(claim.host, fate, state.given_up)
        return None

    def _robots_hop(self, visit: Visit, answer: Fetched, wait: float) -> Visit | None:
        """The request that a redirect of robots.txt leads to, in the pace of the host it leads to; None where it leads
        nowhere. `wait` is what the claim's host is owed."""
        try:
            url = normalize(location(answer) or "", visit.url)
        except BadUrl:
            return None
        host = host_of(url)
        if host != visit.claim.host:
            now, due = self._clock(), self._frontier.due(host)
            if due is None:  # its own request is under way: it rests after that
                due = now + self._politeness.delay(self._state(host))
            wait = max(0.0, due - now, self._visited.get(host, 0.0) - now)
            self._rest(host, wait + self._config.network.total_seconds)
        return replace(visit, url=url, host=host, hops=visit.hops + 1, wait_seconds=wait)

    def _rest(self, host: str, seconds: float) -> None:
        """Let a host that another's robots.txt has led to rest, and as long as after a request of its own."""
        now = self._clock()
        if len(self._visited) >= MAX_VISITED:
            self._visited = {name: until for name, until in self._visited.items() if until > now}
        self._visited[host] = now + seconds + self._politeness.delay(self._state(host))

    def _page_answered(self, visit: Visit, answer: Fetched | FetchError, state: HostState, wait: float) -> Visit | None:
        claim = visit.claim
        if self._politeness.again(answer, claim.attempts + 1) and not state.given_up:
            self._frontier.give_back(claim, self._clock() + wait, True, state=plain(state))
            return None
        if isinstance(answer, FetchError):
            self._finish(claim, Outcome(f"error:{answer.kind}", detail=detail_of(answer)), wait, state)
        else:
            self.tally.pages += 1
            url = self._same_page(visit, answer)
            if url is not None and visit.rules is not None:
                return self._page_visit(claim, url, visit.rules, visit.hops + 1, wait)
            outcome, place = self._kept(visit, answer, self._outcome(visit, answer))
            if outcome.fate in KEPT:
                self.tally.chinese_bytes += outcome.chinese_bytes
                self.tally.text_bytes += outcome.text_bytes
            self._finish(claim, outcome, wait, state, place)
        if state.given_up:
            self._frontier.give_up_host(claim.host, HOST_DOWN, state.given_up)
        return None

    def _same_page(self, visit: Visit, answer: Fetched) -> str | None:
        """Where a redirect leads to another spelling of the same URL (a session id, say). It is followed at once: the
        books know both as one, and so does one robots.txt."""
        if answer.status not in REDIRECTS or visit.hops >= MAX_REDIRECTS:
            return None
        try:
            url = normalize(location(answer) or "", visit.url)
        except BadUrl:
            return None
        return url if url != visit.url and key_of(url) == visit.claim.key else None

    def _outcome(self, visit: Visit, answer: Fetched) -> Outcome:
        """What the answer means. A mistake of ours costs one page: it is counted, and the crawl goes on."""
        try:
            return self._judge.outcome(visit.claim, visit.url, answer)
        except WenhaiError:
            raise
        except Exception as error:
            self.unexpected(error)
            return Outcome("error:internal", answer.status, answer.wire_bytes, detail=type(error).__name__)

    def unexpected(self, error: BaseException) -> None:
        """Count an exception that nobody foresaw, by its type alone: its text may hold a page's."""
        name = type(error).__name__
        self.tally.failures[name] = self.tally.failures.get(name, 0) + 1

    def _kept(self, visit: Visit, answer: Fetched, outcome: Outcome) -> tuple[Outcome, Place | None]:
        """Write the record of a page that is kept: whole, or as a revisit of an earlier one."""
        claim = visit.claim
        if outcome.fate == NOT_MODIFIED and claim.refers_to is not None:
            _, place = self._pages.write_revisit(visit.url, answer, claim.refers_to, claim.digest, not_modified=True)
            return replace(outcome, record=claim.refers_to), place
        if outcome.fate != FETCHED:
            return outcome, None
        digest = payload_digest(answer.body)
        earlier = self._frontier.seen_digest(digest)
        if earlier is not None:
            _, place = self._pages.write_revisit(visit.url, answer, earlier, digest)
            return replace(outcome, fate=REVISIT, digest=digest, record=earlier), place
        record, place = self._pages.write_page(visit.url, answer, digest)
        return replace(outcome, digest=digest, record=record), place

    # -------------------------------------------------------------------------------------------------------- frontier

    def _state(self, host: str) -> HostState:
        saved = self._frontier.host_state(host)
        return HostState(**saved) if saved else HostState()

    def _finish(
        self, claim: Claim, outcome: Outcome, wait: float, state: HostState, place: Place | None = None
    ) -> None:
        self._frontier.finish(claim, outcome, self._clock() + wait, place=place, state=plain(state))

    def _give_back(self, claim: Claim, wait: float, state: HostState) -> None:
        self._frontier.give_back(claim, self._clock() + wait, False, state=plain(state))


def plain(state: HostState) -> dict[str, float | int | str | None]:
    """The state as JSON; `asdict` takes a tenth of a millisecond, once a page."""
    return {name: getattr(state, name) for name in HostState.__slots__}


def origin_of(url: str) -> str:
    """Scheme and host of a normalized URL: what one robots.txt speaks for."""
    return url[: url.index("/", url.index("://") + 3)]


def user_agent(config: CrawlConfig) -> str:
    """Who asks, and whom to write to."""
    return f"{config.agent}/1.0 (+{config.contact})"


def request_headers(config: CrawlConfig) -> dict[str, str]:
    """The headers of every request."""
    return {
        "User-Agent": user_agent(config),
        "Accept": "text/html,application/xhtml+xml,text/plain;q=0.8,*/*;q=0.1",
        "Accept-Language": "zh-CN,zh;q=0.9,zh-TW;q=0.8,en;q=0.3",
    }


def conditions(claim: Claim) -> dict[str, str]:
    """Headers that ask for a page only if it has changed since its record."""
    if claim.refers_to is None:
        return {}
    asked = {"If-None-Match": claim.etag, "If-Modified-Since": claim.last_modified}
    return {name: value for name, value in asked.items() if value}

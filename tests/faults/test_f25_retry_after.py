"""FAULTS row 25: a host that says 429 or 503, or says nothing, is left alone for longer and longer, then given up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from corpus.crawl.config import PolitenessConfig
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.politeness.delays import HostClock, HostState
from tests.corpus.crawl.small_site import fetched

CONFIG = PolitenessConfig()
DATE = b"Sun, 22 Nov 2026 12:00:00 GMT"


class Host:
    """A host with more URLs than anyone fetches, crawled by our politeness on a clock that nobody waits for."""

    def __init__(self, answers: Iterator[Fetched | FetchError], config: PolitenessConfig = CONFIG) -> None:
        self.state, self.clock, self.answers = HostState(), HostClock(config), answers
        self.times: list[float] = []  # of requests
        self.attempts: list[int] = []  # of each URL

    def crawl(self, max_requests: int = 10_000) -> Host:
        now, attempts = 0.0, 0
        while self.state.given_up is None and len(self.times) < max_requests:
            answer = next(self.answers)
            self.times.append(now)
            attempts += 1
            now += self.clock.after(self.state, answer)
            if not self.clock.again(answer, attempts):
                self.attempts.append(attempts)
                attempts = 0
        return self

    @property
    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


def status(number: int, retry_after: bytes = b"", seconds: float = 0.1) -> Fetched:
    return fetched(number, b"", (b"Retry-After", retry_after), (b"Date", DATE), seconds=seconds)


DOWN = FetchError("connect", "refused")
FINE = status(200)


@pytest.mark.parametrize("answer", [DOWN, status(429), status(503), status(500), status(503, b"nonsense")])
def test_a_host_that_stays_down_is_given_up(answer: Fetched | FetchError) -> None:
    host = Host(repeat(answer)).crawl()
    assert len(host.times) == CONFIG.max_host_failures and host.state.given_up == "10 failures in a row"
    assert host.pauses == sorted(host.pauses) and host.pauses[0] == 2.0 and host.pauses[-1] == CONFIG.max_delay_seconds
    assert set(host.attempts) == {CONFIG.max_attempts}


@pytest.mark.parametrize("value", [b"120", b"Sun, 22 Nov 2026 12:02:00 GMT"])
@pytest.mark.parametrize("number", [429, 503])
def test_retry_after_is_kept(number: int, value: bytes) -> None:
    host = Host(chain([FINE, status(number, value)], repeat(FINE))).crawl(max_requests=5)
    assert host.pauses == [1.0, 120.0, 1.0, 1.0] and host.state.given_up is None


def test_a_host_that_always_asks_for_time_is_given_up_too() -> None:
    host = Host(repeat(status(429, b"5"))).crawl()
    assert len(host.times) == CONFIG.max_host_failures and set(host.pauses) == {5.0}


@pytest.mark.parametrize("value", [b"3601", b"99999999999", b"9" * 4_000, b"Mon, 23 Nov 2026 12:00:00 GMT"])
def test_a_host_that_asks_for_more_than_a_run_has_is_given_up_at_once(value: bytes) -> None:
    host = Host(repeat(status(503, value))).crawl()
    assert len(host.times) == 1 and "Retry-After is longer" in str(host.state.given_up)


@pytest.mark.parametrize("value", [b"-1", b"0", b"Sun, 22 Nov 2026 11:00:00 GMT", b"\xff\xfe", b"1" + b"e" * 4_000])
def test_a_retry_after_that_is_of_no_use_costs_no_manners(value: bytes) -> None:
    assert Host(repeat(status(429, value))).crawl().pauses == Host(repeat(status(429))).crawl().pauses


def test_a_host_that_recovers_in_time_is_crawled_on() -> None:
    ups_and_downs = chain.from_iterable(repeat([*repeat(DOWN, 9), FINE]))
    host = Host(ups_and_downs).crawl(max_requests=500)
    assert host.state.given_up is None and max(host.attempts) == CONFIG.max_attempts


def test_a_page_that_is_missing_is_not_tried_again() -> None:
    host = Host(repeat(status(404))).crawl(max_requests=50)
    assert set(host.attempts) == {1} and set(host.pauses) == {1.0}


def test_a_host_that_slows_down_is_asked_less() -> None:
    slowing: Callable[[int], Fetched] = lambda index: status(200, seconds=float(index))  # noqa: E731
    host = Host(map(slowing, range(40))).crawl(max_requests=40)
    assert host.pauses == sorted(host.pauses) and host.pauses[-1] == CONFIG.max_delay_seconds

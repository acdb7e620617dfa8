from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.config import PolitenessConfig
from corpus.crawl.fates import ERRORS
from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.crawl.politeness.delays import HostClock, HostState, is_failure, retry_after
from tests.corpus.crawl.small_site import fetched

CONFIG = PolitenessConfig()  # 1 s at least, 60 s at most, Crawl-delay up to 30 s, twice the latency
NOON = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
DOWN = FetchError("connect", "refused")


def clock(**changes: float) -> HostClock:
    return HostClock(CONFIG.model_copy(update=changes))


def http_date(seconds: float) -> bytes:
    return format_datetime(NOON + timedelta(seconds=seconds), usegmt=True).encode()


def answer(status: int, seconds: float = 0.1, after: bytes | None = None, date: bytes | None = None) -> Fetched:
    named = ((b"RETRY-AFTER", after), (b"date", date), (b"Retry-After", b"9"))  # of one given twice the first counts
    return fetched(
        status, b"", *((name, value) for name, value in named if after is not None and value), seconds=seconds
    )


@pytest.mark.parametrize(
    ("host", "seconds"),
    [
        (HostState(), 1.0),
        (HostState(crawl_delay=0.0), 1.0),
        (HostState(crawl_delay=5.0), 5.0),
        (HostState(crawl_delay=86_400.0), 30.0),
        (HostState(latency=0.3), 1.0),
        (HostState(latency=4.0), 8.0),
        (HostState(latency=4.0, crawl_delay=10.0), 10.0),
        (HostState(latency=500.0), 60.0),
    ],
)
def test_the_longest_of_three_delays(host: HostState, seconds: float) -> None:
    assert clock().delay(host) == seconds


def test_the_configured_delay_may_exceed_what_a_host_may_cause() -> None:
    assert clock(min_delay_seconds=100.0).after(HostState(latency=500.0), answer(200)) == 100.0
    assert clock(min_delay_seconds=100.0).after(HostState(), DOWN) == 100.0
    assert clock(min_delay_seconds=0.0).after(HostState(), answer(200, 0.0)) == 0.0


def test_latency_is_averaged() -> None:
    host, politeness = HostState(), clock()
    delays = [politeness.after(host, answer(200, seconds)) for seconds in (4.0, 8.0, 1.0)]
    assert delays == [8.0, 12.0, 7.0] and host.latency == 3.5


def test_an_error_page_is_no_sign_of_recovery() -> None:
    host, politeness = HostState(), clock()
    politeness.after(host, answer(200, 8.0))
    politeness.after(host, answer(503, 0.001))
    assert host.latency == 8.0
    politeness.after(host, answer(503, 16.0))
    assert host.latency == 12.0


def test_failures_without_a_delay_or_an_end() -> None:
    host, politeness = HostState(), clock(min_delay_seconds=0.0, max_host_failures=10_000)
    waits = [politeness.after(host, DOWN) for _ in range(2_000)]
    assert waits[:3] == [2.0, 4.0, 8.0] and waits[-1] == 60.0


@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_a_page_are_not_the_hosts(error: str) -> None:
    host = HostState(failures=1)
    clock().after(host, FetchError(error, ""))
    of_hosts = {"dns", "connect", "tls", "timeout", "slow", "truncated", "http", "headers", "address", "port"}
    assert host.failures == (2 if error in of_hosts else 0)


@pytest.mark.parametrize(
    ("status", "fails", "again"),
    [
        *((status, False, False) for status in (200, 301, 304, 403, 404, 410)),
        *((status, False, True) for status in (408, 425)),
        *((status, True, True) for status in (429, 500, 502, 503, 504, 520, 522, 530)),
        *((status, True, False) for status in (501, 505, 511)),
    ],
)
def test_statuses(status: int, fails: bool, again: bool) -> None:
    assert is_failure(answer(status)) is fails
    assert [clock().again(answer(status), attempts) for attempts in (1, 2, 3, 4)] == [again, again, False, False]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"120", 120.0),
        (b" 120 ", 120.0),
        (b"0", 0.0),
        (b"1.5", 1.5),
        (b"9" * 5_000, float("inf")),
        (http_date(90), 90.0),
        (http_date(-90), 0.0),
        (b"Sunday, 22-Nov-26 12:01:00 GMT", 60.0),
        (b"Sun Nov 22 12:01:00 2026", 60.0),
        (b"Sun, 22 Nov 2026 20:01:00 +0800", 60.0),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", 251_606_951_999.0),
    ]
    + [(bad, None) for bad in (b"", b"-5", b"+5", b"soon", b"1e3", b"inf", b"nan", b"5s", "五".encode(), b"\xff")]
    + [(bad, None) for bad in (b"Sun, 99 Nov 2026 12:01:00 GMT", b"Sun, 22 Nov 99999999999999 12:01:00 GMT")]
    + [(b"Sun, 22 Nov 2026 12:01:00 GMT" + b" " * 90 + b"x", None), (b"," * 60, None), (b"22 Nov", None)],
)
def test_retry_after(value: bytes, seconds: float | None) -> None:
    assert retry_after(value, http_date(0)) == retry_after(value, None, NOON) == seconds


def test_a_date_is_counted_from_the_answers_own() -> None:
    wrong = NOON + timedelta(days=400)
    assert retry_after(http_date(90), http_date(30), wrong) == 60.0
    assert retry_after(http_date(90), b"nonsense", NOON) == 90.0
    assert retry_after(http_date(90)) is None and retry_after(b"90") == 90.0


def test_a_host_that_asks_for_time_gets_it() -> None:
    host, politeness = HostState(), clock()
    assert politeness.after(host, answer(503, 0.1, http_date(90)), NOON) == 90.0
    assert politeness.after(host, answer(503, 0.1, b"3600")) == 3600.0 and host.given_up is None
    assert politeness.after(HostState(crawl_delay=20.0), answer(429, 0.1, b"3")) == 20.0
    assert politeness.after(HostState(), answer(200, 0.1, b"600")) == 1.0  # of a page that came it is not read


ANSWERS = st.one_of(
    st.builds(
        answer,
        st.sampled_from([200, 404, 429, 500, 503]),
        st.sampled_from([0.0, 0.5, 90.0]),
        st.sampled_from([None, b"5", b"700", b"x"]),
    ),
    st.builds(FetchError, st.sampled_from(["dns", "bomb"]), st.just("")),
)


@given(st.lists(ANSWERS, max_size=12), st.sampled_from([None, 0.0, 7.0, 1e300]))
def test_no_delay_is_shorter_than_ours_or_longer_than_was_asked(
    answers: list[Fetched | FetchError], delay: float | None
) -> None:
    host, politeness = HostState(crawl_delay=delay), clock()
    for one in answers:
        wait = politeness.after(host, one)
        wanted = isinstance(one, Fetched) and is_failure(one) and one.header(b"retry-after") == b"700"
        asked = 700.0 if wanted else 0.0
        assert max(1.0, min(delay or 0.0, 30.0)) <= wait <= max(60.0, asked)
        assert wait >= asked

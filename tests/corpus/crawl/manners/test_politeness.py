from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.config import PolitenessConfig
from corpus.crawl.fates import ERRORS
from corpus.crawl.manners.politeness import Answer, HostClock, HostState, retry_after
from corpus.crawl.network.fetched import Fetched, FetchError

CONFIG = PolitenessConfig()  # 1 s at least, 60 s at most, Crawl-delay up to 30 s, twice the latency
NOON = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
FINE = Answer(200, seconds=0.1)
DOWN = Answer(error="connect", retry=True)


def clock(**changes: float) -> HostClock:
    return HostClock(CONFIG.model_copy(update=changes))


def http_date(seconds: float) -> bytes:
    return format_datetime(NOON + timedelta(seconds=seconds), usegmt=True).encode()


def fetched(status: int, *headers: tuple[bytes, bytes]) -> Fetched:
    return Fetched(status, "x", "HTTP/1.1", headers, b"", 0, "192.0.2.1", 0.25, "2026-11-22T12:00:00Z", b"")


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
    assert clock(min_delay_seconds=100.0).after(HostState(latency=500.0), FINE) == 100.0
    assert clock(min_delay_seconds=100.0).after(HostState(), DOWN) == 100.0
    assert clock(min_delay_seconds=0.0).after(HostState(), Answer(200, seconds=0.0)) == 0.0


def test_latency_is_averaged() -> None:
    host, manners = HostState(), clock()
    delays = [manners.after(host, Answer(200, seconds=seconds)) for seconds in (4.0, 8.0, 1.0)]
    assert delays == [8.0, 12.0, 7.0] and host.latency == 3.5


def test_an_error_page_is_no_sign_of_recovery() -> None:
    host, manners = HostState(), clock()
    manners.after(host, Answer(200, seconds=8.0))
    manners.after(host, Answer(503, seconds=0.001))
    assert host.latency == 8.0
    manners.after(host, Answer(503, seconds=16.0))
    assert host.latency == 12.0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), None])
def test_times_that_are_none(seconds: float | None) -> None:
    host = HostState()
    assert clock().after(host, Answer(200, seconds=seconds)) == 1.0 and host.latency is None


def test_failures_in_a_row_double_the_delay_to_a_cap_and_end_the_host() -> None:
    host, manners = HostState(), clock(max_host_failures=9)
    waits = [manners.after(host, DOWN) for _ in range(8)]
    assert waits == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0] and host.given_up is None
    manners.after(host, DOWN)
    assert host.given_up == "9 failures in a row"


def test_failures_without_a_delay_or_an_end() -> None:
    host, manners = HostState(), clock(min_delay_seconds=0.0, max_host_failures=10_000)
    waits = [manners.after(host, DOWN) for _ in range(2_000)]
    assert waits[:3] == [2.0, 4.0, 8.0] and waits[-1] == 60.0


def test_an_answer_ends_the_row() -> None:
    host, manners = HostState(), clock(max_host_failures=3)
    for answer in (DOWN, DOWN, Answer(404, seconds=0.1), DOWN, DOWN):
        manners.after(host, answer)
    assert host.failures == 2 and host.given_up is None
    assert manners.after(host, FINE) == 1.0 and host.failures == 0


@pytest.mark.parametrize("error", ERRORS)
def test_errors_of_a_page_are_not_the_hosts(error: str) -> None:
    host = HostState(failures=1)
    clock().after(host, Answer(error=error))
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
    answer = Answer.of(fetched(status))
    assert answer.failed is fails
    assert [clock(max_attempts=3).again(answer, attempts) for attempts in (1, 2, 3, 4)] == [again, again, False, False]


@pytest.mark.parametrize("retry", [True, False])
def test_an_error_says_itself_whether_it_may_pass(retry: bool) -> None:
    answer = Answer.of(FetchError("dns", "no such name", retry=retry))
    assert answer == Answer(error="dns", retry=retry) and answer.failed
    assert clock().again(answer, 1) is retry and not clock().again(answer, 3)


def test_what_an_answer_takes_from_the_headers() -> None:
    answer = Answer.of(fetched(503, (b"RETRY-AFTER", b"7"), (b"date", b"today"), (b"Retry-After", b"9")))
    assert answer == Answer(503, None, 0.25, b"7", b"today", True)


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
    host, manners = HostState(), clock()
    assert manners.after(host, Answer(429, seconds=0.1, retry_after=b"600")) == 600.0
    assert manners.after(host, Answer(503, seconds=0.1, retry_after=http_date(90), date=http_date(0))) == 90.0
    assert manners.after(host, Answer(503, seconds=0.1, retry_after=http_date(90)), NOON) == 90.0
    assert manners.after(host, Answer(503, retry_after=b"3600")) == 3600.0 and host.given_up is None
    assert manners.after(HostState(crawl_delay=20.0), Answer(429, retry_after=b"3")) == 20.0


@pytest.mark.parametrize("value", [b"0", b"-5", b"soon", http_date(-90)])
def test_a_retry_after_of_no_use_means_backing_off(value: bytes) -> None:
    host, manners = HostState(), clock()
    answer = Answer(503, seconds=0.1, retry_after=value, date=http_date(0))
    assert [manners.after(host, answer) for _ in range(3)] == [2.0, 4.0, 8.0]


@pytest.mark.parametrize("value", [b"3601", b"9" * 5_000, http_date(3_601)])
def test_a_host_that_asks_for_too_long_is_given_up(value: bytes) -> None:
    host = HostState()
    wait = clock().after(host, Answer(429, retry_after=value, date=http_date(0)))
    assert host.given_up == "Retry-After is longer than 3600 s" and wait == 3600.0


def test_a_retry_after_on_a_page_that_came_is_not_read() -> None:
    assert clock().after(HostState(), Answer(200, seconds=0.1, retry_after=b"600")) == 1.0


ANSWERS = st.builds(
    Answer,
    st.sampled_from([None, 200, 404, 429, 500, 503]),
    st.sampled_from([None, "dns", "bomb"]),
    st.sampled_from([None, 0.0, 0.5, 90.0]),
    st.sampled_from([None, b"5", b"700", b"x"]),
)


@given(st.lists(ANSWERS, max_size=12), st.sampled_from([None, 0.0, 7.0, 1e300]))
def test_no_delay_is_shorter_than_ours_or_longer_than_was_asked(answers: list[Answer], delay: float | None) -> None:
    host, manners = HostState(crawl_delay=delay), clock()
    for answer in answers:
        wait = manners.after(host, answer)
        asked = 700.0 if answer.failed and answer.retry_after == b"700" else 0.0
        assert max(1.0, min(delay or 0.0, 30.0)) <= wait <= max(60.0, asked)
        assert wait >= asked

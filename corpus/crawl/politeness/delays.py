"""How long a host is left alone: after every answer, in seconds, without a clock of its own.

After an answer: the longest of the configured delay, the host's Crawl-delay (capped) and a multiple of what the host
takes to answer (averaged, so that a host that slows down is asked less). After a failure (429, 5xx, no connection)
twice that for each failure in a row, up to a cap, or what Retry-After asks for. A host that fails too often in a row,
or asks for longer than a run should wait, is given up for the run.

No jitter: a host has one connection, so there is no herd to break up, and a run can be replayed. A Retry-After that is
a date is measured from the answer's own Date, so that neither clock need be right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from corpus.crawl.config import PolitenessConfig
from corpus.crawl.network.fetched import RETRIED, Fetched, FetchError

LATENCY_WEIGHT = 0.5  # of the newest answer in the average, as in Scrapy's AutoThrottle
MAX_DATE_BYTES = 64  # an HTTP date has 29
MAX_DOUBLINGS = 30

# What may pass by itself. Of statuses: too slow a request, too early, too many; the server's or its gateway's troubles,
# and Cloudflare's and Akamai's numbers for those.
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, *range(520, 531)})
# What says something about the host and not about one page of it.
HOST_ERRORS = RETRIED | {"tls", "headers", "address", "port"}

_SECONDS = re.compile(rb"\d+(?:\.\d*)?")


@dataclass(slots=True)
class HostState:
    """What is remembered of a host; small, and JSON-able by `dataclasses.asdict`."""

    crawl_delay: float | None = None
    """Seconds, as robots.txt says."""
    latency: float | None = None
    """Seconds to the first byte, averaged."""
    failures: int = 0
    """In a row."""
    given_up: str | None = None
    """Why, when it is."""


class HostClock:
    """The politeness of one crawl."""

    def __init__(self, config: PolitenessConfig) -> None:
        self.config = config

    def after(self, host: HostState, answer: Fetched | FetchError, now: datetime | None = None) -> float:
        """Note an answer in `host`, and say in how many seconds from it the host is due again.

        `now` is for a Retry-After with a date in an answer without one; without it such a date is not read.
        """
        config, failed = self.config, is_failure(answer)
        if isinstance(answer, Fetched):
            _note_latency(host, answer.seconds, failed)
        delay = self.delay(host)
        if not failed:
            host.failures = 0
            return delay
        host.failures += 1
        if host.failures >= config.max_host_failures:
            host.given_up = f"{host.failures} failures in a row"
        wait = None
        if isinstance(answer, Fetched):
            wait = retry_after(answer.header(b"retry-after"), answer.header(b"date"), now)
        if not wait:  # nothing that can be read, or no time at all
            doubled = max(delay, 1.0) * 2.0 ** min(host.failures, MAX_DOUBLINGS)
            return max(delay, min(doubled, config.max_delay_seconds))
        if wait > config.max_retry_after_seconds:
            host.given_up = f"Retry-After is longer than {config.max_retry_after_seconds:g} s"
        return max(delay, min(wait, config.max_retry_after_seconds))

    def delay(self, host: HostState) -> float:
        """Seconds between two requests of a host that is well."""
        config = self.config
        asked = min(host.crawl_delay or 0.0, config.max_crawl_delay_seconds)
        caused = max(asked, config.latency_factor * (host.latency or 0.0))
        return max(config.min_delay_seconds, min(caused, config.max_delay_seconds))

    def again(self, answer: Fetched | FetchError, attempts: int) -> bool:
        """Whether a URL is worth another try after `attempts`, this one among them."""
        may_pass = answer.retry if isinstance(answer, FetchError) else answer.status in RETRY_STATUSES
        return may_pass and attempts < self.config.max_attempts


def is_failure(answer: Fetched | FetchError) -> bool:
    """Whether the host, and not only the page, is in trouble."""
    if isinstance(answer, FetchError):
        return answer.kind in HOST_ERRORS
    return answer.status == 429 or answer.status >= 500


def _note_latency(host: HostState, seconds: float, failed: bool) -> None:
    if host.latency is None:
        host.latency = seconds
    elif not failed or seconds > host.latency:  # an error page is made quickly; that is no recovery
        host.latency += LATENCY_WEIGHT * (seconds - host.latency)


def retry_after(value: bytes | None, date: bytes | None = None, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After asks for, or None where it says nothing that can be read.

    A date in the past asks for nothing: 0. It is counted from `date` (the header Date), else from `now`.
    """
    value = (value or b"").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    until = _date(value)
    since = _date((date or b"").strip()) or now
    if until is None or since is None:
        return None
    return max(0.0, (until - since).total_seconds())


def _date(value: bytes) -> datetime | None:
    if not 0 < len(value) <= MAX_DATE_BYTES:
        return None
    try:
        date = parsedate_to_datetime(value.decode("latin-1"))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)

"""What becomes of a URL: each has exactly one fate, and a crawl's books balance over them.

`kept` fates leave a record in the archive. `moved` names another URL that is known too. Everything else is dropped by a
rule of ours or the site's (`drop:RULE`), or ended in an error (`error:KIND`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

FETCHED = "fetched"  # response record
REVISIT = "revisit"  # same payload as an earlier record: revisit record
NOT_MODIFIED = "not_modified"  # 304 to a conditional request: revisit record
MOVED = "moved"  # a redirect; its target is a URL of its own
KEPT = (FETCHED, REVISIT, NOT_MODIFIED)

# drop:RULE. Of the site: asked not to be fetched, kept, or used to train models.
SITE_RULES = ("robots", "noindex", "noarchive", "opt_out")
# Of ours: scope; budgets (max_depth, max_pages_per_host, max_bytes_per_host, max_hosts_per_domain); traps (trap_url,
# trap_pattern, trap_query, trap_repeats, redirect_loop); soft_404, which says with status 200 that there is no page.
# error:KIND. Of the network and of answers; `http_404` and other statuses as they come.
ERRORS = (
    *("bad_url", "address", "port", "dns", "connect", "tls", "timeout", "slow", "truncated", "http", "headers"),
    *("too_large", "bomb", "encoding", "content_type", "robots_unreachable", "host_down", "internal"),
)


@dataclass(frozen=True, slots=True)
class Link:
    """A URL that was found: normalised, with how promising it is.

    `key` are the 16 bytes that identify it (xxh3-128 of the canonical form); two spellings of one page share it.
    """

    url: str
    key: bytes
    host: str  # as in the URL, with a port that is not the scheme's: what politeness and budgets go by
    domain: str  # registered domain
    pattern: bytes  # 8 bytes: hash of the URL with its numbers and values taken out
    query_path: bytes  # 8 bytes: hash of host and path, zeros without a query
    depth: int
    priority: float  # 0..1, higher first
    seed: bool = False
    redirects: int = 0  # how many led here
    refused: str | None = None  # a rule of ours (trap_url, scope, ...) that this URL falls to at once


@dataclass(frozen=True, slots=True)
class Claim:
    """A URL that was taken from the frontier and must be finished or given back."""

    id: int
    url: str
    key: bytes
    host: str
    domain: str
    depth: int
    redirects: int
    attempts: int  # earlier ones
    etag: str | None = None  # of the last fetch, for a conditional request
    last_modified: str | None = None
    digest: str | None = None  # payload digest of the last fetch
    refers_to: Reference | None = None  # the record of the last fetch


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a payload was recorded first, for revisit records."""

    record_id: str  # urn:uuid:...
    url: str
    date: str  # WARC-Date


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when the record of a visit stands."""

    file: str
    offset: int
    date: str  # WARC-Date


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a claim; the frontier stores it."""

    fate: str
    status: int | None = None
    fetched_bytes: int = 0  # over the wire, body only
    chinese_bytes: int = 0  # UTF-8 bytes of Han characters and Chinese punctuation in the text
    text_bytes: int = 0  # UTF-8 bytes of the text
    digest: str | None = None  # payload digest, `sha1:BASE32`
    content: bytes | None = None  # 16 bytes: what the text is without its numbers; repeated content closes a pattern
    etag: str | None = None
    last_modified: str | None = None
    record: Reference | None = None  # the record that holds this URL's payload
    detail: str = ""
    links: tuple[Link, ...] = field(default=())


@dataclass(slots=True)
class Tally:
    """What the crawl has done in all its runs; saved with each checkpoint."""

    pages: int = 0  # answers but those of robots.txt
    robots: int = 0
    fetched_bytes: int = 0  # of all bodies, over the wire
    chinese_bytes: int = 0  # of the text of pages that are kept, UTF-8
    text_bytes: int = 0
    seconds: float = 0.0  # that processes worked on it
    failures: dict[str, int] = field(default_factory=dict)  # exceptions of our own, by type

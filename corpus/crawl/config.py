"""Section [crawl] of a recipe, and the options of `python -m corpus crawl`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpus.engine.config import RecipePath, Strict


class NetworkConfig(Strict):
    """[crawl.network]: whom connections may reach. The defaults reach the public internet and nothing else."""

    ports: tuple[int, ...] = Field(default=(80, 443), strict=False)
    allow_addresses: tuple[str, ...] = Field(default=(), strict=False)
    """Networks (CIDR) that may be reached though they are not public, for a site of one's own and for tests."""
    resolve: dict[str, str] = {}
    """Addresses of hosts that are not asked of the resolver, as `curl --resolve`; the guard checks them all the
    same."""
    ca_file: RecipePath | None = None
    """Certificates (PEM) to trust instead of the system's."""
    connect_seconds: float = Field(default=10.0, gt=0)
    first_byte_seconds: float = Field(default=20.0, gt=0)
    total_seconds: float = Field(default=60.0, gt=0)
    min_bytes_per_second: int = Field(default=500, ge=0)
    """Slower bodies are given up, measured over ten seconds."""
    max_header_bytes: int = Field(default=64 << 10, gt=0)
    max_expansion: int = Field(default=200, gt=0)
    """A compressed body may grow to this many times its size, checked after 1 MiB (FAULTS: bombs)."""


class PolitenessConfig(Strict):
    """[crawl.politeness]: how long a host is left alone. One connection a host, always."""

    min_delay_seconds: float = Field(default=1.0, ge=0)
    max_delay_seconds: float = Field(default=60.0, gt=0)
    """No delay that a host causes (slowness, Retry-After, Crawl-delay) exceeds it but a Retry-After."""
    max_crawl_delay_seconds: float = Field(default=30.0, ge=0)
    """A longer Crawl-delay of robots.txt counts as this."""
    max_hosts_per_domain: int = Field(default=4, ge=1)
    """Hosts of one registered domain that are asked at a time: they often share a machine."""
    latency_factor: float = Field(default=2.0, ge=0)
    """The delay is at least this many times what the host took to answer."""
    max_retry_after_seconds: float = Field(default=3600.0, ge=0)
    """A host that asks to be left alone for longer is given up for this run."""
    max_attempts: int = Field(default=3, ge=1)
    """How often one URL is tried."""
    max_host_failures: int = Field(default=10, ge=1)
    """A host with as many failures in a row is given up for this run."""


class BudgetConfig(Strict):
    """[crawl.budget]: where a crawl stops by itself."""

    max_pages: int | None = Field(default=None, gt=0)
    """Pages fetched in all; None: until nothing is left."""
    max_pages_per_host: int = Field(default=10_000, gt=0)
    max_bytes_per_host: int = Field(default=2 << 30, gt=0)
    max_depth: int = Field(default=30, ge=0)
    """Links from a seed."""
    max_hosts_per_domain: int = Field(default=1_000, gt=0)
    """Wildcard names make hosts without end."""
    max_page_bytes: int = Field(default=2_000_000, gt=0)
    """Of a decoded page; larger ones are not kept."""
    max_urls_per_pattern: int = Field(default=5_000, gt=0)
    """URLs of a host that are alike but for their numbers and values."""
    max_query_patterns: int = Field(default=50, gt=0)
    """Sets of parameter names that one path of a host may have."""
    max_repeats: int = Field(default=10, gt=0)
    """So many pages in a row of one pattern with the same content close it."""


class CrawlConfig(Strict):
    """[crawl]: where to begin, how far to go, and how to behave on the way."""

    seeds: tuple[RecipePath, ...] = Field(strict=False, min_length=1)
    """URLs, and files that hold one URL a line (# begins a comment)."""
    contact: str = Field(min_length=1)
    """An e-mail address or a page that tells a site's owner whom to write to; part of the user agent. Required."""
    agent: str = Field(default="wenhaibot", pattern=r"^[A-Za-z_-]{3,64}$")
    """The name that robots.txt knows this crawler by (RFC 9309: letters, `_`, `-`)."""
    follow: Literal["hosts", "domains", "anywhere"] = "domains"
    """Links to where are followed: the seeds' hosts, their registered domains, or anywhere."""
    concurrency: int = Field(default=64, gt=0, le=1000)
    """Requests under way at a time, each to another host."""
    checkpoint_seconds: float = Field(default=5.0, gt=0)
    """What was fetched is recorded this often; a kill loses no more than this."""
    file_bytes: int = Field(default=256 << 20, gt=0)
    """A WARC file is closed when it is this large. A file is one task of the extraction that reads it."""
    network: NetworkConfig = NetworkConfig()
    politeness: PolitenessConfig = PolitenessConfig()
    budget: BudgetConfig = BudgetConfig()

"""The options of `python -m corpus commoncrawl`: what is selected, how it is fetched, how politely."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from corpus.engine.config import Strict

CRAWL_NAME = re.compile(r"CC-[A-Z]+-\d{4}(-\d{2}){0,2}")
HOST = re.compile(
    r"(?:[a-z0-9_-]{1,63}\.){0,126}[a-z][a-z0-9-]{0,62}"
)  # its last label is no number: addresses are not sorted by host
CONTACT = re.compile(r"[\x21-\x7e][\x20-\x7e]{2,199}")

Language = Annotated[str, Field(pattern=r"^[a-z]{3}$")]


class SelectConfig(Strict):
    """[select]: which captures of the index are taken."""

    languages: tuple[Language, ...] = Field(default=("zho",), strict=False, min_length=1)
    """ISO 639-3, as the index's content_languages names them; any of these will do."""
    primary: bool = False
    """Only captures whose first language is one of them."""
    host_suffixes: tuple[str, ...] = Field(default=(), strict=False)
    """Hosts that are one of these or end in a dot and one of these; none: all hosts."""
    mime_types: tuple[str, ...] = Field(default=("text/html", "application/xhtml+xml"), strict=False, min_length=1)
    sample: float = Field(default=1.0, gt=0, le=1)
    """Share of the captures, chosen by a hash of the URL: a smaller sample is a part of a larger one."""
    limit: int | None = Field(default=None, gt=0)
    """At most so many captures in all; an index file is read no further once it gave as many."""
    buckets: int = Field(default=64, ge=1, le=1024)
    """Ranges of WARC files that are sorted one at a time; more of them need less memory and make more small files."""

    @field_validator("host_suffixes")
    @classmethod
    def _as_indexed(cls, suffixes: tuple[str, ...]) -> tuple[str, ...]:
        """Lower case and in ASCII, as the index has hosts."""
        found = []
        for suffix in suffixes:
            try:
                host = suffix.strip(".").lower().encode("idna").decode()
            except UnicodeError:
                host = ""
            if not HOST.fullmatch(host):
                raise ValueError(f"{suffix!r} is no end of a host name; for example cn, com.tw or example.org")
            found.append(host)
        return tuple(sorted(set(found)))


class FetchConfig(Strict):
    """[fetch]: how captures become files."""

    task_bytes: int = Field(default=256_000_000, gt=0)
    """Bytes of captures in a task, that is in a file."""
    gap_bytes: int = Field(default=64 << 10, ge=0)
    """Captures of one file that lie no further apart are one request; what lies between is thrown away."""
    request_bytes: int = Field(default=8 << 20, gt=0)
    """Joined requests grow no larger; a worker holds about one for each of its connections in memory."""
    max_record_bytes: int = Field(default=16 << 20, gt=0)
    """Compressed; the crawls cut payloads at a few MB."""
    max_payload_bytes: int = Field(default=64 << 20, gt=0)
    """Of a record once decompressed."""
    check_digest: bool = True
    """Whether payloads must have the SHA-1 of the index."""
    max_error_ratio: float = Field(default=0.5, ge=0, le=1)
    """A task with a larger share of captures in error fails instead: index, archive or network are not what they
    seem."""


class HttpConfig(Strict):
    """[http]: politeness and patience. Stores (s3://) and folders take `concurrency` and attempts from here, too."""

    contact: str = ""
    """Who runs this: an address or page that the server's owner can turn to."""
    concurrency: int = Field(default=4, ge=1, le=64)
    """Requests under way at a time, of each worker."""
    connect_seconds: float = Field(default=15.0, gt=0)
    read_seconds: float = Field(default=60.0, gt=0)
    """Without a byte, a connection is given up."""
    min_bytes_per_second: int = Field(default=5_000, gt=0)
    """A slower answer is given up (`read_seconds` are granted on top)."""
    attempts: int = Field(default=10, ge=1)
    """How often one request is made before the server counts as gone, or the request as hopeless."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """The first pause; each is twice the one before."""
    max_backoff_seconds: float = Field(default=120.0, ge=0)
    max_retry_after_seconds: float = Field(default=600.0, ge=0)
    """A server that asks to be left alone for longer is: the run stops."""

    @field_validator("contact")
    @classmethod
    def _fits_a_header(cls, contact: str) -> str:
        if contact and not CONTACT.fullmatch(contact):
            raise ValueError("3 to 200 printable ASCII characters: they are sent in a header")
        return contact


class CommonCrawlConfig(Strict):
    """All sections, as `--set SECTION.KEY=VALUE` reaches them."""

    select: SelectConfig = SelectConfig()
    fetch: FetchConfig = FetchConfig()
    http: HttpConfig = HttpConfig()

"""What a download gives: facts for the archive, or an error of a known kind."""

from __future__ import annotations

from dataclasses import dataclass

from corpus.crawl.fates import ERRORS

RETRIED = frozenset({"dns", "connect", "timeout", "slow", "truncated", "http"})
"""Errors that may pass by themselves; the others come again however often one asks."""


class FetchError(Exception):
    """A URL that could not be fetched: `kind` is one of fates.ERRORS, `retry` whether another try may help."""

    def __init__(self, kind: str, detail: str, retry: bool | None = None) -> None:
        assert kind in ERRORS, kind
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry = kind in RETRIED if retry is None else retry


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer. The body is decoded; the headers still name the encoding it came in.

    The body of an answer other than 2xx is left out where it could not be read: its status says enough.
    """

    status: int
    reason: str
    version: str  # HTTP/1.1
    raw_headers: tuple[tuple[bytes, bytes], ...]  # order and case as they came, white space around values gone
    body: bytes
    wire_bytes: int  # of the body before decoding
    address: str  # that answered
    seconds: float  # from the request's last byte to the end of the headers
    date: str  # when the request began: WARC-Date
    request_head: bytes  # as sent, with the empty line

    def header(self, name: bytes) -> bytes | None:
        """The value of a header, its name in lower case; None without it, the first of one given twice."""
        return next((value for key, value in self.raw_headers if key.lower() == name), None)

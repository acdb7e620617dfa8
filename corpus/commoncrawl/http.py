"""GET over HTTP(S) for ranges of large files: the standard library's client and nothing that acts on its own.

No redirect is followed, nothing is decompressed, no environment variable is read, and no answer is believed before its
status, range and length are those that were asked for. (fsspec's HTTP file system reads a whole file of gigabytes where
a server ignores `Range`, follows redirects to any host, and hides `Retry-After`.)

What can come instead of bytes: `Bad` (this file or range: asking again changes nothing), `Temporary` (ask again later)
and `ServerGone` (whoever asks, and whatever for, will be refused).
"""

from __future__ import annotations

import http.client
import io
import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import urlsplit

from corpus.commoncrawl.config import HttpConfig
from corpus.crawl.politeness.delays import retry_after
from corpus.engine.errors import SetupError

CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
BLOCK_BYTES = 1 << 20
MAX_HEAD_BYTES = 1 << 20  # of an answer, all its `100 Continue` included
MISSING_STATUS = {404, 410}
Version = tuple[str, int | None]  # of a file: its ETag ("": none) and its size (None: not said)
BUSY_STATUS = {408, 425, 429}
REFUSED_STATUS = {401, 403, 407, 451}


class Bad(Exception):
    """A file or range that cannot be had, whoever asks how often; `kind` is one of the error kinds of a fate."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Temporary(Exception):
    """An answer that another attempt may better; `retry_after` in seconds where the server said so."""

    def __init__(self, detail: str, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class ServerGone(SetupError):
    """The server does not answer any more, or refuses: nothing is wrong with what was asked for."""


class Http:
    """Connections that are kept open between requests, as many as threads ask at a time. Thread-safe."""

    def __init__(self, config: HttpConfig) -> None:
        self._config = config
        self._agent = user_agent(config.contact)
        self._idle: list[tuple[tuple[str, str], http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Hang up; connections in use close as their requests end."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def head(self, url: str) -> tuple[int, str]:
        """The size of a file and what tells its versions apart (ETag, else Last-Modified)."""
        with self._answer("HEAD", url, {}) as response:
            _check_status(response, url, (200,))
            response.read()  # nothing
            size = response.headers.get("Content-Length", "")
            if not size.isdigit():
                raise _unsized(url)
            return int(size), response.headers.get("ETag") or response.headers.get("Last-Modified") or ""

    def read(self, url: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, all of them."""
        with self._answer("GET", url, {"Range": f"bytes={start}-{end - 1}"}) as response:
            _check_status(response, url, (206, 200))
            if response.status == 200:
                raise ServerGone(
                    f"{url}: the server sends whole files where a range is asked for. Give another --base, or take "
                    "whole files with --whole."
                )
            first, stop, total = _content_range(response)
            if first != start or stop > end or (stop < end and stop != total):
                raise Temporary(f"bytes {first}-{stop - 1} came instead of {start}-{end - 1}")
            if stop < end:
                raise Bad("truncated", f"the file ends at byte {total:,}")
            return b"".join(self._blocks(response, end - start))

    def stream(self, url: str, start: int, identity: str) -> Iterator[tuple[int, Version, bytes]]:
        """Yield (place, version of the file, block) from `start` on, or from 0 where the server or a change of the file
        wants it so; the first block is empty. An end before the size is `Temporary`.
        """
        headers = {"Range": f"bytes={start}-"} if start else {}
        if start and identity.startswith('"'):
            headers["If-Range"] = identity
        with self._answer("GET", url, headers) as response:
            _check_status(response, url, (206, 200))
            if response.status == 206:
                place, stop, size = _content_range(response)
                if place != start or size is None or stop != size:
                    raise Temporary(f"bytes {place}-{stop - 1} of {size} came instead of {start}-")
            else:
                place, size = 0, response.length
                if size is None:
                    raise _unsized(url)
            version = (response.headers.get("ETag") or "", size)
            yield place, version, b""
            for block in self._blocks(response, size - place):
                yield place, version, block
                place += len(block)

    def _blocks(self, response: http.client.HTTPResponse, length: int) -> Iterator[bytes]:
        """The body, which has `length` bytes."""
        came = 0
        while came < length:
            block = response.read1(min(BLOCK_BYTES, length - came))
            if not block:
                raise Temporary(f"the connection ended after {came:,} of {length:,} bytes")
            came += len(block)
            yield block
        if response.length == 0:
            response.read()  # nothing; it frees the connection for the next request

    @contextmanager
    def _answer(self, method: str, url: str, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        parts = urlsplit(url)
        site = (parts.scheme, parts.netloc)
        connection = self._take(site)
        try:
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            response = self._send(connection, method, target or "/", headers)
            try:
                yield response
                reusable = response.isclosed() and not response.will_close
            finally:
                response.close()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Temporary(f"{type(error).__name__}: {error}"[:200]) from error
        except BaseException:
            connection.close()
            raise
        if not reusable:
            connection.close()
            return
        with self._lock:
            self._idle.append((site, connection))

    def _send(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """One request; a kept connection that the server has closed meanwhile is opened again, once."""
        was_open = connection.sock is not None
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity", **headers}
        while True:
            try:
                if connection.sock is None:
                    connection.connect()
                    connection.sock.settimeout(self._config.read_seconds)  # type: ignore[attr-defined]
                connection.request(method, target, headers=headers)
                return connection.getresponse()
            except (ConnectionError, http.client.HTTPException):
                connection.close()
                if not was_open:
                    raise
                was_open = False

    def _take(self, site: tuple[str, str]) -> http.client.HTTPConnection:
        with self._lock:
            for index, (kept, connection) in enumerate(self._idle):
                if kept == site:
                    del self._idle[index]
                    return connection
        scheme, host = site
        seconds = self._config.connect_seconds
        connection = (
            http.client.HTTPSConnection(host, timeout=seconds, context=ssl.create_default_context())
            if scheme == "https"
            else http.client.HTTPConnection(host, timeout=seconds)
        )
        connection.response_class = partial(_Answer, self._config)  # type: ignore[assignment]
        return connection


class _Answer(http.client.HTTPResponse):
    """An answer that neither drips nor begins without end."""

    def __init__(self, config: HttpConfig, sock: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self._paced = _Paced(sock.makefile("rb", buffering=0), config)
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        super().begin()
        self._paced.in_head = False


class _Paced(io.RawIOBase):
    """What comes over a connection for one answer, not slower than the configuration allows."""

    def __init__(self, raw: Any, config: HttpConfig) -> None:
        self._raw, self._config = raw, config
        self._came, self._began = 0, time.monotonic()
        self.in_head = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        came = self._raw.readinto(buffer) or 0
        self._came += came
        seconds = time.monotonic() - self._began
        if seconds > self._config.read_seconds + self._came / self._config.min_bytes_per_second:
            raise Temporary(f"{self._came:,} bytes in {seconds:,.0f} s, which is too slow")
        if self.in_head and self._came > MAX_HEAD_BYTES:
            raise Temporary("the head of the answer does not end")
        return came

    def close(self) -> None:
        self._raw.close()
        super().close()


def user_agent(contact: str) -> str:
    """Who asks, and whom to turn to.

    >>> user_agent("crawl@example.org").split("(")[1]
    '+crawl@example.org)'
    """
    try:
        number = version("wenhai")
    except PackageNotFoundError:  # a checkout that was not installed
        number = "0"
    return f"wenhai/{number}" + (f" (+{contact})" if contact else "")


def _unsized(url: str) -> ServerGone:
    return ServerGone(f"{url}: the server does not say how long the file is. Give another --base.")


def _check_status(response: http.client.HTTPResponse, url: str, wanted: tuple[int, ...]) -> None:
    status = response.status
    if status in wanted:
        if response.chunked:
            raise _unsized(url)
        return
    said = f"{status} {response.reason}"[:80]
    if status in BUSY_STATUS or status >= 500:
        asked = response.headers.get("Retry-After", "").encode("latin-1", "replace")
        raise Temporary(said, retry_after(asked, now=datetime.now(UTC)))
    if 300 <= status < 400:
        raise ServerGone(
            f"{url}: is elsewhere ({said}), and redirects are not followed. Give the place it leads to as --base."
        )
    if status in REFUSED_STATUS:
        raise ServerGone(
            f"{url}: refused ({said}). If the server has had too many requests, wait some hours and run the same "
            "command with a lower --concurrency: finished work is kept."
        )
    if status in MISSING_STATUS:
        raise Bad("missing", said)
    if status == 416:
        raise Bad("truncated", "the file ends before the range begins")
    raise Bad(f"http_{status}", said)


def _content_range(response: http.client.HTTPResponse) -> tuple[int, int, int | None]:
    """First byte, end, and size of the file (None: not said)."""
    found = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if found is None:
        raise Temporary("an answer without a proper Content-Range")
    first, last, total = found.groups()
    return int(first), int(last) + 1, None if total == "*" else int(total)

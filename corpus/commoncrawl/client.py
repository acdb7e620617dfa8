"""Bytes of an archive by their path below its base: over HTTP, from a store (s3://), or from a folder.

Every request is made a bounded number of times with growing pauses; a `Retry-After` silences all requests of the
client. A path is joined below the base and never leads elsewhere: what an index or a list of paths says cannot choose
the host.

A request that keeps failing says nothing yet about whose fault that is. So the file's first byte is asked for: when it
comes, the request is hopeless (`Bad`, unreachable) and the rest goes on; when it does not, the server is gone, which
the client says from then on without asking again, and which ends the stage.
"""

from __future__ import annotations

import errno
import io
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from corpus.commoncrawl.config import HttpConfig
from corpus.commoncrawl.http import Bad, Http, ServerGone, Temporary, Version
from corpus.engine import durable, storage
from corpus.engine.disk_budget import free_space
from corpus.engine.errors import DiskError, WenhaiError
from corpus.engine.storage import File

PATH = re.compile(r"(?!/)(?!.*//)[A-Za-z0-9._=+/-]{1,1000}(?<!/)")
MAX_PATH_CHARS = 1000
MAX_LIST_BYTES = 64 << 20
PROBES = 2  # of a file's first byte
PROGRESS_BYTES = 1 << 20  # a download that came so far begins to count its attempts anew

NO_ACCESS = {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"}

Result = TypeVar("Result")


def is_http(url: str) -> bool:
    """Whether a URL is one of a web server."""
    return url.startswith(("http://", "https://"))


def is_path(path: str) -> bool:
    """Whether a path of an index or a list stays below a base, in characters that need no escape.

    >>> is_path("crawl-data/CC-MAIN-2026-43/wet.paths.gz"), is_path("../x"), is_path("//evil.example/x")
    (True, False, False)
    """
    return len(path) <= MAX_PATH_CHARS and PATH.fullmatch(path) is not None and not {".", ".."} & set(path.split("/"))


class Client:
    """One task's requests to one archive. Thread-safe; leaving the `with` block ends the pauses of its threads."""

    def __init__(self, base: str, config: HttpConfig) -> None:
        self.base, self._config = base, config
        self._source: Http | Store = Http(config) if is_http(base) else Store()
        self._left = threading.Event()
        self._silent_until = 0.0
        self._gone = ""  # what to say once the server was found gone

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End all pauses, hang up; who still asks is told that the task has ended."""
        self._left.set()
        self._source.close()

    def url(self, path: str) -> str:
        """Where a path lies; raises `Bad` when it is none."""
        if not is_path(path):
            raise Bad("place", f"{path[:200]!r} is no path below the archive's base")
        return storage.join(self.base, path)

    def identify(self, url: str) -> File:
        """A file with its size and what tells its versions apart; raises as `read`."""
        size, identity = self._patiently(lambda: self._source.head(url), url)
        return File(url, size, durable.digest({"identity": identity, "bytes": size}))

    def size(self, path: str) -> int:
        """Bytes of a file; raises as `read`."""
        return self.identify(self.url(path)).bytes

    def read(self, path: str, start: int, end: int, attempts: int | None = None) -> bytes:
        """The bytes from `start` up to `end` of a file, all of them.

        Raises:
            Bad: `missing`, `truncated` (the file ends before), `unreachable` (this range, though the server answers),
                `place`, or another status of the server.
            ServerGone: the server does not answer any more, or refuses.
        """
        return self.read_at(self.url(path), start, end, attempts)

    def read_at(self, url: str, start: int, end: int, attempts: int | None = None) -> bytes:
        """`read`, of a URL that a person gave."""
        return self._patiently(lambda: self._source.read(url, start, end), url, attempts)

    def read_whole(self, path: str) -> bytes:
        """A small file."""
        size = self.size(path)
        if size > MAX_LIST_BYTES:
            raise Bad("too_long", f"{size:,} bytes; a list has less")
        return self.read(path, 0, size) if size else b""

    def download(self, path: str, target: Path) -> int:
        """Copy a whole file to `target`, going on where a connection broke; returns its bytes.

        Raises:
            Bad, ServerGone: as `read`.
            DiskError: there is no room for it.
        """
        url = self.url(path)
        attempt = marked = 0
        known: Version = ("", None)
        with open(target, "wb") as file:
            while True:
                try:
                    for place, version, block in self._stream(url, file.tell(), known[0]):
                        if place and version[1] != known[1]:
                            file.seek(file.truncate(0))
                            raise Temporary("the file has changed meanwhile")
                        if version != known:
                            _require_room(target, (version[1] or 0) - place)
                        known = version
                        if file.tell() != place:
                            file.seek(file.truncate(place))
                        file.write(block)
                    return file.tell()
                except Temporary as error:
                    is_on_its_way = file.tell() - marked >= PROGRESS_BYTES
                    attempt, marked = (1, file.tell()) if is_on_its_way else (attempt + 1, marked)
                    if attempt >= self._config.attempts:
                        self._hopeless(url, error)
                    self._pause(attempt, error)
                except ServerGone as error:
                    self._is_gone(str(error))

    def _stream(self, url: str, place: int, identity: str) -> Iterator[tuple[int, Version, bytes]]:
        self._before_asking()
        yield from self._source.stream(url, place, identity)

    def _patiently(self, ask: Callable[[], Result], url: str, attempts: int | None = None) -> Result:
        attempts = attempts or self._config.attempts
        for attempt in range(1, attempts + 1):
            self._before_asking()
            try:
                return ask()
            except Temporary as error:
                if attempt == attempts:
                    self._hopeless(url, error)
                self._pause(attempt, error)
            except ServerGone as error:
                self._is_gone(str(error))
        raise AssertionError("unreachable")

    def _hopeless(self, url: str, error: Temporary) -> NoReturn:
        """All attempts are spent: is it this range, or the server?"""
        for _ in range(PROBES):
            try:
                self._source.read(url, 0, 1)
                raise Bad("unreachable", str(error))
            except Temporary:
                continue
        self._is_gone(
            f"{self.base}: does not answer ({error}); {self._config.attempts} attempts were made. Look at the "
            "network and the server, then run the same command again: finished work is kept."
        )

    def _is_gone(self, words: str) -> NoReturn:
        self._gone = self._gone or words
        raise ServerGone(self._gone) from None

    def _before_asking(self) -> None:
        self._left.wait(max(0.0, self._silent_until - time.monotonic()))
        if self._left.is_set():
            raise ServerGone(f"{self.base}: the task has ended.")
        if self._gone:
            raise ServerGone(self._gone)

    def _pause(self, attempt: int, error: Temporary) -> None:
        if error.retry_after is None:
            seconds = min(self._config.max_backoff_seconds, self._config.backoff_seconds * 2 ** (attempt - 1))
            self._left.wait(seconds * random.uniform(0.5, 1))  # not all at once again
            return
        if error.retry_after > self._config.max_retry_after_seconds:
            self._is_gone(
                f"{self.base}: asks to be left alone for {error.retry_after:,.0f} s ({error}). Run the same command "
                "again after that, perhaps with a lower --concurrency: finished work is kept."
            )
        self._silent_until = max(self._silent_until, time.monotonic() + error.retry_after)


def _require_room(target: Path, num_bytes: int) -> None:
    """Refuse to begin what would fill the disk."""
    space = free_space(target.parent)
    if num_bytes > space.free_bytes - space.reserve_bytes:
        raise DiskError(
            f"{target.parent}: the next file has {num_bytes:,} bytes, and {space.free_bytes:,} are free "
            f"({space.reserve_bytes:,} stay in reserve). Free space, then run the same command again: "
            "finished work is kept."
        )


class Store:
    """A folder or a store (s3://), asked as `Http` is; no version of a file is told from another."""

    def close(self) -> None:
        """Nothing is held open."""

    def head(self, url: str) -> tuple[int, str]:
        """The size of a file."""
        with _store_errors(), storage.open_stream(url) as stream:
            return stream.seek(0, io.SEEK_END), ""

    def read(self, url: str, start: int, end: int) -> bytes:
        """The bytes from `start` up to `end`, all of them."""
        target = bytearray(end - start)
        with _store_errors():
            came = storage.read_into(url, start, memoryview(target))
            if came < len(target):
                raise Bad("truncated", f"the file ends at byte {start + came:,} or before")
        return bytes(target)

    def stream(self, url: str, start: int, identity: str) -> Iterator[tuple[int, Version, bytes]]:
        """Yield (place, version of the file, block) from `start` on."""
        with _store_errors(), storage.open_stream(url) as stream:
            stream.seek(start)
            while block := stream.read(storage.READ_BLOCK_BYTES):
                yield start, ("", None), block
                start += len(block)


@contextmanager
def _store_errors() -> Iterator[None]:
    """What a store or folder raises, in the words of `http`."""
    try:
        yield
    except (Bad, Temporary, WenhaiError):
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise Bad("missing", type(error).__name__) from error
    except Exception as error:  # stores have errors of their own that are no OSError
        name = type(error).__name__
        if getattr(error, "errno", None) == errno.EINVAL:  # a range behind the object's end, as s3fs has it
            raise Bad("truncated", "the file ends before the range begins") from error
        if isinstance(error, PermissionError) or name in NO_ACCESS:
            raise ServerGone(f"access to the archive is refused ({name}: {error}). Give credentials for it.") from error
        raise Temporary(f"{name}: {error}"[:200]) from error

"""WARC files that a kill at any moment leaves whole: appended record by record, closed when they are large.

The open file is `.00007.warc.gz.open`, and what counts of it is the length that the frontier recorded after the last
`sync`. After a kill `recover` cuts it there: nothing recorded is lost, and nothing stays that the frontier does not
know of. A large file is made durable, and only then takes its final name, `00007.warc.gz`.

Records are ours (records.py) and not warcio's, which knows headers as text and percent-escapes what is not ASCII in
them: the bytes that came would be lost.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from corpus.crawl.archive import records as warc
from corpus.crawl.fates import Place, Reference
from corpus.crawl.network.fetched import Fetched
from corpus.engine.durable import HASH_BLOCK_BYTES, sync_folder
from corpus.engine.errors import DiskError, WenhaiError

_NAME = re.compile(r"\.?(\d{5,12})\.warc\.gz(\.open)?")


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One file, as the frontier records it; `sha256` is None while it is open."""

    name: str  # within the crawl's folder: `data/00000.warc.gz`, open or closed
    bytes: int
    records: int
    sha256: str | None = None


class Archive:
    """One series of WARC files in one folder; for one thread.

    Args:
        folder: `OUT/data` or `OUT/robots`.
        file_bytes: a file of this size is closed.
        info: what each file's warcinfo says, see `warc.warc_info`.
        new_id: where record numbers come from.
    """

    def __init__(
        self, folder: Path, file_bytes: int, info: Mapping[str, str], new_id: Callable[[], uuid.UUID] = uuid.uuid4
    ) -> None:
        self.folder = folder
        self._file_bytes, self._info, self._new_id = file_bytes, dict(info), new_id
        self._fd: int | None = None  # of the open file
        self._number = 0  # of the open file, else of the next
        self._length = self._records = 0
        self._hasher = hashlib.sha256()
        self._closed: list[ArchiveFile] = []  # since the last sync
        self._broken: DiskError | None = None  # after which nothing is known of what the disk holds

    def recover(self, files: Iterable[ArchiveFile]) -> None:
        """Make the folder what the frontier recorded of it, and go on from there. Call it first, once.

        The open file is cut to its recorded length; one that was closed after it was recorded is open again; files of
        ours that no record names are removed. `files` of other folders are passed over.

        Raises:
            WenhaiError: a recorded file is gone, or shorter than its record.
        """
        numbered = sorted(
            (int(Path(file.name).name.partition(".")[0]), file)
            for file in files
            if Path(file.name).parent.name == self.folder.name
        )
        with self._disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        keep = set()
        for number, file in numbered:
            self._number = number
            if file.sha256 is None:
                self._reopen(file)
                keep.add(self._open_path)
            else:
                keep.add(self._final_path)
                _check(self._final_path, file)
                self._number += 1
        with self._disk(self.folder):
            for path in self.folder.iterdir():
                if _NAME.fullmatch(path.name) and path not in keep:
                    path.unlink()
            sync_folder(self.folder)

    def write_page(self, url: str, fetched: Fetched, digest: str | None = None) -> tuple[Reference, Place]:
        """Append the request and the response; `digest` is the body's `warc.payload_digest` where it is known.
        Returns the record, as later ones refer to it, and where it stands."""
        fields = [("WARC-Payload-Digest", digest or warc.payload_digest(fetched.body))]
        return self._write(url, fetched, "response", fields, warc.response_head(fetched) + fetched.body)

    def write_revisit(
        self, url: str, fetched: Fetched, original: Reference, digest: str | None, *, not_modified: bool = False
    ) -> tuple[Reference, Place]:
        """Append the request and a revisit: the answer's headers, and where its payload, of `digest`, was recorded.

        `not_modified`: the server said so (304); else the same payload came again.
        """
        fields = [
            *([("WARC-Payload-Digest", digest)] if digest else []),
            ("WARC-Profile", warc.NOT_MODIFIED if not_modified else warc.SAME_PAYLOAD),
            ("WARC-Refers-To", f"<{original.record_id}>"),
            ("WARC-Refers-To-Target-URI", warc.uri(original.url)),
            ("WARC-Refers-To-Date", original.date),
        ]
        return self._write(url, fetched, "revisit", fields, warc.response_head(fetched))

    def sync(self) -> tuple[ArchiveFile, ...]:
        """Make durable what was written. Returns what the frontier must record with whatever rests on it: the files
        closed since the last time, and the open one."""
        if self._broken:
            raise self._broken
        if self._fd is not None:
            with self._disk(self._open_path):
                os.fsync(self._fd)
        closed, self._closed = self._closed, []
        return (*closed, self._as_file()) if self._fd is not None else tuple(closed)

    def close(self) -> tuple[ArchiveFile, ...]:
        """Close the open file under its final name; returns what `sync` does."""
        if self._fd is not None and not self._broken:
            self._close_file()
        return self.sync()

    def _write(
        self, url: str, fetched: Fetched, kind: str, fields: warc.Fields, block: bytes
    ) -> tuple[Reference, Place]:
        if self._broken:
            raise self._broken
        if self._fd is None:
            self._begin_file(fetched.date)
        record_id = self._new_id().urn
        shared = [
            ("WARC-Date", fetched.date),
            ("WARC-Target-URI", warc.uri(url)),
            ("WARC-IP-Address", fetched.address),
        ]
        concurrent = ("WARC-Concurrent-To", f"<{record_id}>")
        request = warc.pack("request", self._new_id().urn, [*shared, concurrent], warc.REQUEST, fetched.request_head)
        answer = warc.pack(kind, record_id, [*shared, *fields], warc.RESPONSE, block)
        place = Place(self._name, self._length + len(request), fetched.date)
        self._append(request + answer, 2)
        if self._length >= self._file_bytes:
            self._close_file()
        return Reference(record_id, url, fetched.date), place

    def _begin_file(self, date: str) -> None:
        """Open the next file and write what it is, as of the date of its first record."""
        path = self._open_path
        with self._disk(path, fatal=False):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._length = self._records = 0
        self._hasher = hashlib.sha256()
        fields = [("WARC-Date", date), ("WARC-Filename", self._final_path.name)]
        info = warc.pack("warcinfo", self._new_id().urn, fields, warc.FIELDS, warc.lines(self._info.items()))
        try:
            self._append(info, 1)
            with self._disk(path, fatal=False):
                sync_folder(self.folder)
        except DiskError:  # without its first record the file is none
            os.close(self._fd)
            self._fd = None
            path.unlink(missing_ok=True)
            raise

    def _append(self, data: bytes, records: int) -> None:
        """Write whole records at the end, all or none of them."""
        assert self._fd is not None
        with self._disk(self._open_path, fatal=False):
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(self._fd, memoryview(data)[written:], self._length + written)
            except OSError:
                with suppress(OSError):  # where this fails, too, it is cut when the file is closed or recovered
                    os.ftruncate(self._fd, self._length)
                raise
        self._hasher.update(data)
        self._length += len(data)
        self._records += records

    def _close_file(self) -> None:
        """Make the open file durable, then give it its final name."""
        assert self._fd is not None
        with self._disk(self._open_path):
            os.ftruncate(self._fd, self._length)  # what a record that was not finished may have left
            os.fsync(self._fd)
            os.rename(self._open_path, self._final_path)
            sync_folder(self.folder)
            os.close(self._fd)
        self._closed.append(self._as_file(self._hasher.hexdigest()))
        self._fd = None
        self._number += 1

    def _reopen(self, file: ArchiveFile) -> None:
        """Cut the open file of a run that was killed to what was recorded of it."""
        path = self._open_path
        with self._disk(path):
            if self._final_path.exists() and not path.exists():  # closed after it was recorded
                os.rename(self._final_path, path)
        _check(path, file)
        with self._disk(path):
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.ftruncate(self._fd, file.bytes)
            os.fsync(self._fd)
            at = 0
            while block := os.pread(self._fd, HASH_BLOCK_BYTES, at):
                self._hasher.update(block)
                at += len(block)
        self._length, self._records = file.bytes, file.records

    def _as_file(self, sha256: str | None = None) -> ArchiveFile:
        return ArchiveFile(self._name, self._length, self._records, sha256)

    @property
    def _name(self) -> str:
        return f"{self.folder.name}/{self._final_path.name}"

    @property
    def _final_path(self) -> Path:
        return self.folder / f"{self._number:05}.warc.gz"

    @property
    def _open_path(self) -> Path:
        return self.folder / f".{self._number:05}.warc.gz.open"

    @contextmanager
    def _disk(self, path: Path, *, fatal: bool = True) -> Iterator[None]:
        """Turn the disk's refusals into a `DiskError`; after a `fatal` one only `recover` in a new run goes on."""
        try:
            yield
        except OSError as error:
            refused = DiskError(
                f"{path}: cannot be written ({error.strerror or error}). Free space or mend permissions, then run the "
                "same command again: what was recorded is kept."
            )
            if fatal:
                self._broken = refused
            raise refused from error


def _check(path: Path, file: ArchiveFile) -> None:
    try:
        size = path.stat(follow_symlinks=False).st_size
    except OSError:
        size = -1
    if size < file.bytes or (file.sha256 and size > file.bytes):
        found = "is gone" if size < 0 else f"has {size:,} bytes"
        raise WenhaiError(
            f"{path}: {found}, and the crawl recorded {file.bytes:,}. Restore it, or begin in another folder."
        )

"""What the bytes of input files are: hashed once, remembered in the build folder, checked by the task that reads them.

60 TB take four hours to hash on one machine, and every `run` and `plan` lists its inputs. So `OUT/input_digests.jsonl`
keeps the digests of each file beside a hint: size, times, inode and device. A file with another hint is hashed again;
an equal hint spares the reading and decides nothing, as clocks and copying tools may lie: whoever reads the file
compares its bytes, and where they differ the task fails by the file's name and has the digest forgotten.

SHA-256 is what a file is known by. What is compared are xxh3-128 digests of blocks of 16 MiB: at 15 GB/s instead of 1.5
they cost a task of plain JSONL, the fastest to read, 0.3 % of its time where SHA-256 would cost 3 %, and a task that
reads a range of a file needs only the blocks that it touches. Blocks are as large as the smallest range is, so that few
bytes are read for their sake alone (the first block of the file, one behind the range), and small enough to be held
while they are parsed: not a byte is given out before its block was compared. 60 TB of input have 60 MB of them.

Files in a store are known by the store's own tags and asked for with each listing: nothing of them is remembered.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import msgspec
import xxhash

from corpus.engine import durable, storage, store_lock
from corpus.engine.errors import InputError
from corpus.engine.storage import File

DIGESTS_NAME = "input_digests.jsonl"
CHANGED = "changed_inputs"  # a folder: one small file names each input that a task found changed
BLOCK_BYTES = 16 << 20
DIGEST_BYTES = 16
MAX_REMEMBERED = 4_000_000  # inputs, the latest; some 300 bytes each
SAVE_SECONDS = 60.0  # at most so much hashing is lost when a run is killed meanwhile
TAGS = ("ETag", "etag", "md5Hash", "contentMd5")  # what stores call them, in listings and in `info`


class ChangedInputError(InputError):
    """The bytes of a file are not those that were listed."""

    def __init__(self, file: File, what: str = "") -> None:
        super().__init__(
            f"{file.url}: its bytes are not those that were listed (sha256 {file.sha256[:12]}...{what}). "
            "Run the same command again once the file is whole: it is hashed anew, and finished work is kept."
        )
        self.url = file.url


class Digest(msgspec.Struct, array_like=True, frozen=True):
    """What was hashed of a file whose hint was this; `blocks` are digests one after another."""

    real: str
    hint: str
    num_bytes: int
    sha256: str
    blocks: bytes


class Digests:
    """What earlier runs into `out` have hashed; without `out` nothing is remembered.

    A line that cannot be read is a file that is hashed again.
    """

    def __init__(self, out: str = "", *, saves: bool = False) -> None:
        self._out, self._saves = out, saves
        self._known: dict[str, Digest] = {}
        self._is_new, self._saved = False, time.monotonic()
        self._changed: list[str] = []
        if not out or not storage.exists(out):
            return
        url = storage.join(out, DIGESTS_NAME)
        if storage.exists(url):
            decode = msgspec.json.Decoder(Digest).decode
            with storage.open_stream(url) as lines:
                for line in lines:
                    try:
                        one = decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
                    self._known[one.real] = one
        self._changed = [storage.join(out, CHANGED, name) for name in storage.names(storage.join(out, CHANGED), "json")]
        for marker in self._changed:
            self._known.pop(storage.read_json(marker)["file"], None)

    def find(self, real: str, hint: str) -> Digest | None:
        """What is known of a file, by its real path; it is among the latest then."""
        one = self._known.get(real)
        if one is None or one.hint != hint:
            return None
        self._known[real] = self._known.pop(real)
        return one

    def add(self, digests: Sequence[Digest]) -> None:
        """Remember what was hashed; once a minute so that it stays."""
        self._known |= {one.real: one for one in digests}
        self._is_new = True
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what is new, where this was asked for.

        Raises:
            LockHeld: another run works on the folder.
        """
        if not self._saves or not self._is_new:
            return
        with store_lock.run_lock(self._out):
            with storage.create(storage.join(self._out, DIGESTS_NAME)) as path, open(path, "wb") as file:
                encode = msgspec.json.Encoder().encode
                for one in list(self._known.values())[-MAX_REMEMBERED:]:
                    file.write(encode(one) + b"\n")
            for marker in self._changed:
                storage.remove(marker)
        self._is_new, self._saved, self._changed = False, time.monotonic(), []


@contextmanager
def forgets_changed(stage_folder: str) -> Iterator[None]:
    """Where a task finds an input changed, leave a note beside its stage's folder: the next run hashes the file."""
    try:
        yield
    except ChangedInputError as error:
        real = storage.real_url(error.url)
        name = f"{hashlib.sha256(real.encode()).hexdigest()[:16]}.json"
        storage.write_json(storage.join(stage_folder.rstrip("/").rpartition("/")[0], CHANGED, name), {"file": real})
        raise


def hash_file(real: str, hint: str) -> Digest:
    """Read a local file whole."""
    whole, blocks, num_bytes = hashlib.sha256(), bytearray(), 0
    with open(real, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole.update(block)
            blocks += xxhash.xxh3_128_digest(block)
            num_bytes += len(block)
    return Digest(real, hint, num_bytes, whole.hexdigest(), bytes(blocks))


def tag_of(url: str, entry: Mapping[str, Any] | None = None) -> tuple[int, str]:
    """Size and digest of a file in a store, by its tag; asks for it where the `entry` of a listing has none."""
    filesystem, path = storage.open_filesystem(url)
    if entry is None or entry.get("size") is None or not any(entry.get(name) for name in TAGS):
        entry = cast("Mapping[str, Any]", filesystem.info(path))
    tag = next((str(entry[name]).strip('"') for name in TAGS if entry.get(name)), "")
    size = int(entry["size"])
    return size, durable.digest({"checksum": tag or str(filesystem.checksum(path)), "bytes": size})


def check_file(file: File) -> None:
    """Compare a whole file with what was listed: a local one byte for byte, one in a store by its tag and size.

    Raises:
        ChangedInputError: it is another.
    """
    if storage.is_remote(file.url):
        if tag_of(file.url) != (file.bytes, file.sha256):
            raise ChangedInputError(file, ", by the store's tag and size")
        return
    fd = _open(file)
    try:  # not through `_Checked`, which takes longer to make than a small file to compare
        for number in range(file.bytes // BLOCK_BYTES + 1):
            if not _read_block(fd, file, number)[1]:
                _check_whole(file)
                return
    finally:
        os.close(fd)


def range_of(file: File, start: int, end: int) -> File:
    """The file as a task carries it that reads bytes `start` to `end`: with the digests of the blocks of these, of the
    one before and the one behind, and of the first, rather than of them all."""
    if not file.blocks:
        return file
    ((_, digests),) = file.blocks
    low, high = max(0, start - 1) // BLOCK_BYTES, end // BLOCK_BYTES + 2
    parts = ((0, digests[:DIGEST_BYTES]), (low, digests[low * DIGEST_BYTES : high * DIGEST_BYTES]))
    return replace(file, blocks=parts)


def open_checked(file: File) -> io.BufferedReader:
    """A stream over an input that gives no byte of a block that is not as it was listed; one in a store is compared by
    its tag and size, once.

    Raises:
        ChangedInputError: here or when it is read, the file is another.
    """
    if storage.is_remote(file.url):
        check_file(file)
        return cast("io.BufferedReader", storage.open_stream(file.url))
    return io.BufferedReader(_Checked(file), io.DEFAULT_BUFFER_SIZE)


class _Checked(io.RawIOBase):
    """A local file, read a block at a time."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._fd = _open(file)
        self._at, self._number, self._block = 0, -1, memoryview(b"")
        self._is_whole = False  # compared as a whole, for blocks whose digests are not at hand

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (0, self._at, self._file.bytes)[whence] + offset
        return self._at

    def readinto(self, target: Any) -> int:
        number, start = divmod(self._at, BLOCK_BYTES)
        if number != self._number:
            block, is_compared = _read_block(self._fd, self._file, number)
            if not is_compared and not self._is_whole:  # behind a line that is longer than blocks
                _check_whole(self._file)
                self._is_whole = True
            self._block, self._number = memoryview(block), number
        piece = self._block[start : start + len(target)]
        target[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


def _open(file: File) -> int:
    return os.open(storage.local_path(file.url), os.O_RDONLY | os.O_CLOEXEC)


def _read_block(fd: int, file: File, number: int) -> tuple[bytes, bool]:
    """A block, and whether it is what was listed or there is no digest of it; nothing behind the end of the file."""
    start = number * BLOCK_BYTES
    left = max(0, file.bytes - start)
    block = os.pread(fd, min(BLOCK_BYTES, left + 1), start)  # a byte more: it may have grown
    for first, digests in file.blocks:
        at = (number - first) * DIGEST_BYTES
        if 0 <= at < len(digests):
            if xxhash.xxh3_128_digest(block) != digests[at : at + DIGEST_BYTES]:
                raise ChangedInputError(file, f", behind byte {start:,}")
            return block, True
    return block, not block and not left


def _check_whole(file: File) -> None:
    if durable.sha256_file(storage.local_path(file.url)) != file.sha256:
        raise ChangedInputError(file)

"""Reads the tokens of shards from their files, each block verified when it is first touched.

Ten thousand shards open nothing at start: descriptors are opened when first read from, and at most MAX_OPEN_FILES of
a process stay open, the least recently used closed first. Reads are positional, so that threads share a descriptor.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer.shards import TokenShard
from tokenizer.shards.record import ShardError

MAX_OPEN_FILES = 512  # half of the usual limit of a process
MEND = "Restore the file from a copy, or encode its stage again."


class OpenFile:
    """A descriptor, closed when the last holder lets go of it: never while another thread reads."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        status = os.fstat(self.descriptor)
        self.version = (status.st_size, status.st_mtime_ns)


class FilePool:
    """The files that are open, at most `size` and one a thread that reads; keys are those of the files' owners."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._files: OrderedDict[int, OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: int) -> OpenFile | None:
        """The file of an owner if it is open; it is now the most recently used."""
        with self._lock:
            file = self._files.get(key)
            if file is not None:
                self._files.move_to_end(key)
            return file

    def put(self, key: int, file: OpenFile) -> None:
        """Keep a file open, instead of the least recently used where there are too many."""
        with self._lock:
            self._files[key] = file
            if len(self._files) > self.size:
                self._files.popitem(last=False)

    def forget(self, key: int) -> None:
        """Close the file of an owner that is gone. Takes no lock: a collection may run it while this thread holds
        it."""
        self._files.pop(key, None)


FILES = FilePool(MAX_OPEN_FILES)


class ShardReader:
    """The tokens of a shard, read with `pread`, its blocks (4 MiB) compared with their checksums when first touched.

    In the first epoch every block is hashed once: a flipped bit stops the run before its tokens train anything. Cost:
    2.5 ms a block with SHA instructions, whole blocks read where a window needs 4 KB, and one byte of memory a block.
    Reading is as fast as slicing a memory map, but a map counts every page ever touched as resident memory, up to the
    size of the corpus, and kills the process (SIGBUS) when a file is truncated under it; a read fails with the file's
    name.
    """

    def __init__(self, shard: TokenShard, verify: bool = True) -> None:
        self.shard = shard
        self.num_tokens = shard.num_tokens
        self.eod = shard.eod
        self.dtype = shard.dtype
        self.block_tokens = shard.meta.block_bytes // shard.dtype.itemsize
        self.is_checked = bytearray([not verify]) * len(shard.meta.block_sha256)
        self._version: tuple[int, int] | None = None  # of the file when it was first opened
        weakref.finalize(self, FILES.forget, id(self))

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens [start, stop).

        Raises:
            ShardError: they do not match their checksum, or the file ends before them, is gone or another one.
        """
        for block in range(start // self.block_tokens, -(-stop // self.block_tokens)):
            if not self.is_checked[block]:
                self._check(block)
        return self._read(start, stop)

    def _check(self, block: int) -> None:
        first = block * self.block_tokens
        tokens = self._read(first, min(first + self.block_tokens, self.num_tokens))
        if hashlib.sha256(tokens.data).hexdigest() != self.shard.meta.block_sha256[block]:
            raise ShardError(
                f"{self.shard.bin_path}: offset {block * self.shard.meta.block_bytes}: the checksum of block {block} "
                f"({tokens.nbytes:,} bytes) differs. {MEND}"
            )
        self.is_checked[block] = True

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        tokens = np.empty(stop - start, dtype=self.dtype)
        offset, end = start * tokens.itemsize, stop * tokens.itemsize
        try:
            file = FILES.get(id(self)) or self._open()
            offset += os.preadv(file.descriptor, [tokens.data], offset)
            while offset < end:  # rare: a read gives less only at the end of the file or at a signal
                num_bytes = os.preadv(file.descriptor, [tokens.view(np.uint8).data[offset - end :]], offset)
                if num_bytes == 0:
                    raise ShardError(f"{self.shard.bin_path}: ends at offset {offset}. {MEND}")
                offset += num_bytes
        except OSError as error:
            raise ShardError(f"{self.shard.bin_path}: cannot be read ({error.strerror}). {MEND}") from error
        return tokens

    def _open(self) -> OpenFile:
        """The file, if it is the one that was open before: what was checked may not change unseen."""
        file = OpenFile(self.shard.bin_path)
        if self._version is None:
            self._version = file.version
        if file.version != self._version:
            raise ShardError(
                f"{self.shard.bin_path}: was replaced or written to in use. Start again, from a checkpoint."
            )
        FILES.put(id(self), file)
        return file

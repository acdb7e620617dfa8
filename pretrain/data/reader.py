"""Reads the tokens of shards from their files, each block verified when it is first touched."""

from __future__ import annotations

import hashlib
import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenizer.shards import ShardError, TokenShard


class ShardReader:
    """The tokens of a shard, read with `pread`, its blocks (4 MiB) compared with their checksums when first touched.

    In the first epoch every block is hashed once: a flipped bit stops the run before its tokens train anything. Cost:
    2.5 ms a block with SHA instructions, whole blocks read where a window needs 4 KB, and one byte of memory a block.
    Reading is as fast as slicing a memory map, but a map counts every page ever touched as resident memory, up to the size
    of the corpus, and kills the process (SIGBUS) when a file is truncated under it; a read fails with the file's name.
    """

    def __init__(self, shard: TokenShard, verify: bool = True) -> None:
        self.shard = shard
        self.num_tokens = shard.num_tokens
        self.eod = shard.eod
        self.block_tokens = shard.meta.block_bytes // shard.dtype.itemsize
        self.is_checked = bytearray([not verify]) * len(shard.meta.block_sha256)
        self.descriptor = os.open(shard.bin_path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens [start, stop).

        Raises:
            ShardError: they do not match their checksum, or the file ends before them.
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
                f"({tokens.nbytes:,} bytes) differs. Restore the file from a copy, or encode its stage again."
            )
        self.is_checked[block] = True

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        tokens = np.empty(stop - start, dtype=self.shard.dtype)
        offset, left = start * tokens.itemsize, tokens.view(np.uint8).data
        while left.nbytes:
            num_bytes = os.preadv(self.descriptor, [left], offset)
            if num_bytes == 0:
                raise ShardError(f"{self.shard.bin_path}: ends at offset {offset}. Restore the file from a copy.")
            offset, left = offset + num_bytes, left[num_bytes:]
        return tokens

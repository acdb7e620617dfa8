"""Shards that exist only in memory or as arithmetic, and what a process holds."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pretrain.data import ShardReader, Stream
from tokenizer.shards import open_split

EOD = 0
PERIOD = 65_521  # of the tokens of a huge shard, a prime
LIBC = ctypes.CDLL(None)

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")


@dataclass
class ArrayShard:
    """A shard in memory."""

    array: NDArray[np.uint16]
    eod: int = EOD

    @property
    def num_tokens(self) -> int:
        return len(self.array)

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        assert 0 <= start < stop <= len(self.array)
        return self.array[start:stop]


@dataclass
class HugeShard:
    """A shard that exists only as arithmetic: its token at place p is (base + p) mod PERIOD."""

    num_tokens: int
    base: int = 0
    eod: int = 65_535

    def tokens(self, start: int, stop: int) -> NDArray[Any]:
        assert 0 <= start < stop <= self.num_tokens
        first = (self.base + start) % PERIOD
        return ((first + np.arange(stop - start)) % PERIOD).astype(np.uint16)


def shards_of(sizes: list[int]) -> list[ArrayShard]:
    """Shards whose tokens count up from 0 through all of them, so that a token's value is its place."""
    return cut(np.arange(sum(sizes)), sizes)


def cut(stream: Any, sizes: list[int]) -> list[ArrayShard]:
    """A stream of tokens as shards of these sizes."""
    return [ArrayShard(part.astype(np.uint16)) for part in np.split(np.asarray(stream), np.cumsum(sizes)[:-1])]


def stream_of(folder: Path, split: str, sequence_length: int, seed: int = 0, verify: bool = True) -> Stream:
    """The token shards of a split, as a run reads them when they are its only corpus."""
    return Stream([ShardReader(shard, verify) for shard in open_split(folder, split)], sequence_length, seed)


def resident_kib() -> int:
    """Resident memory that this process cannot give back, mapped files included.

    What the allocator holds for later is given back first: room that another test left would hide growth.
    """
    gc.collect()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def num_descriptors() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def num_maps() -> int:
    """Memory maps of this process."""
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)

"""Training samples out of token shards: every batch is a pure function of integers.

The shards of a split, one after another, are one stream of tokens. Window `w` is the tokens [w T, w T + T +
1): T inputs and, one place later, T targets, so that neighbouring windows share one token and every token but
the first is a target once an epoch. Sample `s` of a run is window `permute(s mod n)` under the key of epoch
`s div n`. The permutation is computed, not stored (an alternating Feistel network, walking cycles until it
falls below n, fewer than 2 walks on average): nothing is built at start, nothing kept in memory, a loader's
state is one integer, and resuming, changing the number of ranks or asking "what did step N see?" is
arithmetic. Megatron's loader builds document, sample and shuffle indices on rank 0 instead, 8 to 16 bytes a
sample.

What it costs: the last partial window is left out of every epoch (fewer than T tokens, `num_dropped_tokens`),
and windows ignore document boundaries; `document_ids` tells a mask where they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from corpus.engine.durable import digest
from corpus.engine.errors import UsageError
from pretrain.data.documents import document_ids
from pretrain.data.order import Int64Array, epoch_keys, permute
from pretrain.data.reader import ShardReader
from tokenizer.shards import TokenShard, open_split

MAX_WINDOWS = 2**62  # their numbers, and the power of two above them, stay inside 64 bits


class Shard(Protocol):
    """What the loader needs of `tokenizer.shards.TokenShard`."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def eod(self) -> int: ...
    def tokens(self, start: int, stop: int) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Batch:
    """Samples of T tokens, int64 [samples, T]; `targets[b, t]` is the token that follows `tokens[b, t]`.

    `document_ids` (int32) numbers the documents of a window from 0: tokens of one document share a number,
    its end-of-document token included, so that a mask may keep attention inside a document.
    """

    tokens: Int64Array
    targets: Int64Array
    document_ids: NDArray[np.int32]


@dataclass(frozen=True)
class Span:
    """The tokens `[start, stop)` of the shard number `shard`."""

    shard: int
    start: int
    stop: int


class Loader:
    """The samples of one split, in an order that depends on nothing but `seed` and the number of windows."""

    def __init__(self, shards: Sequence[Shard], sequence_length: int, seed: int = 0, name: str = "the split") -> None:
        if sequence_length < 1:
            raise UsageError(f"sequence_length is {sequence_length}: it must be 1 or more")
        self.shards = list(shards)
        self.sequence_length = sequence_length
        self.seed = seed
        self.starts = [0, *accumulate(shard.num_tokens for shard in self.shards)]  # places in the stream
        self.num_tokens = self.starts[-1]
        self.num_windows = max(self.num_tokens - 1, 0) // sequence_length
        if self.num_windows == 0:
            raise UsageError(
                f"{name} has {self.num_tokens} tokens in {len(self.shards)} shards: one sample of "
                f"sequence_length {sequence_length} needs {sequence_length + 1}. "
                "Use a shorter sequence_length or more text."
            )
        if self.num_windows > MAX_WINDOWS:
            raise UsageError(f"{name} has {self.num_windows} windows: {MAX_WINDOWS} at most")
        self.num_dropped_tokens = self.num_tokens - 1 - self.num_windows * sequence_length

    def batch(self, start: int, count: int) -> Batch:
        """The samples [start, start + count) of the run, epoch after epoch without end.

        A rank that trains on a part of the global batch asks for its own sub-range.
        """
        window_tokens = np.empty((count, self.sequence_length + 1), dtype=np.int64)
        for row, window in zip(window_tokens, self.windows(start, count).tolist(), strict=True):
            filled = 0
            for span in self.spans(window):
                size = span.stop - span.start
                row[filled : filled + size] = self.shards[span.shard].tokens(span.start, span.stop)
                filled += size
        tokens, targets = window_tokens[:, :-1], window_tokens[:, 1:]
        return Batch(tokens, targets, document_ids(tokens, self.shards[0].eod))

    def windows(self, start: int, count: int) -> Int64Array:
        """The window of each of the samples [start, start + count)."""
        if start < 0 or count < 0:
            raise ValueError(f"samples [{start}, {start + count}): a sample's number is never negative")
        parts = [np.empty(0, dtype=np.int64)]
        while count > 0:
            epoch, first = divmod(start, self.num_windows)
            size = min(count, self.num_windows - first)
            indices = np.arange(first, first + size, dtype=np.uint64)
            parts.append(permute(indices, self.num_windows, epoch_keys(self.seed, epoch)))
            start, count = start + size, count - size
        return np.concatenate(parts)

    def spans(self, window: int) -> Iterator[Span]:
        """Where the T + 1 tokens of a window lie: several spans where it crosses into the next shard."""
        first = window * self.sequence_length
        last = first + self.sequence_length + 1
        while first < last:
            shard = bisect_right(self.starts, first) - 1  # of equal starts the last: steps over empty shards
            stop = min(last, self.starts[shard + 1])
            yield Span(shard, first - self.starts[shard], stop - self.starts[shard])
            first = stop


def open_loader(data: Path, split: str, sequence_length: int, seed: int, verify: bool = True) -> Loader:
    """The loader over the committed token shards of one split below `data`.

    Raises:
        ShardError: a shard is missing, foreign or damaged; with `verify`, also while reading, at a flipped bit.
        UsageError: the split is shorter than one sample.
    """
    shards = [ShardReader(shard, verify) for shard in open_split(data, split)]
    return Loader(shards, sequence_length, seed, name=f"{data} ({split})")


def data_digest(shards: Sequence[TokenShard]) -> str:
    """What a split is known by in checkpoints: a digest of the checksums of its tokens, in order."""
    return digest([shard.meta.block_sha256 for shard in shards])

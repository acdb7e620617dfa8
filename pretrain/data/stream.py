"""The samples of one corpus: windows of its stream of tokens, epoch after epoch, each epoch in a keyed order.

The shards of a corpus, one after another, are one stream of tokens. Window `w` is the tokens [w T, w T + T + 1): T
inputs and, one place later, T targets, so that neighbouring windows share one token and every token but the first is
a target once an epoch. Sample `s` of the corpus is window `permute(s mod n)` under the key of epoch `s div n`: nothing
is built at start, and which window a sample is, or which samples a window was, is arithmetic.

What it costs: the last partial window is left out of every epoch (fewer than T tokens, `num_dropped_tokens`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data.order import Int64Array, UInt64Array, epoch_keys, permute, unpermute

MAX_TOKENS = 2**62  # their places, and the power of two above the number of windows, stay inside 64 bits

LOOK_AHEAD = 512  # samples whose order is computed at once: a few cost nearly as much


class Shard(Protocol):
    """What the loader needs of `tokenizer.shards.TokenShard`."""

    @property
    def num_tokens(self) -> int: ...
    @property
    def eod(self) -> int: ...
    def tokens(self, start: int, stop: int) -> NDArray[Any]: ...


class Span(NamedTuple):
    """The tokens `[start, stop)` of the shard number `shard` of a stream."""

    shard: int
    start: int
    stop: int


class EpochOrder:
    """The windows of one corpus, epoch after epoch, in an order that depends on nothing but seed, name and their
    number.

    `name` tells the corpora of a blend apart; it is empty where a run has only one.
    """

    def __init__(self, num_samples: int, seed: int, name: str) -> None:
        self.num_samples = num_samples  # of one epoch
        self.seed = seed
        self.name = name
        self._ahead = 0, np.empty(0, dtype=np.int64)  # a sample, and the windows from it on

    def windows(self, start: int, count: int) -> Int64Array:
        """The window of each of the samples [start, start + count)."""
        if count > LOOK_AHEAD:
            return self._order(start, count)
        first, order = self._ahead
        if not first <= start <= start + count <= first + len(order):
            left = self.num_samples - start % self.num_samples  # in this epoch: a short one has many keys to hash
            first, order = self._ahead = start, self._order(start, max(count, min(left, LOOK_AHEAD)))
        return order[start - first : start - first + count]

    def samples_of(self, windows: UInt64Array, limit: int) -> list[int]:
        """The samples below `limit` that are one of some windows, in ascending order: the inverse of `windows`."""
        found: list[int] = []
        for epoch in range(-(-limit // self.num_samples)):
            keys = epoch_keys(self.seed, epoch, self.name)
            indices = np.sort(unpermute(windows, self.num_samples, keys)).tolist()
            found += [epoch * self.num_samples + index for index in indices]
        return [sample for sample in found if sample < limit]

    def _order(self, start: int, count: int) -> Int64Array:
        parts = [np.empty(0, dtype=np.int64)]
        while count > 0:
            epoch, first = divmod(start, self.num_samples)
            size = min(count, self.num_samples - first)
            indices = np.arange(first, first + size, dtype=np.uint64)
            parts.append(permute(indices, self.num_samples, epoch_keys(self.seed, epoch, self.name)))
            start, count = start + size, count - size
        order = np.concatenate(parts)
        order.flags.writeable = False
        return order


class Stream(EpochOrder):
    """One corpus as windows of its stream of tokens."""

    def __init__(self, shards: Sequence[Shard], sequence_length: int, seed: int = 0, name: str = "") -> None:
        self.shards = list(shards)
        self.sequence_length = sequence_length
        starts = [0, *accumulate(shard.num_tokens for shard in self.shards)]
        self.num_tokens = starts[-1]
        super().__init__(max(self.num_tokens - 1, 0) // sequence_length, seed, name)
        label = f"corpus {name}" if name else "the corpus"
        if self.num_samples == 0:
            raise UsageError(
                f"{label} has {self.num_tokens} tokens in {len(self.shards)} shards: one sample of "
                f"sequence_length {sequence_length} needs {sequence_length + 1}. "
                "Use a shorter sequence_length or more text."
            )
        if self.num_tokens > MAX_TOKENS:
            raise UsageError(f"{label} has {self.num_tokens} tokens: {MAX_TOKENS} at most. Split it into several.")
        self.starts: Int64Array = np.array(starts, dtype=np.int64)  # of the shards, as places in the stream
        self.num_dropped_tokens = self.num_tokens - 1 - self.num_samples * sequence_length

    def spans(self, start: int, count: int) -> list[list[Span]]:
        """Where the T + 1 tokens of each of the samples [start, start + count) lie.

        Several spans where a window crosses into the next shard.
        """
        firsts = self.windows(start, count) * self.sequence_length
        shards = self.starts.searchsorted(firsts, side="right") - 1  # of equal starts the last: steps over empty shards
        begins = firsts - self.starts[shards]
        ends = begins + (self.sequence_length + 1)
        is_whole = ends <= self.starts[shards + 1] - self.starts[shards]
        spans = [[Span(*place)] for place in zip(shards.tolist(), begins.tolist(), ends.tolist(), strict=True)]
        for index in np.flatnonzero(~is_whole).tolist():
            spans[index] = list(self._cross(int(firsts[index])))
        return spans

    def _cross(self, first: int) -> Iterator[Span]:
        """The spans of the window that begins at a place of the stream."""
        last = first + self.sequence_length + 1
        while first < last:
            shard = int(self.starts.searchsorted(first, side="right")) - 1
            base, stop = int(self.starts[shard]), min(last, int(self.starts[shard + 1]))
            yield Span(shard, first - base, stop - base)
            first = stop

    def samples(self, shard: int, start: int, stop: int, limit: int) -> list[int]:
        """The samples below `limit` that hold one of the tokens [start, stop) of a shard, in ascending order.

        The inverse of `spans`: a token that is the last target of one window and the first input of the next is in
        both. Costs O(stop - start) per T tokens and epoch.
        """
        if start == stop:
            return []
        base = int(self.starts[shard])
        first = max(0, -(-(base + start) // self.sequence_length) - 1)
        last = min(self.num_samples - 1, (base + stop - 1) // self.sequence_length)
        return self.samples_of(np.arange(first, last + 1, dtype=np.uint64), limit)

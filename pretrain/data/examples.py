"""Examples for fine-tuning as samples: whole ones packed into rows, and of their tokens only those that count are
targets.

A folder of examples is a folder of token shards, one sequence an example, and more:

    EXAMPLES.json      what makes it one: how they were made, and the SHA-256 of each of these:
    data/P.counted     of each shard P one bit a token, the first in the highest bit of its byte: whether a model is
                       trained to say this token

A row of T + 1 tokens is an end-of-document token, as stands before every text, then examples, then end-of-document
tokens to its end. Which examples share a row is fixed for a run: in an order that its seed draws, each goes where it
leaves the least room (`best_fit`). Rows come in the order of windows: epoch after epoch, each in a keyed order (see
`order`), so that every example is seen once an epoch and the state of a run stays one integer.

Memory: 16 bytes an example, 8 a row, and one bit a token.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from corpus.engine import durable
from corpus.engine.config import Strict, parse
from corpus.engine.errors import UsageError
from pretrain.data.documents import Int32Array, segment_starts
from pretrain.data.order import Int64Array, epoch_keys, permute
from pretrain.data.reader import ShardReader
from pretrain.data.stream import EpochOrder, Shard, Span
from tokenizer.shards import TokenShard
from tokenizer.shards.record import ShardError

COUNTED = ".counted"  # what P.counted ends with
RECORD = "EXAMPLES.json"

BoolArray = NDArray[np.bool_]
CountOrZero = Annotated[int, Field(ge=0)]


class SplitRecord(Strict):
    """What one split of a folder of examples holds."""

    examples: CountOrZero
    tokens: CountOrZero
    counted_tokens: CountOrZero
    counted_characters: CountOrZero  # of the answers


class Record(Strict):
    """EXAMPLES.json. Lines = the examples of all splits + skipped + dropped."""

    format: Literal[1] = 1
    made_of: str  # digest of what they were made of, and how
    counted: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]  # SHA-256 by shard
    splits: dict[str, SplitRecord]
    lines: CountOrZero
    skipped: CountOrZero  # lines that are no examples
    dropped: CountOrZero  # examples longer than a row
    cut: CountOrZero  # examples whose prompt lost its beginning


def read_record(folder: Path) -> Record | None:
    """What a folder says of its examples; None where it is a corpus of text.

    Raises:
        WenhaiError: it is not what we write.
    """
    path = folder / RECORD
    return parse(Record, durable.read_json(path), str(path)) if path.is_file() else None


class ExampleShard(Shard, Protocol):
    """A shard that knows which of its tokens count."""

    def counted(self, start: int, stop: int) -> BoolArray: ...


class ExampleReader(ShardReader):
    """The tokens of a shard of examples, and which of them count.

    Args:
        shard: Of examples.
        counted_sha256: Of its bits, as the record of the folder says.

    Raises:
        WenhaiError: the bits are missing, or not those.
    """

    def __init__(self, shard: TokenShard, counted_sha256: str, verify: bool = True) -> None:
        super().__init__(shard, verify)
        path = shard.prefix.with_name(shard.prefix.name + COUNTED)
        data = durable.read_bytes(path, -(-self.num_tokens // 8))
        if hashlib.sha256(data).hexdigest() != counted_sha256:
            raise ShardError(
                f"{path}: was altered: its SHA-256 is not as recorded. Restore it, or make the examples again."
            )
        self._bits = np.frombuffer(data, dtype=np.uint8)

    def counted(self, start: int, stop: int) -> BoolArray:
        """Whether each of the tokens [start, stop) is one that a model is trained to say."""
        first = start // 8
        return np.unpackbits(self._bits[first : -(-stop // 8)])[start - 8 * first : stop - 8 * first].view(np.bool_)


class Packs(EpochOrder):
    """The examples of one corpus, packed.

    Args:
        shards: Of examples.
        lengths: Of each shard the tokens of each of its sequences, end-of-document token included.
        sequence_length: T, which no example exceeds.
        seed, name: As of `Stream`.

    Raises:
        UsageError: an example is longer than a row, or there is none.
    """

    def __init__(
        self,
        shards: Sequence[ExampleShard],
        lengths: Sequence[NDArray[Any]],
        sequence_length: int,
        seed: int = 0,
        name: str = "",
    ) -> None:
        sizes = np.concatenate([np.empty(0, dtype=np.int32), *lengths])
        label = f"corpus {name}" if name else "the corpus"
        if not len(sizes):
            raise UsageError(f"{label} has no example. Give some.")
        if (longest := int(sizes.max())) > sequence_length:
            num_longer = int((sizes > sequence_length).sum())
            raise UsageError(
                f"{label}: {num_longer:,} of {len(sizes):,} examples are longer than a row of {sequence_length:,} "
                f"tokens, the longest has {longest:,}. Use a longer model.sequence_length, or make the examples anew "
                "with --too-long."
            )
        self._firsts = np.cumsum([0, *map(len, lengths)])  # of the shards, as numbers of examples
        self._starts = [np.insert(np.cumsum(each, dtype=np.int64), 0, 0) for each in lengths]  # and the end
        drawn = permute(np.arange(len(sizes), dtype=np.uint64), len(sizes), epoch_keys(seed, 0, f"{name} packs"))
        chosen = best_fit(sizes[drawn], sequence_length)
        self._packs = np.empty(len(sizes), dtype=np.int32)  # of each example
        self._packs[drawn] = chosen
        self._examples = drawn[np.argsort(chosen, kind="stable")].astype(np.int32)  # of pack 0, of pack 1, ...
        self._bounds = np.insert(np.cumsum(np.bincount(chosen)), 0, 0)  # of the packs in `_examples`
        self.shards: list[Shard] = list(shards)
        self._counting = list(shards)  # the same, as what they are
        self.sequence_length = sequence_length
        self.num_tokens = int(sizes.sum())
        super().__init__(len(self._bounds) - 1, seed, name)

    def spans(self, start: int, count: int) -> list[list[Span]]:
        """Where the examples of each of the samples [start, start + count) lie."""
        return [list(self._spans(window)) for window in self.windows(start, count).tolist()]

    def fill(self, spans: Sequence[Span], tokens: Int64Array, is_counted: BoolArray) -> None:
        """Write the examples of one sample into a row of T + 1 end-of-document tokens, and which of its tokens
        count."""
        is_counted[:] = False
        filled = 1
        for shard, start, stop in spans:
            place = slice(filled, filled + stop - start)
            tokens[place] = self._counting[shard].tokens(start, stop)
            is_counted[place] = self._counting[shard].counted(start, stop)
            filled = place.stop

    def samples(self, shard: int, start: int, stop: int, limit: int) -> list[int]:
        """The samples below `limit` that hold one of the tokens [start, stop) of a shard, in ascending order."""
        if start == stop:
            return []
        first, last = self._starts[shard].searchsorted([start, stop - 1], side="right") - 1 + self._firsts[shard]
        return self.samples_of(np.unique(self._packs[first : last + 1]).astype(np.uint64), limit)

    def _spans(self, pack: int) -> Iterator[Span]:
        for example in self._examples[self._bounds[pack] : self._bounds[pack + 1]].tolist():
            shard = int(self._firsts.searchsorted(example, side="right")) - 1
            number = example - self._firsts[shard]
            start, stop = self._starts[shard][number : number + 2].tolist()
            yield Span(shard, start, stop)


def best_fit(sizes: Int32Array, capacity: int) -> Int32Array:
    """The bin of each size, in turn: of the bins with room for it the fullest, of equals the latest; else a new one.

    Needs at most 1.7 times the bins of the best packing (Johnson et al. 1974), and for many small sizes hardly more
    than it. Which rooms there are is the bits of one integer, so that a size costs the same however many bins are open.
    The bins of one room are a chain: the latest, and of each bin the one before it.

    >>> best_fit(np.array([6, 5, 4, 5, 3], dtype=np.int32), 10).tolist()
    [0, 1, 0, 1, 2]
    """
    latest, before = array("i", [-1]) * (capacity + 1), array("i")
    rooms = 0  # bit r: there is a bin of room r
    chosen = array("i")
    for size in np.ascontiguousarray(sizes, dtype=np.intc).data:
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            own = latest[room]
            latest[room] = before[own]
            if before[own] < 0:
                rooms ^= 1 << room
        else:
            room, own = capacity, len(before)
            before.append(-1)
        chosen.append(own)
        before[own] = latest[room - size]
        latest[room - size] = own
        rooms |= 1 << (room - size)
    return np.frombuffer(chosen, dtype=np.int32) if chosen else np.empty(0, dtype=np.int32)


def answer_prefixes(ids: Int32Array, is_counted: BoolArray) -> Int32Array:
    """Where the prompt of each token's document ends, as a place in its row: int32 [B, T].

    A prompt is what stands before the first token that counts; a document with none has no prompt, and what stands
    before the first document belongs to that.

    Args:
        ids: int32 [B, T], the documents of the row.
        is_counted: [B, T + 1], of the row's tokens.
    """
    length = ids.shape[1]
    starts = segment_starts(ids)
    places = np.where(is_counted[:, :-1], np.arange(length), length)  # beyond all
    ends = np.minimum.reduceat(places.reshape(-1), starts)
    ends = np.where(ends < length, ends, starts % length)
    found: Int32Array = np.repeat(ends, np.diff(starts, append=ids.size)).astype(np.int32).reshape(ids.shape)
    found[:, 0] = found[:, min(1, length - 1)]
    return found


def open_packs(
    shards: Sequence[TokenShard], record: Record, sequence_length: int, seed: int, name: str = "", verify: bool = True
) -> Packs:
    """The committed shards of one split of a folder of examples.

    Raises:
        WenhaiError: a file is missing or damaged; or as `Packs`.
    """
    readers = []
    for shard in shards:
        if shard.prefix.name not in record.counted:
            raise ShardError(f"{shard.prefix}: {RECORD} does not list it. Make the examples again.")
        readers.append(ExampleReader(shard, record.counted[shard.prefix.name], verify))
    return Packs(readers, [shard.lengths for shard in shards], sequence_length, seed, name)

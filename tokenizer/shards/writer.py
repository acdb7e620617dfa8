"""Writes token shards: ids are range-checked before they are narrowed, and the record comes last.

numpy narrows silently (70000 becomes 4464 in uint16), so the check is on the array as it came. Tokens go to disk in
blocks of 4 MiB, each hashed once on its way; in memory stay 4 bytes a document and 64 characters a block, and what one
call adds.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corpus.engine import durable
from tokenizer.shards.megatron_index import index_parts
from tokenizer.shards.record import (
    BLOCK_BYTES,
    DTYPES,
    FORMAT_NAME,
    FORMAT_VERSION,
    ShardError,
    ShardMeta,
    Tokens,
    dtype_name,
    shard_paths,
)

MAX_LENGTH = 2**31 - 1  # of a sequence, its end-of-document token included: the index holds int32


class ShardWriter:
    """Writes the three files of a shard to given paths; use it as a context manager, the record is written at its end.

    `create_shard` does it durably under a prefix; stages pass the temporary paths of their outputs.
    """

    def __init__(
        self,
        paths: tuple[Path, Path, Path],
        *,
        split: str,
        vocab_size: int,
        eod: int,
        tokenizer_sha256: str,
        recipe: str = "",
    ) -> None:
        self._bin_path, self._idx_path, self._meta_path = paths
        self._identity: dict[str, Any] = {"split": split, "vocab_size": vocab_size, "eod": eod}
        self._identity |= {"tokenizer_sha256": tokenizer_sha256, "recipe": recipe}
        self.vocab_size, self.eod = vocab_size, eod
        self.dtype_name = dtype_name(vocab_size)
        narrow([eod], vocab_size, "the end-of-document token")
        self._lengths = array("i")
        self._num_characters, self._max_id = 0, -1
        self._buffer, self._blocks, self._bin_bytes = bytearray(), list[str](), 0

    def __enter__(self) -> ShardWriter:
        self._file = open(self._bin_path, "wb")
        return self

    def add(self, ids: ArrayLike, document: str = "", num_characters: int = 0) -> None:
        """Append one document, without its end-of-document token: it is added here.

        Raises:
            ShardError: an id is negative, not below the vocabulary, or the end-of-document token itself.
        """
        tokens = narrow(ids, self.vocab_size, f"document {document or len(self._lengths)}")
        if len(tokens) >= MAX_LENGTH:
            raise ShardError(
                f"document {document}: {len(tokens):,} tokens; a sequence holds {MAX_LENGTH - 1:,}. Split it."
            )
        if (tokens == self.eod).any():
            raise ShardError(
                f"document {document}: holds the end-of-document token {self.eod}. Encode text with "
                "`tokenizer.model.Tokenizer`, which never produces it."
            )
        self._append(np.append(tokens, tokens.dtype.type(self.eod)), np.array([len(tokens) + 1]), num_characters)

    def add_many(self, ids: NDArray[Any], lengths: NDArray[np.int64], num_characters: int = 0) -> None:
        """Append documents that stand one behind another, each with its end-of-document token; `lengths` counts it.

        Raises:
            ShardError: an id is negative or not below the vocabulary, a sequence is too long, or end-of-document tokens
                do not stand at the ends of the documents, and there alone.
        """
        if not len(lengths) and not len(ids):
            return
        first, ends = len(self._lengths), np.cumsum(lengths)
        where = f"documents {first:,} to {first + len(lengths) - 1:,}"
        tokens = narrow(ids, self.vocab_size, where)
        if int(lengths.max(initial=0)) > MAX_LENGTH:
            raise ShardError(f"{where}: a sequence of more than {MAX_LENGTH:,} tokens. Split it.")
        if len(tokens) != int(lengths.sum()) or not np.array_equal(np.flatnonzero(tokens == self.eod), ends - 1):
            raise ShardError(
                f"{where}: the end-of-document token {self.eod} does not stand at the end of each, and there alone. "
                "Encode text with `tokenizer.model.Tokenizer`, which never produces it."
            )
        self._append(tokens, lengths, num_characters)

    def _append(self, tokens: Tokens, lengths: NDArray[np.int64], num_characters: int) -> None:
        """Append sequences that are known to be right."""
        self._buffer += tokens.data
        self._lengths.frombytes(lengths.astype(np.int32).tobytes())
        self._num_characters += num_characters
        self._max_id = max(self._max_id, int(tokens.max()))
        while len(self._buffer) >= BLOCK_BYTES:
            self._write_block(BLOCK_BYTES)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None and self._buffer:
                self._write_block(len(self._buffer))
        if kind is None:
            self._write_records()

    def _write_block(self, size: int) -> None:
        block = bytes(self._buffer[:size])
        self._file.write(block)
        self._blocks.append(hashlib.sha256(block).hexdigest())
        self._bin_bytes += size
        del self._buffer[:size]

    def _write_records(self) -> None:
        hasher, num_sequences = hashlib.sha256(), len(self._lengths)
        with open(self._idx_path, "wb") as file:
            for part in index_parts(np.frombuffer(self._lengths, np.int32), self.dtype_name):
                file.write(part)
                hasher.update(part)
            idx_bytes = file.tell()
        meta = ShardMeta(
            **self._identity,
            dtype=self.dtype_name,
            num_sequences=num_sequences,
            num_documents=num_sequences,
            num_tokens=self._bin_bytes // DTYPES[self.dtype_name].itemsize,
            num_characters=self._num_characters,
            max_id=self._max_id,
            bin_bytes=self._bin_bytes,
            idx_bytes=idx_bytes,
            idx_sha256=hasher.hexdigest(),
            block_bytes=BLOCK_BYTES,
            block_sha256=tuple(self._blocks),
        )
        record = {"format": FORMAT_NAME, "version": FORMAT_VERSION} | asdict(meta)
        self._meta_path.write_bytes(durable.canonical_json(record) + b"\n")  # equal shards have equal records


@contextmanager
def create_shard(prefix: Path, **identity: Any) -> Iterator[ShardWriter]:
    """A `ShardWriter` whose three files appear under `prefix` when the block ends, the record last."""
    with ExitStack() as stack:
        meta, idx, tokens = (stack.enter_context(durable.commit(path)) for path in reversed(shard_paths(prefix)))
        with ShardWriter((tokens, idx, meta), **identity) as writer:
            yield writer


def narrow(ids: ArrayLike, vocab_size: int, where: str) -> Tokens:
    """`ids` in the shard's dtype, a view where they have it, their range checked first: numpy casts 70000 to 4464
    without a word.

    Raises:
        ShardError: not one-dimensional integers, or an id outside 0..vocab_size-1; `where` names the document.
    """
    values = np.asarray(ids)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        raise ShardError(f"{where}: token ids are not a list of integers but {values.dtype} of shape {values.shape}.")
    if values.size:
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= vocab_size:
            bad = low if low < 0 else high
            raise ShardError(
                f"{where}: token id {bad} is outside 0..{vocab_size - 1}. Encode with the tokenizer whose "
                "vocabulary the shard declares."
            )
    return values.astype(DTYPES[dtype_name(vocab_size)], copy=False)

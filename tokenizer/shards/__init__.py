"""Token shards: the format in which the corpus meets the trainer. Standard library, numpy and the engine's basics only.

A shard is a prefix P with four files (`tokenizer.shards.writer` writes the first three):

    P.bin           the tokens, little-endian uint16 (vocabulary < 65,500) or int32, one document after another
    P.idx           Megatron's index v1, byte for byte: Megatron-LM, NeMo and GPT-NeoX open the pair as it is
    P.meta.json     the commit record, written last: which tokenizer, end-of-document id, counts, checksums
    P.docs.parquet  row i = sequence i: document id, url, source (see `tokenizer.shards.provenance`, not read here)

One document is one sequence; each ends with the end-of-document token, which no text produces.

What is checked when: opening reads the record (is it a record, does it agree with itself and with the manifest), the
sizes of both files and the header of the index, so that a missing, foreign, truncated or extended part is refused
before any work begins; it maps nothing and holds no file. The tables of the index are mapped and checked whole
when one of them is first needed (`tokenizer.shards.index`), tokens are mapped when they are first asked for. Checksums
of the tokens (SHA-256 of each 4 MiB) are the work of `verify()`, which reads everything. A file that is truncated while
it is mapped still ends the process (SIGBUS): committed shards are never written to.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpus.engine import durable
from tokenizer.shards.index import Tables, check_header, check_tables, map_tables
from tokenizer.shards.manifest import listed_shards
from tokenizer.shards.record import DTYPES, MEND, ShardError, Tokens, read_meta, refuse, shard_paths

SPLITS = ("train", "validation")
MAPPED_SHARDS = 128  # at most so many are mapped at a time, those used last: a map holds a file descriptor


class TokenShard:
    """One committed shard, read-only; opening costs its record and two sizes, whatever the number of documents.

    Args:
        prefix: of its files.
        record_sha256: what a manifest says of its record.

    Raises:
        ShardError: a file is missing, foreign, truncated, extended, or disagrees with its record. What is wrong inside
            the index is raised by whichever method needs it first.
    """

    def __init__(self, prefix: str | Path, record_sha256: str | None = None) -> None:
        self.prefix = prefix if isinstance(prefix, Path) else Path(prefix)
        name = str(prefix)  # not the paths: of ten thousand shards they cost as much as the records
        self.meta = read_meta(f"{name}.meta.json", record_sha256)
        self.dtype = DTYPES[self.meta.dtype]
        _check_size(f"{name}.bin", self.meta.bin_bytes)
        _check_size(f"{name}.idx", self.meta.idx_bytes)
        check_header(f"{name}.idx", self.meta)
        self.is_index_checked = False

    def __reduce__(self) -> tuple[type[TokenShard], tuple[Path]]:
        return TokenShard, (self.prefix,)  # a worker maps the files again; pickling a map would copy its tokens

    def __repr__(self) -> str:
        return f"TokenShard({str(self.prefix)!r}, {self.num_sequences:,} sequences, {self.num_tokens:,} tokens)"

    @property
    def bin_path(self) -> Path:
        return shard_paths(self.prefix)[0]

    @property
    def idx_path(self) -> Path:
        return shard_paths(self.prefix)[1]

    @property
    def meta_path(self) -> Path:
        return shard_paths(self.prefix)[2]

    @property
    def num_tokens(self) -> int:
        return self.meta.num_tokens

    @property
    def num_sequences(self) -> int:
        return self.meta.num_sequences

    @property
    def eod(self) -> int:
        return self.meta.eod

    @property
    def vocab_size(self) -> int:
        return self.meta.vocab_size

    @property
    def tokenizer_sha256(self) -> str:
        return self.meta.tokenizer_sha256

    @property
    def identity(self) -> tuple[str, int, int]:
        """What shards that are trained on together must share."""
        return self.tokenizer_sha256, self.eod, self.vocab_size

    @property
    def lengths(self) -> NDArray[np.int32]:
        """int32[S], the tokens of each sequence, a view of the map."""
        return _tables(self).lengths

    @property
    def pointers(self) -> NDArray[np.int64]:
        """int64[S], where each sequence begins in `P.bin`, in bytes."""
        return _tables(self).pointers

    @property
    def documents(self) -> NDArray[np.int64]:
        """int64[S + 1], Megatron's document table: 0, 1, ..., S."""
        return _tables(self).documents

    def tokens(self, start: int, stop: int) -> Tokens:
        """The tokens [start, stop) of the shard, a view of the map: [stop - start], uint16 or int32."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"{self.bin_path}: tokens [{start}, {stop}) of {self.num_tokens}")
        return _tokens(self)[start:stop]

    def sequence(self, index: int) -> Tokens:
        """The tokens of sequence `index`, its end-of-document token included."""
        start, stop = self.bounds(index)
        return _tokens(self)[start:stop]

    def bounds(self, index: int) -> tuple[int, int]:
        """The token offsets [start, stop) of sequence `index`."""
        if not 0 <= index < self.num_sequences:
            raise IndexError(f"{self.idx_path}: sequence {index} of {self.num_sequences}")
        start = int(self.pointers[index]) // self.dtype.itemsize
        return start, start + int(self.lengths[index])

    def sequence_of(self, offset: int) -> int:
        """The sequence that holds the token at `offset`."""
        if not 0 <= offset < self.num_tokens:
            raise IndexError(f"{self.bin_path}: token {offset} of {self.num_tokens}")
        return int(np.searchsorted(self.pointers, offset * self.dtype.itemsize, side="right")) - 1

    def verify(self) -> None:
        """Read everything: checksums of index and tokens, and that no token lies outside the vocabulary.

        Raises:
            ShardError: names the file and the offset of the first bad block.
        """
        if durable.sha256_file(self.idx_path) != self.meta.idx_sha256:
            refuse(self.idx_path, 0, "the checksum of the index does not match its record")
        _tables(self)  # is checked when it is mapped
        max_id = -1
        with open(self.bin_path, "rb") as file:
            for number, expected in enumerate(self.meta.block_sha256):
                block, offset = file.read(self.meta.block_bytes), number * self.meta.block_bytes
                if hashlib.sha256(block).hexdigest() != expected:
                    refuse(self.bin_path, offset, f"the checksum of block {number} ({len(block):,} bytes) differs")
                tokens = np.frombuffer(block, dtype=self.dtype)
                if int(tokens.min()) < 0 or int(tokens.max()) >= self.vocab_size:
                    refuse(self.bin_path, offset, f"block {number} holds ids outside 0..{self.vocab_size - 1}")
                max_id = max(max_id, int(tokens.max()))
            if file.read(1):
                refuse(self.bin_path, self.meta.bin_bytes, "the file is longer than its record says")
        if max_id != self.meta.max_id:
            refuse(self.meta_path, 0, f"max_id is {self.meta.max_id} but the largest token is {max_id}")


def _check_size(path: str, expected: int) -> None:
    try:
        found = os.stat(path)
    except OSError as error:
        raise ShardError(f"{path}: cannot be read ({error.strerror}). {MEND}") from error
    if found.st_size != expected:
        refuse(path, min(found.st_size, expected), f"{found.st_size:,} bytes, but its record says {expected:,}")
    if not stat.S_ISREG(found.st_mode):  # of a pipe without a writer, reading would not end
        refuse(path, 0, "this is no file")


@lru_cache(maxsize=MAPPED_SHARDS)
def _tables(shard: TokenShard) -> Tables:
    """The index of a shard, checked when it is mapped for the first time."""
    tables = map_tables(shard.idx_path, shard.meta)
    if not shard.is_index_checked:
        check_tables(shard.idx_path, shard.meta, tables)
        shard.is_index_checked = True
    return tables


@lru_cache(maxsize=MAPPED_SHARDS)
def _tokens(shard: TokenShard) -> Tokens:
    """[num_tokens], mapped."""
    if shard.num_tokens == 0:
        return np.empty(0, dtype=shard.dtype)  # an empty file cannot be mapped
    try:
        return np.memmap(shard.bin_path, dtype=shard.dtype, mode="r", shape=(shard.num_tokens,))
    except ValueError as error:
        raise ShardError(f"{shard.bin_path}: was truncated after it was opened. {MEND}") from error


def open_split(data: str | Path | Sequence[str | Path], split: str) -> list[TokenShard]:
    """The shards of one split ("train" or "validation"), in the order of their names.

    Args:
        data: an output folder (it holds `run.json`), the folder of its tokens stage (it holds `MANIFEST.json`), or a
            list of shard prefixes.
        split: which documents. A split that no document fell to has no shards: the list is empty.

    Raises:
        ShardError: an unknown split, a shard that is missing or damaged, or shards of different tokenizers.
    """
    if split not in SPLITS:
        raise ShardError(f"split {split!r} is not one of {', '.join(SPLITS)}.")
    if isinstance(data, str | Path):
        shards = [TokenShard(prefix, sha256) for prefix, sha256 in listed_shards(Path(data), split)]
    else:
        shards = [TokenShard(prefix) for prefix in data]
    for shard in shards:
        if shard.meta.split != split:
            raise ShardError(f"{shard.meta_path}: holds {shard.meta.split} documents, not {split}. Name its own split.")
        if shard.identity != shards[0].identity:
            raise ShardError(
                f"{shard.meta_path}: made by another tokenizer than {shards[0].meta_path}. Encode both with one."
            )
    return shards

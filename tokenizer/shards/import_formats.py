"""Token files of other programs: Megatron's `.bin/.idx` (NeMo's and GPT-NeoX's too), and datatrove's `.ds`.

Both are tokens one after another and a table of where documents end. Headers and sizes are checked when a file is
opened, before anything is allocated by what they say; tables are read and checked a million rows at a time.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corpus.engine import durable
from corpus.engine.errors import WenhaiError
from tokenizer.shards.megatron_index import (
    CHUNK_ROWS,
    DTYPE_CODES,
    HEADER,
    LENGTH_BYTES,
    MAGIC,
    POINTER_BYTES,
    VERSION,
    Header,
    index_size,
)

OLD_MAGIC = b"TNTIDX\x00\x00"  # of fairseq, and of Megatron's `--dataset-impl lazy` and `cached`
ENDS_BYTES = 8
MAX_METADATA_BYTES = 1 << 16
MEND = "It was not written whole, or not by the program it is said to be of: make it again."


class ForeignFile(ABC):
    """Tokens of documents that stand one after another: [num_tokens] of `dtype` in the file `path`."""

    path: Path
    dtype: np.dtype[Any]
    num_tokens: int
    num_documents: int

    @abstractmethod
    def ends(self) -> Iterator[NDArray[np.int64]]:
        """Where documents end, in tokens from the start of the file, in order, some at a time.

        Raises:
            WenhaiError: the table contradicts itself or the tokens.
        """


class MegatronFile(ForeignFile):
    """A `.bin` with its `.idx`, version 1, of any integer type; the sequences of a document are joined."""

    def __init__(self, bin_path: Path, idx_path: Path) -> None:
        self.path, self._idx_path = bin_path, idx_path
        size = os.stat(idx_path).st_size
        with open(idx_path, "rb") as file:
            data = file.read(HEADER.size)
        if data.startswith(OLD_MAGIC):
            _refuse(idx_path, 0, "an index of the format before Megatron's `mmap`", "Make it again with `mmap`.")
        if not data.startswith(MAGIC) or len(data) < HEADER.size:
            _refuse(idx_path, 0, "this is not an index of Megatron's format")
        header = Header(*HEADER.unpack(data))
        names = {code: name for name, code in DTYPE_CODES.items()}
        if header.version != VERSION:
            _refuse(idx_path, 9, f"index version {header.version}; this reader knows {VERSION}")
        if header.dtype_code not in names:
            _refuse(idx_path, 17, f"dtype code {header.dtype_code} is none of an integer", "It holds no tokens.")
        self.dtype = np.dtype(names[header.dtype_code]).newbyteorder("<")
        self._num_sequences, self._num_entries = header.num_sequences, header.num_entries
        expected = index_size(self._num_sequences, self._num_entries)
        if self._num_sequences and size == expected + self._num_sequences:
            _refuse(idx_path, expected, "sequences have modes (multimodal)", "Only text can be imported.")
        if size != expected or not self._num_entries:
            counts = f"{self._num_sequences:,} sequences and {self._num_entries:,} document entries"
            _refuse(idx_path, 18, f"{counts} are not {size:,} bytes")
        self.num_documents = self._num_entries - 1
        self.num_tokens = _num_tokens(bin_path, self.dtype)

    def ends(self) -> Iterator[NDArray[np.int64]]:
        lengths_at, itemsize, done = HEADER.size, self.dtype.itemsize, 0
        pointers_at = lengths_at + self._num_sequences * LENGTH_BYTES
        entries = self._entries()
        pending = next(entries, np.empty(0, np.int64))
        for first in range(0, self._num_sequences, CHUNK_ROWS):
            count = min(CHUNK_ROWS, self._num_sequences - first)
            lengths = _read(self._idx_path, "<i4", lengths_at + first * LENGTH_BYTES, count).astype(np.int64)
            pointers = _read(self._idx_path, "<i8", pointers_at + first * POINTER_BYTES, count)
            if (lengths < 0).any():
                _refuse(self._idx_path, lengths_at + first * LENGTH_BYTES, "a sequence of negative length follows")
            offsets = done + np.concatenate([[0], np.cumsum(lengths)])  # below 2^20 x 2^31 more than the file has
            if (pointers != offsets[:-1] * itemsize).any():
                bad = int(np.argmax(pointers != offsets[:-1] * itemsize))
                place = pointers_at + (first + bad) * POINTER_BYTES
                _refuse(self._idx_path, place, f"sequence {first + bad} does not begin where the one before ends")
            done = int(offsets[-1])
            if done > self.num_tokens:
                break
            while len(pending):
                here = int(np.searchsorted(pending, first + count, side="right"))
                yield offsets[pending[:here] - first]
                pending = pending[here:]
                if len(pending):
                    break
                pending = next(entries, pending)
        if done != self.num_tokens:
            _refuse(self._idx_path, lengths_at, f"its sequences are not the {self.num_tokens:,} tokens of the .bin")
        while len(pending):  # of an index without sequences: documents without any
            yield np.zeros(len(pending), np.int64)
            pending = next(entries, pending[:0])

    def _entries(self) -> Iterator[NDArray[np.int64]]:
        """The document table without its first entry: after how many sequences each document ends."""
        at = HEADER.size + self._num_sequences * (LENGTH_BYTES + POINTER_BYTES)
        last = 0
        for first in range(0, self._num_entries, CHUNK_ROWS):
            entries = _read(self._idx_path, "<i8", at + first * 8, min(CHUNK_ROWS, self._num_entries - first))
            is_falling = entries[0] < last or (entries[1:] < entries[:-1]).any()  # a difference could wrap
            if (first == 0 and entries[0] != 0) or is_falling or entries[-1] > self._num_sequences:
                _refuse(self._idx_path, at + first * 8, "the document table is not of ascending sequences from 0 on")
            last = int(entries[-1])
            if len(rest := entries[first == 0 :]):
                yield rest
        if last != self._num_sequences:
            lost = self._num_sequences - last
            _refuse(self._idx_path, at, f"{lost:,} sequences after the last document (an `end_document` is missing)")


class DatatroveFile(ForeignFile):
    """A `.ds` with its `.ds.index` (u64 ends) and, if there is one, its `.ds.metadata` (bytes a token, tokens)."""

    def __init__(self, path: Path, index_path: Path, metadata_path: Path | None = None) -> None:
        self.path, self._index_path = path, index_path
        size = os.stat(index_path).st_size
        if size % ENDS_BYTES:
            _refuse(index_path, size, "not a list of 8-byte document ends")
        self.num_documents = size // ENDS_BYTES
        num_bytes = os.stat(path).st_size
        last = int(_read(index_path, "<u8", size - ENDS_BYTES, 1)[0]) if size else 0
        itemsize, total = num_bytes // last if last else 2, last
        if metadata_path is not None:
            itemsize, total = _read_metadata(metadata_path)
        if itemsize not in (2, 4) or last * itemsize != num_bytes or total != last:
            _refuse(index_path, size, f"{num_bytes:,} bytes of tokens are not {last:,} tokens of 2 or 4 bytes")
        self.dtype = np.dtype(f"<u{itemsize}")
        self.num_tokens = last

    def ends(self) -> Iterator[NDArray[np.int64]]:
        last = 0
        for first in range(0, self.num_documents, CHUNK_ROWS):
            count = min(CHUNK_ROWS, self.num_documents - first)
            ends = _read(self._index_path, "<u8", first * ENDS_BYTES, count)
            if int(ends[0]) < last or (ends[1:] < ends[:-1]).any() or int(ends[-1]) > self.num_tokens:
                _refuse(self._index_path, first * ENDS_BYTES, "document ends that do not ascend follow")
            last = int(ends[-1])
            yield ends.astype(np.int64)


def open_foreign(paths: Sequence[Path]) -> ForeignFile:
    """Open `P.bin P.idx`, or `P.ds P.ds.index [P.ds.metadata]`."""
    return DatatroveFile(*paths) if paths[0].suffix == ".ds" else MegatronFile(*paths)


def _num_tokens(path: Path, dtype: np.dtype[Any]) -> int:
    size = os.stat(path).st_size
    if size % dtype.itemsize:
        _refuse(path, size - size % dtype.itemsize, f"ends inside a token of {dtype.itemsize} bytes")
    return size // dtype.itemsize


def _read_metadata(path: Path) -> tuple[int, int]:
    """(bytes a token, tokens) of `NAME|2`, `1234`, `1.23 kT`, a line each."""
    try:
        name, total = durable.read_bytes(path, MAX_METADATA_BYTES).decode().splitlines()[:2]
        return int(name.rsplit("|", 1)[1]), int(total)
    except (ValueError, IndexError):
        _refuse(path, 0, "not the metadata of a datatrove file")


def _read(path: Path, dtype: str, offset: int, count: int) -> NDArray[Any]:
    """Some numbers of a file whose size is known."""
    found = np.fromfile(path, dtype, count, offset=offset)
    if len(found) < count:
        _refuse(path, offset, "the file has become shorter while it was read")
    return found


def _refuse(path: Path, offset: int, problem: str, advice: str = MEND) -> NoReturn:
    raise WenhaiError(f"{path}: offset {offset}: {problem}. {advice}")

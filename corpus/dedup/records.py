"""Files between the stages: records in sections that a later task reads as one range, and .npy arrays.

A section file holds records of one size behind a header of offsets. The task that reads section p of M files thus makes
M range reads, whatever the number of sections: the layout of Spark's sort shuffle, M files for M tasks, not M x P small
ones. Everything is read through a stream in rising order, a block at a time, so joins are merges of sorted runs: no
memory map, the same on a disk and in a store.

    0      b"WHCUTS01"        8
    8      n                  <u8
    16     offsets            <u8[n + 1]    in records
    ...    records

A band file is one of them: a shard's (key, row) records sorted by key, 12 bytes each, a section being 1/16384 of the
key space. A partition is a power-of-two share of the key space, hence one range of sections; so the file depends on its
own shard alone and the partition count may follow the corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File

MAGIC = b"WHCUTS01"
SLOT_BITS = 14
NUM_SLOTS = 1 << SLOT_BITS
RECORD_DTYPE = np.dtype([("key", "<u8"), ("row", "<u4")])
PARTITION_RECORDS = (
    1 << 20
)  # 13 MB of records; a task on them holds 0.34 GB, of which 0.2 are the interpreter and numba
BLOCK_BYTES = 4 << 20

Array = npt.NDArray[Any]
Ordinals = npt.NDArray[np.int64]


def partition_bits(num_records: int) -> int:
    """Return log2 of the number of partitions: a function of the corpus' size only, never of workers.

    >>> partition_bits(0), partition_bits(30_000_000_000)
    (0, 14)
    """
    return min(SLOT_BITS, max(0, (num_records // PARTITION_RECORDS).bit_length()))


def write_bands(path: Path, keys: npt.NDArray[np.uint64], rows: npt.NDArray[np.uint32]) -> None:
    """Write a band file from its records in any order."""
    order = np.lexsort((rows, keys))
    records = np.empty(len(keys), RECORD_DTYPE)
    records["key"], records["row"] = keys[order], rows[order]
    slots = np.bincount((keys >> np.uint64(64 - SLOT_BITS)).astype(np.int64), minlength=NUM_SLOTS)
    write_sections(path, cuts_of(slots), [records])


def band_slots(partition: int, bits: int) -> tuple[int, int]:
    """The sections of a band file that are one of 2^bits partitions, as a range.

    >>> band_slots(1, 1)
    (8192, 16384)
    """
    return partition << (SLOT_BITS - bits), (partition + 1) << (SLOT_BITS - bits)


def signature_dtype(num_permutations: int) -> np.dtype[Any]:
    """A signature as one record."""
    return np.dtype(("<u4", (num_permutations,)))


def sketch_dtype(num_permutations: int) -> np.dtype[Any]:
    """The low halves of a signature's minima as one record."""
    return np.dtype(("<u2", (num_permutations,)))


def cuts_of(counts: npt.NDArray[np.integer[Any]]) -> Ordinals:
    """Return int64[n + 1]: where each of n sections of these sizes begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def write_sections(path: Path, cuts: Ordinals, parts: Iterable[Array]) -> None:
    """Write a section file; `parts` hold its records in order, cut anywhere."""
    with open(path, "wb") as file:
        file.write(MAGIC + (len(cuts) - 1).to_bytes(8, "little") + cuts.astype("<u8").tobytes())
        for part in parts:
            file.write(np.ascontiguousarray(part).data.cast("B") if part.size else b"")


def write_array(path: Path, array: Array) -> None:
    """Write an array in numpy's .npy format, version 1, without pickle."""
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)


def map_array(file: File) -> Array:
    """Return a read-only memory map of a .npy file; raises `WenhaiError` when it is none."""
    try:
        mapped: Array = np.load(storage.fetch(file.url), mmap_mode="r", allow_pickle=False)
        return mapped
    except (ValueError, EOFError) as error:
        raise WenhaiError(f"{file.url}: not a .npy array ({error}). Remove its stage folder and run again.") from error


@dataclass(frozen=True)
class Run:
    """Consecutive records of one file: `offset` bytes are before them."""

    url: str
    offset: int
    num_records: int


def section(file: File, first: int, last: int, dtype: np.dtype[Any]) -> Run:
    """Return sections first..last - 1 of a section file as one run.

    Raises:
        WenhaiError: the file is no section file of such records, or damaged.
    """
    with storage.open_stream(file.url) as stream:
        magic, count = stream.read(len(MAGIC)), int.from_bytes(stream.read(8), "little")
        start, end = _offset(stream, first), _offset(stream, last)
    header = len(MAGIC) + 8 * (count + 2)
    total, rest = divmod(file.bytes - header, dtype.itemsize)
    if magic != MAGIC or rest or not 0 <= first <= last <= count or not 0 <= start <= end <= total:
        raise WenhaiError(f"{file.url}: not a file of sections, or damaged. Remove its stage folder and run again.")
    return Run(file.url, header + start * dtype.itemsize, end - start)


def array_rows(file: File, dtype: np.dtype[Any]) -> Run:
    """Return the rows of a .npy array, which are the end of its file."""
    offset = file.bytes - file.rows * dtype.itemsize
    if offset <= 0:
        raise WenhaiError(f"{file.url}: shorter than its {file.rows:,} rows. Remove its stage folder and run again.")
    return Run(file.url, offset, file.rows)


class Runs:
    """Records of many files under one numbering: the records of the runs before, and the position in its own run.

    Numbers are int64: 2^31 documents are ordinary.
    """

    def __init__(self, runs: Sequence[Run], dtype: np.dtype[Any]) -> None:
        self.runs = runs
        self.dtype = dtype
        self.bases = cuts_of(np.array([run.num_records for run in runs], np.int64))

    def __len__(self) -> int:
        return int(self.bases[-1])

    def read(self) -> Array:
        """Return all records."""
        records = np.empty(len(self), self.dtype)
        for run, start in zip(self.runs, self.bases[:-1].tolist(), strict=True):
            if run.num_records:
                with storage.open_stream(run.url) as stream:
                    stream.seek(run.offset)
                    _fill(stream, records[start : start + run.num_records], run.url)
        return records

    def take(self, numbers: Ordinals) -> Array:
        """Return the records of rising numbers: every file is read from front to back, and only blocks that are wanted."""
        taken = np.empty(len(numbers), self.dtype)
        cuts = np.searchsorted(numbers, self.bases)
        for i in np.flatnonzero(np.diff(cuts)).tolist():
            part = slice(int(cuts[i]), int(cuts[i + 1]))
            with storage.open_stream(self.runs[i].url) as stream:
                self._merge(stream, self.runs[i], numbers[part] - self.bases[i], taken[part])
        return taken

    def _merge(self, stream: BinaryIO, run: Run, positions: Ordinals, taken: Array) -> None:
        length = max(1, BLOCK_BYTES // self.dtype.itemsize)
        block = np.empty(length, self.dtype)
        edges = np.searchsorted(positions, np.arange(0, run.num_records + length, length))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            first, last = int(edges[number]), int(edges[number + 1])
            start, end = int(positions[first]), int(positions[last - 1]) + 1
            stream.seek(run.offset + start * self.dtype.itemsize)
            _fill(stream, block[: end - start], run.url)
            taken[first:last] = block[positions[first:last] - start]


def bases(files: Sequence[File]) -> Ordinals:
    """Return int64[len(files) + 1]: the first ordinal of each shard, and the number of documents."""
    return cuts_of(np.array([file.rows for file in files], np.int64))


def _fill(stream: BinaryIO, records: Array, url: str) -> None:
    """Read exactly these records."""
    view, done = records.reshape(-1).view(np.uint8).data, 0
    while done < len(view):
        data = stream.read(len(view) - done)
        if not data:
            raise WenhaiError(f"{url}: ends too early. Remove its stage folder and run again.")
        view[done : done + len(data)] = data
        done += len(data)


def _offset(stream: BinaryIO, slot: int) -> int:
    stream.seek(len(MAGIC) + 8 + 8 * slot)
    return int.from_bytes(stream.read(8), "little")

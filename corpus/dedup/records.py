"""Files between the stages: records in sections that a later task reads as one range, and .npy arrays.

A section file holds records of one size behind a header of offsets. The task that reads section p of M files thus makes
M range reads, whatever the number of sections: the layout of Spark's sort shuffle, M files for M tasks, not M x P small
ones. Everything is read in rising order, a block at a time, so joins are merges of sorted runs: no memory map, the same
on a disk and in a store. What lies in a store is asked for by many requests at once (`engine/overlap.py`).

    0      b"WHCUTS01"        8
    8      n                  <u8
    16     offsets            <u8[n + 1]    in records
    ...    records

A band file is one of them: a shard's (key, row) records sorted by key, 12 bytes each, a section being 1/16384 of the
key space. A partition is a power-of-two share of the key space, hence one range of sections; so the file depends on its
own shard alone and the partition count may follow the corpus.

Reads and memory pull apart: a section holds 1/M of what a task holds. So a task takes a million band records (13 MB)
where shards are few, and up to 67 million where they are many, that a read may have up to 64 KB (`partition_records`).
For 2 billion documents of 15 records in 20,000 shards:

    records    30e9 x 12 B = 360 GB; 512 partitions of 59e6 (0.7 GB; the task holds 1.2, see near/buckets.py)
    bands      20,000 x 512 = 1.0e7 sections of 35 KB, a small read for the offsets and one for the records of each
    buckets    as many, one a shard and partition: 4.7 KB where a tenth of the records is shared, 16 B each
    members    all 3e9 of these, 2^21 a task at most (`spread`): 2,048 tasks, 4.1e7 sections of 73 records,
               5 KB of keys and 16 KB of sketches; 0.2 TB and 0.7 TB
    all        1.2e8 requests and 1.3 TB; with 2^20 records a partition it would be 3e9 requests

A key that a share of all documents has lies in one partition, whatever their number: 10 million documents of one key
cost `buckets` 0.6 GB and `candidates` 2.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine import storage
from corpus.engine.errors import WenhaiError
from corpus.engine.overlap import overlapped
from corpus.engine.stage import Output, Task
from corpus.engine.storage import File

MAGIC = b"WHCUTS01"
SLOT_BITS = 14
NUM_SLOTS = 1 << SLOT_BITS
WORD = np.dtype("<u8")
GAP_BYTES = 256 << 10  # between wanted records: what is nearer comes in one read
RECORD_DTYPE = np.dtype([("key", "<u8"), ("row", "<u4")])
PARTITION_RECORDS = 1 << 20  # 13 MB; a task on them holds 0.25 GB, of which 0.2 are the interpreter and numba
WIDE_FILES = 192  # of so many files it has 64 KB each; of more files a partition is larger, for reads of that size
MAX_GROWTH = 64  # but so many times as much at most: 0.8 GB
MAX_MEMBERS = 1 << 21  # bucket members of a task that compares them: 0.9 GB with their sketches
BLOCK_BYTES = 4 << 20
BLOCK_RECORDS = 1 << 20  # that pass through a task one block after another: 39 MB of edges
SAMPLES = 64  # of the keys of so many records as are sorted at once

Array = npt.NDArray[Any]
Ordinals = npt.NDArray[np.int64]


def partition_bits(num_records: int, num_files: int = 1) -> int:
    """Return log2 of the number of partitions: a function of the corpus' size and shards only, never of workers.

    >>> partition_bits(0), partition_bits(300_000_000, 80), partition_bits(30_000_000_000, 20_000)
    (0, 9, 9)
    """
    return min(SLOT_BITS, (num_records // partition_records(num_files)).bit_length())


def partition_tasks(inputs: tuple[File, ...], files: Sequence[File]) -> list[Task]:
    """A task for each range of the keys of some files."""
    bits = partition_bits(sum(file.rows for file in files), len(files))
    return [Task(f"{p:05d}", inputs, {"partition": p, "bits": bits}) for p in range(1 << bits)]


def partition_runs(task: Task, files: Sequence[File]) -> Runs:
    """The records of the range of one of these tasks, a run for each band file."""
    return sections(files, *band_slots(int(task.params["partition"]), int(task.params["bits"])), RECORD_DTYPE)


def partition_records(num_files: int) -> int:
    """Return how many records a partition has at most, of this number of files."""
    return PARTITION_RECORDS * max(1, min(MAX_GROWTH, num_files // WIDE_FILES))


def spread(buckets: Sequence[File]) -> int:
    """Return into how many sections, a power of two, the members of a partition are dealt for comparison."""
    members = sum(file.rows for file in buckets) // max(1, len(buckets))
    return 1 << (max(0, members - 1) // MAX_MEMBERS).bit_length()


def save(out: Output, name: str, rows: int, write: Callable[..., None], *parts: Any) -> None:
    """Create a file of a stage by `write(path, *parts)`."""
    with out.create(name, rows=rows) as path:
        write(path, *parts)


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


def cuts_of(counts: npt.NDArray[np.integer[Any]]) -> Ordinals:
    """Return int64[n + 1]: where each of n sections of these sizes begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def differs(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """bool[n]: which of sorted rows are not those before them; the first is not.

    >>> differs(np.array([1, 1, 1, 2]), np.array([5, 5, 6, 6]))
    array([ True, False,  True,  True])
    """
    new = np.ones(len(columns[0]), bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return new


def pick(records: Array, positions: Ordinals) -> Array:
    """Return `records[positions]`, as bytes: five times as fast, because numpy copies records field by field."""
    rows = records.view(np.uint8).reshape(-1, records.dtype.itemsize)
    picked: Array = np.take(rows, positions, axis=0).reshape(-1).view(records.dtype)
    return picked


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


def sections(files: Sequence[File], first: int, last: int, dtype: np.dtype[Any]) -> Runs:
    """Return sections first..last - 1 of each of some section files, each file's as one run: one read for each.

    Raises:
        WenhaiError: a file is no section file of such records, or damaged.
    """
    skipped = 2 if first else 0  # words: the first section's offset stands right behind the magic number
    headers = [
        Piece(file.url, WORD.itemsize * (skipped + first), np.empty(3 - skipped + last - first, WORD)) for file in files
    ]
    _read(headers)
    return Runs([_run(*pair, first, last, dtype) for pair in zip(files, headers, strict=True)], dtype)


def _run(file: File, header: Piece, first: int, last: int, dtype: np.dtype[Any]) -> Run:
    words, header_bytes = header.taken, file.bytes - file.rows * dtype.itemsize
    count, rest = divmod(header_bytes - 3 * WORD.itemsize, WORD.itemsize)
    start, end = int(words[0 if first else 2]), int(words[-1])
    is_ours = not rest and (first or (words[0].tobytes() == MAGIC and words[1] == count))
    if not is_ours or not 0 <= first <= last <= count or not 0 <= start <= end <= file.rows:
        raise WenhaiError(f"{file.url}: not a file of sections, or damaged. Remove its stage folder and run again.")
    return Run(file.url, header_bytes + start * dtype.itemsize, end - start)


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
        records, starts = np.empty(len(self), self.dtype), self.bases.tolist()
        pairs = [
            (run, records[first:last]) for run, (first, last) in zip(self.runs, itertools.pairwise(starts), strict=True)
        ]
        _read([Piece(run.url, run.offset, part) for run, part in pairs if len(part)])
        return records

    def parts(self) -> list[Array]:
        """Return the records of each run."""
        return np.split(self.read(), self.bases[1:-1])

    def blocks(self) -> Iterator[Array]:
        """Yield all records in order, a bounded number at a time."""
        for start in range(0, len(self), BLOCK_RECORDS):
            end = min(start + BLOCK_RECORDS, len(self))
            runs = []
            for i in range(np.searchsorted(self.bases, start, "right") - 1, np.searchsorted(self.bases, end)):
                run, base = self.runs[i], int(self.bases[i])
                first, last = max(start - base, 0), min(end - base, run.num_records)
                runs.append(Run(run.url, run.offset + first * self.dtype.itemsize, last - first))
            yield Runs(runs, self.dtype).read()

    def take(self, numbers: Ordinals) -> Array:
        """Return the records of rising numbers: every file is read from front to back, and only what is near to
        records that are wanted."""
        if len(numbers) == len(self):
            return self.read()
        taken, size = np.empty(len(numbers), self.dtype), self.dtype.itemsize
        which = np.searchsorted(self.bases, numbers, "right") - 1
        rows = numbers - self.bases[which]
        apart = differs(which, rows // max(1, BLOCK_BYTES // size)) | (np.diff(rows, prepend=0) > GAP_BYTES // size)
        pieces = []
        for first, last in itertools.pairwise([*np.flatnonzero(apart).tolist(), len(numbers)]):
            run, start = self.runs[which[first]], int(rows[first])
            pieces.append(Piece(run.url, run.offset + start * size, taken[first:last], rows[first:last] - start))
        _read(pieces)
        return taken


@dataclass(frozen=True)
class Piece:
    """One read: `taken` is filled with the records from an offset on, or with some of them."""

    url: str
    offset: int  # in bytes
    taken: Array
    rows: Ordinals | None = None  # of those from the offset on, rising; all where None

    @property
    def num_bytes(self) -> int:
        """How many it asks for."""
        return self.taken.nbytes if self.rows is None else int(self.rows[-1] + 1) * self.taken[:1].nbytes

    def split(self) -> Iterator[Piece]:
        """As reads of a bounded length, which may wait side by side."""
        length = len(self.taken) if self.rows is not None else max(1, BLOCK_BYTES // self.taken[:1].nbytes)
        for start in range(0, len(self.taken), length):
            offset = self.offset + start * self.taken[:1].nbytes
            yield Piece(self.url, offset, self.taken[start : start + length], self.rows)

    def fill(self) -> None:
        """Read exactly these records."""
        rows = self.rows
        if rows is not None and int(rows[-1]) + 1 == len(rows):
            rows = None  # all of them after all
        block = self.taken if rows is None else np.empty((int(rows[-1]) + 1, *self.taken.shape[1:]), self.taken.dtype)
        view = block.reshape(-1).view(np.uint8).data
        if storage.read_into(self.url, self.offset, view) < len(view):
            raise WenhaiError(f"{self.url}: ends too early. Remove its stage folder and run again.")
        if rows is not None:
            np.take(block, rows, axis=0, out=self.taken, mode="clip")


def _read(pieces: Sequence[Piece]) -> None:
    """Fill the pieces, those of a store many at once, those of a disk one after another."""
    if any(storage.is_remote(piece.url) for piece in pieces):
        parts = (part for piece in pieces for part in piece.split())
        for _ in overlapped(Piece.fill, parts, lambda part: part.num_bytes):
            pass
    else:
        for piece in pieces:
            piece.fill()


def key_ranges(records: Array, bases: Ordinals) -> Iterator[Array]:
    """Yield the records of some runs a range of keys at a time, ranges rising: all records of a key come together.

    What sorts them so holds a multiple of `PARTITION_RECORDS` and not of a partition, which may have 64 times as many.

    Args:
        records: each run of them sorted by `key`.
        bases: int64[runs + 1], where each begins.
    """
    sample = np.sort(records["key"][:: max(1, PARTITION_RECORDS // SAMPLES)])
    bounds = np.unique(sample[SAMPLES::SAMPLES])
    runs = [(int(first), int(last)) for first, last in itertools.pairwise(bases)]
    inner = [first + np.searchsorted(records["key"][first:last], bounds) for first, last in runs]
    cuts = np.column_stack((bases[:-1], np.reshape(inner, (len(runs), len(bounds))), bases[1:]))
    for number in range(len(bounds) + 1):
        yield np.concatenate([records[:0], *(records[first:last] for first, last in cuts[:, number : number + 2])])


def look_up(table: Array, keys: npt.NDArray[np.uint64]) -> tuple[Ordinals, npt.NDArray[np.bool_]]:
    """int64[keys]: the place of each key in a table sorted by key, and whether it is there."""
    if not len(table):
        return np.zeros(len(keys), np.int64), np.zeros(len(keys), bool)
    column = np.ascontiguousarray(table["key"])
    at = np.minimum(np.searchsorted(column, keys), len(table) - 1)
    return at, column[at] == keys


def bases(files: Sequence[File]) -> Ordinals:
    """Return int64[len(files) + 1]: the first ordinal of each shard, and the number of documents."""
    return cuts_of(np.array([file.rows for file in files], np.int64))

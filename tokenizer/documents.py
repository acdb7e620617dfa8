"""Finds and reads documents in any Parquet file with a `text` column: ours, or another corpus.

Ours have a 16-byte `id`; for others the id is the xxh3-128 of the text, so equal texts fall into the same split. Every
decision about a document (sample, split, order) is a keyed hash of its id: neither its place nor its shard counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import RUN_NAME, current
from corpus.engine.stage import Folder
from corpus.engine.storage import File

BATCH_ROWS = 1024
READ_BYTES = 1 << 20
ID_BYTES = 16
UNIT = 1 << 64  # keys are uniform in [0, UNIT)

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Batch:
    """Some documents of a file, in file order; `ids` is 16 bytes each."""

    ids: list[bytes]
    texts: pa.LargeStringArray  # valid UTF-8, no nulls
    urls: pa.StringArray
    sources: list[str]
    num_invalid: int  # rows left out because their text is not UTF-8
    num_bytes: int  # UTF-8 bytes of `texts`
    num_invalid_bytes: int


def text_files(patterns: Sequence[str]) -> list[File]:
    """The Parquet files of folders, globs, URLs or other builds, sorted; a finished build is read through its manifest.

    Raises:
        UsageError: a pattern matches nothing, or two name the same file.
    """
    files = sorted(_text_files(patterns), key=lambda file: file.url)
    for one, other in pairwise(files):
        if one.url == other.url:
            raise UsageError(f"{one.url}: listed twice among --text. Name each file once.")
    return files


def read_documents(path: Path) -> Iterator[Batch]:
    """Yield a file's documents, some at a time, page checksums verified where the file has them. A null text is empty.

    Raises:
        WenhaiError: the file is damaged, or has no `text` column of strings.
    """
    try:
        with pq.ParquetFile(
            path, pre_buffer=False, buffer_size=READ_BYTES, page_checksum_verification=True
        ) as file:  # by default a column's whole row group is held, and others' row groups have no bound
            schema = file.schema_arrow
            if "text" not in schema.names or not _is_text(schema.field("text").type):
                raise WenhaiError(f"{path}: has no column `text` of strings; it has {', '.join(schema.names)}.")
            columns = [name for name in ("id", "text", "url", "source") if name in schema.names]
            for record in file.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False):
                yield _batch(record, path.name)
    except (OSError, pa.ArrowException) as error:
        raise damage_message(path, error) from error


def damage_message(path: Path | str, error: Exception) -> WenhaiError:
    """What to say of a Parquet file that cannot be read."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return WenhaiError(f"{path}: damaged ({reason}). Restore it, or rebuild the stage that wrote it.")


def document_keys(ids: list[bytes], purpose: str, seed: int) -> Keys:
    """A uniform 64-bit key of each document for one purpose; keys of different purposes are independent.

    >>> document_keys([bytes(16)], "order", 0)
    array([16964828795241796925], dtype=uint64)
    """
    salt = np.frombuffer(hashlib.sha256(f"wenhai {purpose} {seed}".encode()).digest()[:8], "<u8")[0]
    halves = np.frombuffer(b"".join(ids), "<u8").reshape(-1, 2)
    return _mix(_mix(halves[:, 0] ^ salt) ^ halves[:, 1])


def is_below(keys: Keys, ratio: float) -> NDArray[np.bool_]:
    """Which keys fall into the first `ratio` of all keys: none for 0, all for 1 or more."""
    limit = int(ratio * UNIT)
    if limit >= UNIT:
        return np.ones(len(keys), dtype=np.bool_)
    below: NDArray[np.bool_] = keys < np.uint64(limit)
    return below


def _text_files(patterns: Sequence[str]) -> Iterator[File]:
    for pattern in patterns:
        if storage.exists(storage.join(pattern, RUN_NAME)):
            yield from current(pattern, "text").files()
        elif (folder := Folder.find(pattern)) is not None:
            yield from folder.files()
        else:
            is_folder = not pattern.endswith(".parquet")
            yield from list_inputs([storage.join(pattern, "*.parquet") if is_folder else pattern])


def _batch(record: pa.RecordBatch, file_name: str) -> Batch:
    raw = record.column("text").cast(pa.large_binary())
    if raw.null_count:
        raw = pc.fill_null(raw, b"")
    valid, texts = _valid_texts(raw)
    ids = _ids(record, raw)
    sources = _strings(record, "source").to_pylist()
    urls = _strings(record, "url")
    num_bytes = _num_bytes(texts)
    return Batch(
        ids=[ids[row] for row in valid],
        texts=texts,
        urls=urls if len(valid) == len(raw) else urls.take(pa.array(valid, pa.int64())),
        sources=[sources[row] or file_name for row in valid],
        num_invalid=len(raw) - len(valid),
        num_bytes=num_bytes,
        num_invalid_bytes=_num_bytes(raw) - num_bytes,
    )


def _num_bytes(texts: pa.Array) -> int:
    """The bytes of all values."""
    return pc.sum(pc.binary_length(texts)).as_py() or 0


def _valid_texts(raw: pa.LargeBinaryArray) -> tuple[Sequence[int], pa.LargeStringArray]:
    """The rows that are UTF-8, and their texts."""
    try:
        return range(len(raw)), raw.cast(pa.large_string())  # checks, and copies nothing
    except pa.ArrowInvalid:
        valid = [row for row, value in enumerate(raw.to_pylist()) if value.decode(errors="ignore").encode() == value]
        return valid, raw.take(pa.array(valid, pa.int64())).cast(pa.large_string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _ids(record: pa.RecordBatch, raw: pa.LargeBinaryArray) -> list[bytes]:
    """The ids of ours; where there is none, the hash of the text."""
    if "id" not in record.schema.names or record.schema.field("id").type != pa.binary(ID_BYTES):
        return [xxhash.xxh3_128_digest(text) for text in raw.to_pylist()]
    ids: list[bytes | None] = record.column("id").to_pylist()
    return [xxhash.xxh3_128_digest(raw[row].as_py()) if id is None else id for row, id in enumerate(ids)]


def _strings(record: pa.RecordBatch, name: str) -> pa.StringArray:
    """A column, with U+FFFD for what is not UTF-8; nulls where the file has none."""
    if name not in record.schema.names or not _is_text(record.schema.field(name).type):
        return pa.nulls(record.num_rows, pa.string())
    raw = record.column(name).cast(pa.large_binary())
    try:
        return raw.cast(pa.string())  # checks
    except pa.ArrowInvalid:
        return pa.array(
            [None if value is None else value.decode("utf-8", "replace") for value in raw.to_pylist()], pa.string()
        )


def _mix(values: Keys) -> Keys:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))

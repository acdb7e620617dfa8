"""Arrow IPC files and streams, as Hugging Face `datasets` saves them: a text column, other columns to `meta`.

The file is mapped, not read: a batch costs memory only while its rows become Python objects, some at a time. Every
batch is checked before a value of it is touched, because offsets that lie would read other memory. A batch that cannot
be read costs itself; in a stream also what follows, where its header does not say any more how long it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from corpus.sources.config import SourcesConfig
from corpus.sources.formats.parquet import MAX_LIST_BYTES, row_record, rows_of
from corpus.sources.record import BadRecord, Record

FILE_MAGIC = b"ARROW1\0\0"
SLICE_ROWS = 512
AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_SHARED = re.compile("dictionary<|_view|run_end_encoded<")
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last: a name of a column


def read_arrow(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The rows of a file in order; a record's offset is its row."""
    row = 0
    with pa.memory_map(str(path)) as file:
        for batch in _batches(file):
            if isinstance(batch, str):
                yield BadRecord(row, 0, "arrow", f"the rows from {row:,} on cannot be read ({batch})")
                continue
            step = min(SLICE_ROWS, max(1, MAX_LIST_BYTES // (1 + _shared_bytes(batch))))
            for start in range(0, batch.num_rows, step):
                for fields in rows_of(batch.slice(start, step), config.text):
                    yield row_record(fields, row, config)
                    row += 1


def _batches(file: pa.MemoryMappedFile) -> Iterator[pa.RecordBatch | str]:
    """The batches that are sound, and what is wrong with the others."""
    is_file = file.size() > len(FILE_MAGIC) and file.read(len(FILE_MAGIC)) == FILE_MAGIC
    file.seek(0)
    try:
        if not is_file:
            with pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield _checked(batch)
            return
        reader = pa.ipc.open_file(file)
    except UNREADABLE as error:
        yield type(error).__name__
        return
    for index in range(reader.num_record_batches):
        try:
            yield _checked(reader.get_batch(index))
        except UNREADABLE as error:
            yield f"batch {index}, {type(error).__name__}"


def _shared_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the columns whose values may stand in many rows: each row may have them all."""
    return sum(column.nbytes for column in batch.columns if _SHARED.search(str(column.type)))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch | str:
    """The batch, if all its offsets point into it; strings that are not UTF-8 are found out row by row."""
    try:
        batch.validate()
        for column in batch.columns:
            (column.view(AS_BYTES[column.type]) if column.type in AS_BYTES else column).validate(full=True)
    except UNREADABLE as error:
        return type(error).__name__
    return batch

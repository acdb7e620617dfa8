"""From what a caller has (Arrow tables of any kind, Python lists) to one Arrow column, in slices of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.engine.errors import UsageError
from corpus.filters.statistic import buffers

MAX_SLICE_BYTES = 16 << 20  # text measured at once; bounds scratch memory, changes no verdict
MAX_SLICE_ROWS = 8192


def text_column(documents: Any, column: str) -> pa.LargeStringArray:
    """The texts as one large_string array: no nulls, valid UTF-8."""
    if isinstance(documents, pa.Table | pa.RecordBatch):
        if column not in documents.schema.names:
            raise UsageError(
                f"the table has no column {column!r}; it has {', '.join(documents.schema.names) or 'none'}."
            )
        texts = _only_column(documents, column)
    elif isinstance(documents, pa.Array | pa.ChunkedArray):
        texts = documents
    elif isinstance(documents, str):
        raise UsageError("one string is not a sequence of documents: give [text].")
    else:
        texts = pa.array([storable(text) for text in documents], pa.large_string())
    if not (_is_text(texts.type) or pa.types.is_null(texts.type)):
        raise UsageError(f"column {column!r} holds {texts.type}, not strings.")
    texts = one_chunk(texts.cast(pa.large_string()))
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.large_binary(), safe=False).to_pylist()
        texts = pa.array([text.decode("utf-8", "replace") for text in raw], pa.large_string())
    return texts


def url_column(documents: Any) -> pa.StringArray | None:
    """The `url` column of a table that has one, as strings; None for anything else."""
    if not isinstance(documents, pa.Table | pa.RecordBatch) or "url" not in documents.schema.names:
        return None
    urls = _only_column(documents, "url")
    return one_chunk(urls.cast(pa.string())) if _is_text(urls.type) else None


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array; a single chunk is not copied."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def id_array(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.uint8]:
    """uint8[n, 16] of a fixed-size binary(16) column."""
    ids = one_chunk(column)
    data = np.frombuffer(ids.buffers()[1] or b"", np.uint8)
    return data.reshape(-1, 16)[ids.offset : ids.offset + len(ids)]


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _only_column(documents: pa.Table | pa.RecordBatch, name: str) -> Any:
    if documents.schema.names.count(name) > 1:
        raise UsageError(f"the table has several columns {name!r}; rename or drop all but one.")
    return documents.column(name)


def storable(text: str | None) -> str | None:
    """Arrow cannot store lone surrogates; they become U+FFFD."""
    if text is not None and not isinstance(text, str):
        raise UsageError(f"a document is a string or None, not {type(text).__name__}.")
    if text is None or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def slices(texts: pa.LargeStringArray) -> Iterator[pa.LargeStringArray]:
    offsets, _ = buffers(texts)
    start = 0
    while start < len(texts):
        stop = int(np.searchsorted(offsets, offsets[start] + MAX_SLICE_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), start + MAX_SLICE_ROWS, len(texts))
        yield texts.slice(start, stop - start)
        start = stop

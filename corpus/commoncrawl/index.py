"""The columnar index: Parquet files of about 1 GB, read by ranges and only in the columns that are needed."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus.commoncrawl.client import Client
from corpus.commoncrawl.config import HttpConfig
from corpus.commoncrawl.http import Bad
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File

BATCH_ROWS = 64 << 10

NEEDED = {  # columns of the index, and what they are called here
    "url": "url",
    "warc_filename": "filename",
    "warc_record_offset": "offset",
    "warc_record_length": "length",
    "content_digest": "digest",
    "content_languages": "languages",
    "fetch_time": "fetched",
    "fetch_status": "status",
    "content_mime_detected": "mime",
    "content_mime_type": "declared_mime",
}
OPTIONAL = {"content_charset": "charset", "content_truncated": "truncated", "subset": "subset"}
WWW = re.compile(r"www\d*\.")
HOST_COLUMNS = {"url_host_name": "host"}


class Index:
    """An index file, wherever it lies; leaving the `with` block hangs up.

    Raises:
        WenhaiError: it cannot be read, is no Parquet, or has not the columns of the index (from all methods).
    """

    def __init__(self, file: File, http: HttpConfig, host_suffixes: Sequence[str] = ()) -> None:
        self._url, self._size = file.url, file.bytes
        self._client = Client(file.url.rsplit("/", 1)[0], http)
        self._ranges = surt_ranges(host_suffixes)

    def __enter__(self) -> Index:
        self._client.__enter__()
        source = pa.PythonFile(RangeFile(self._client, self._url, self._size), mode="r")
        with self._errors():
            self._parquet = pq.ParquetFile(source, pre_buffer=True)  # neighbouring columns are one request
        self._columns = _columns(self._parquet.schema_arrow.names, self._url, bool(self._ranges))
        self.num_rows: int = self._parquet.metadata.num_rows
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.leave()

    def tables(self) -> Iterator[tuple[int, pa.Table | None]]:
        """Yield (number of rows, the rows with our names for the columns) from front to back; None for the rows of a
        group that was not read, because no wanted host can be in it.
        """
        for group in range(self._parquet.num_row_groups):
            metadata = self._parquet.metadata.row_group(group)
            if not may_hold(metadata, self._ranges):
                yield metadata.num_rows, None
                continue
            with self._errors():
                for batch in self._parquet.iter_batches(BATCH_ROWS, [group], list(self._columns), use_threads=False):
                    yield batch.num_rows, _renamed(batch, self._columns)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise WenhaiError(
                f"{self._url}: cannot be read as an index file in Parquet ({reason}). Give others with --index."
            ) from error


class RangeFile(io.RawIOBase):
    """A file of an archive as Arrow reads one: each read is a range."""

    def __init__(self, client: Client, url: str, size: int) -> None:
        self._client, self._url, self._size, self._place = client, url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._place + size)
        if self._place >= end:
            return b""
        try:
            data = self._client.read_at(self._url, self._place, end)
        except Bad as bad:
            raise WenhaiError(f"{self._url}: cannot be read ({bad}). Run the same command again.") from bad
        self._place = end
        return data


def surt_ranges(suffixes: Sequence[str]) -> list[tuple[str, str]]:
    """Between which url_surtkeys (first, end) the pages of hosts with these suffixes lie.

    After a host's name stands `)`, `,` (a host below it) or `:` (a port), and a leading www is left out.

    >>> surt_ranges(["edu.cn"])
    [('cn,edu)', 'cn,edu;')]
    """
    names = [",".join(reversed(WWW.sub("", suffix, count=1).split("."))) for suffix in suffixes]
    return [(name + ")", name + ";") for name in names]


def may_hold(group: Any, ranges: Sequence[tuple[str, str]]) -> bool:
    """Whether a row group may hold keys of these ranges; without ranges or statistics it may."""
    if not ranges:
        return True
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "url_surtkey":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            low, high = str(statistics.min), str(statistics.max)
            return any(low < end and first <= high for first, end in ranges)
    return True


def _columns(there: Sequence[str], url: str, with_hosts: bool) -> dict[str, str]:
    """The columns to read and their names here; those that may be missing are left out then.

    Raises:
        WenhaiError: it is no index, or one of before 2018-39, when languages were not noted.
    """
    wanted = NEEDED | (HOST_COLUMNS if with_hosts else {})
    missing = sorted(wanted.keys() - set(there))
    if missing:
        raise WenhaiError(
            f"{url}: has no column {', '.join(missing)}. Give the columnar index of a crawl since CC-MAIN-2018-39 "
            "(flat schema)."
        )
    return wanted | {name: ours for name, ours in OPTIONAL.items() if name in there}


def _renamed(batch: pa.RecordBatch, columns: Mapping[str, str]) -> pa.Table:
    """The rows with our names and plain types; `fetched` in seconds."""
    arrays = {}
    for name, ours in columns.items():
        values = batch.column(batch.schema.get_field_index(name))
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if ours == "fetched" and pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("s", values.type.tz), safe=False).cast(pa.int64())
        arrays[ours] = values
    for ours in OPTIONAL.values():
        arrays.setdefault(ours, pa.nulls(batch.num_rows, pa.string()))
    return pa.table(arrays)

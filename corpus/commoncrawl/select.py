"""Stages `cc_select` and `cc_sort`: from the columnar index to captures in the order of the archive's files.

    cc_select  an index file         captures/T-BB.parquet: what is wanted of it, by range of WARC files (bucket)
    cc_sort    some of the buckets   captures/T-PPPP.parquet: sorted by file and offset, one task of cc_fetch each

The index is sorted by URL and the archive by time, so the pages of one WARC file stand in every index file. Of an index
file (about 1 GB) only the columns that are needed are read, row group by row group, and with host suffixes only row
groups whose least and greatest url_surtkey allow such hosts. Every row of an index file is a document in; those of row
groups that were not read are dropped by `host`, or by `limit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpus.commoncrawl.client import is_path
from corpus.commoncrawl.config import FetchConfig, HttpConfig, SelectConfig
from corpus.commoncrawl.index import Index
from corpus.commoncrawl.ranges import cut, join
from corpus.document import TableWriter, read_table
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File, fetch

FLUSH_ROWS = 256 << 10  # captures that are held in memory, some 60 MB
SORT_ROWS = 500_000  # captures of a sort task, where buckets are small
MAX_OFFSET = 1 << 48

CAPTURES_SCHEMA = pa.schema(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("filename", pa.string(), nullable=False),  # below the archive's base
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("digest", pa.string()),  # SHA-1 of the payload, base32
        pa.field("languages", pa.string()),
        pa.field("charset", pa.string()),
        pa.field("fetched", pa.int64(), nullable=False),  # seconds since 1970
    ],
    metadata={"wenhai.captures": "1"},
)


@dataclass(frozen=True)
class CcSelectStage(Stage):
    """Rows of an index file to captures."""

    name: ClassVar[str] = "cc_select"
    version: ClassVar[int] = 1

    files: tuple[File, ...]
    select: SelectConfig
    fetch: FetchConfig
    http: HttpConfig

    def config(self) -> dict[str, Any]:
        """The selection, and the longest record that may be asked for."""
        return {**self.select.model_dump(mode="json"), "max_record_bytes": self.fetch.max_record_bytes}

    def inputs(self) -> tuple[File, ...]:
        """The index files, sorted by URL."""
        return tuple(sorted(self.files, key=lambda file: file.url))

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a file."""
        return [Task(f"{index:05d}", (file,)) for index, file in enumerate(self.inputs())]

    def for_worker(self) -> CcSelectStage:
        """Without the list of files."""
        return replace(self, files=())

    def run(self, task: Task, out: Output) -> Counts:
        """Read, choose, write by bucket."""
        counts = Counts()
        with _Buckets(task.name, out, self.select.buckets) as buckets:
            for table in self._chosen(task.inputs[0], counts):
                counts.documents_out += table.num_rows
                buckets.add(table)
        return counts

    def _chosen(self, file: File, counts: Counts) -> Iterator[pa.Table]:
        left, seen = self.select.limit, 0
        with Index(file, self.http, self.select.host_suffixes) as index:
            counts.documents_in = index.num_rows
            for rows, table in index.tables():
                seen += rows
                if table is None:
                    counts.drop("host", rows)
                    continue
                chosen = choose(table, self.select, self.fetch.max_record_bytes, counts)
                if left is None:
                    yield chosen
                    continue
                yield chosen.slice(0, left)
                over = max(0, chosen.num_rows - left)
                left -= chosen.num_rows - over
                if left == 0:
                    if over + index.num_rows > seen:
                        counts.drop("limit", over + index.num_rows - seen)
                    return


@dataclass(frozen=True)
class CcSortStage(Stage):
    """Captures in the order of the archive, cut into the tasks of cc_fetch."""

    name: ClassVar[str] = "cc_sort"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("cc_select",)

    select: SelectConfig
    fetch: FetchConfig

    def config(self) -> dict[str, Any]:
        """How requests are joined (they are counted here) and how large tasks get."""
        keys = {"task_bytes", "gap_bytes", "request_bytes"}
        return {"limit": self.select.limit, **self.fetch.model_dump(mode="json", include=keys)}

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        """Consecutive buckets together up to `SORT_ROWS`; with a limit, the captures up to it, by index file."""
        buckets: dict[int, list[tuple[File, int]]] = {}
        left = self.select.limit
        for file in upstream["cc_select"].files("captures"):
            rows = file.rows if left is None else min(file.rows, left)
            left = None if left is None else left - rows
            if rows:
                buckets.setdefault(_bucket_of(file), []).append((file, rows))
        groups: list[list[tuple[File, int]]] = []
        held = 0
        for bucket in sorted(buckets):
            rows = sum(count for _, count in buckets[bucket])
            if not groups or held + rows > SORT_ROWS:
                groups.append([])
                held = 0
            groups[-1] += buckets[bucket]
            held += rows
        return [_sort_task(index, group) for index, group in enumerate(groups)]

    def run(self, task: Task, out: Output) -> Counts:
        """Sort, take what the index lists twice once, cut, count the requests."""
        rows = task.params["rows"]
        parts = [read_table(fetch(file.url)).slice(0, count) for file, count in zip(task.inputs, rows, strict=True)]
        table = pa.concat_tables(parts).sort_by(
            [("filename", "ascending"), ("offset", "ascending"), ("length", "descending"), ("url", "ascending")]
        )
        counts = Counts(documents_in=table.num_rows)
        twice = _repeats(table)
        if twice.any():
            counts.drop("duplicate", int(twice.sum()))
            table = table.filter(pa.array(~twice))
        counts.documents_out = table.num_rows
        lengths = table["length"].to_numpy()
        requests = gap_bytes = 0
        for part, (first, end) in enumerate(cut(lengths, self.fetch.task_bytes)):
            captures = table.slice(first, end - first)
            ranges = list(join(captures, self.fetch))
            requests += len(ranges)
            gap_bytes += sum(one.end - one.start for one in ranges) - int(lengths[first:end].sum())
            name = f"captures/{task.name}-{part:05d}.parquet"
            with out.create(name, rows=end - first) as path, TableWriter(path, CAPTURES_SCHEMA) as writer:
                writer.write(captures)
        counts.extra = {"record_bytes": int(lengths.sum()), "requests": requests, "gap_bytes": gap_bytes}
        return counts


class _Buckets(ExitStack):
    """The captures of one task, in a file for each bucket that has any."""

    def __init__(self, task: str, out: Output, num_buckets: int) -> None:
        super().__init__()
        self._task, self._out, self._num_buckets = task, out, num_buckets
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._writers: dict[int, TableWriter] = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None:
            self._flush()
        super().__exit__(kind, error, trace)
        if kind is None:
            for bucket, writer in self._writers.items():
                self._out.set_rows(self._name(bucket), writer.rows)

    def add(self, table: pa.Table) -> None:
        """Add captures."""
        self._tables.append(table)
        self._rows += table.num_rows
        if self._rows >= FLUSH_ROWS:
            self._flush()

    def _name(self, bucket: int) -> str:
        return f"captures/{self._task}-{bucket:04d}.parquet"

    def _flush(self) -> None:
        if not self._rows:
            return
        table = pa.concat_tables(self._tables)
        self._tables, self._rows = [], 0
        names = table["filename"].combine_chunks().dictionary_encode()
        of_name = [xxhash.xxh3_64_intdigest(name.encode()) % self._num_buckets for name in names.dictionary.to_pylist()]
        of_row = np.array(of_name, np.int64)[names.indices.to_numpy()]
        for bucket in np.unique(of_row):
            rows = table.filter(pa.array(of_row == bucket))
            if int(bucket) not in self._writers:
                path = self.enter_context(self._out.create(self._name(int(bucket))))
                self._writers[int(bucket)] = self.enter_context(TableWriter(path, CAPTURES_SCHEMA))
            self._writers[int(bucket)].write(rows)


def _sort_task(index: int, group: Sequence[tuple[File, int]]) -> Task:
    ordered = sorted(group, key=lambda one: one[0].url)
    return Task(f"{index:04d}", tuple(file for file, _ in ordered), {"rows": [rows for _, rows in ordered]})


def _bucket_of(file: File) -> int:
    return int(file.url.rsplit("-", 1)[-1].removesuffix(".parquet"))


def _repeats(table: pa.Table) -> npt.NDArray[np.bool_]:
    """Rows that have file and offset of the row before them."""
    offsets = table["offset"].to_numpy()
    names = table["filename"].combine_chunks().dictionary_encode().indices.to_numpy()
    same = (offsets[1:] == offsets[:-1]) & (names[1:] == names[:-1])
    return np.concatenate([np.zeros(min(1, len(offsets)), bool), same])


# -------------------------------------------------------------------------------------------------------------- rules


def choose(table: pa.Table, select: SelectConfig, max_record_bytes: int, counts: Counts) -> pa.Table:
    """The captures that are wanted of some rows of the index; the others are counted, each under the first rule it
    fails.
    """
    keep = np.ones(table.num_rows, bool)
    for rule, passes in _rules(table, select):
        fails = keep & ~passes
        if fails.any():
            counts.drop(rule, int(fails.sum()))
        keep &= passes
    table = table.filter(pa.array(keep)).select(CAPTURES_SCHEMA.names)
    needed = [field.name for field in CAPTURES_SCHEMA if not field.nullable]
    whole = np.logical_and.reduce([pc.is_valid(table[name]).to_numpy() for name in needed])
    table = _without(table, whole, counts.error, "place").cast(CAPTURES_SCHEMA)
    if select.sample < 1:
        inside = np.array([_share(url) < select.sample for url in table["url"].to_pylist()], bool)
        table = _without(table, inside, counts.drop, "sample")
    length, offset = table["length"].to_numpy(), table["offset"].to_numpy()
    proper = np.array([is_path(name) for name in table["filename"].to_pylist()], bool)
    proper &= (offset >= 0) & (offset < MAX_OFFSET) & (length > 0)
    table = _without(table, proper, counts.error, "place")
    return _without(table, table["length"].to_numpy() <= max_record_bytes, counts.error, "too_long")


def _rules(table: pa.Table, select: SelectConfig) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """What a capture must pass, in order: a rule's name and which rows pass."""

    def where(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.fill_null(mask, False).to_numpy(), bool)

    yield "subset", where(pc.fill_null(pc.equal(table["subset"], "warc"), True))
    yield "status", where(pc.equal(table["status"], 200))
    yield "truncated", where(pc.is_null(table["truncated"]))
    mime = pc.coalesce(table["mime"], table["declared_mime"])
    yield "mime", where(pc.is_in(mime, pa.array(select.mime_types, pa.string())))
    languages = "|".join(select.languages)
    pattern = f"^({languages})(,|$)" if select.primary else f"(^|,)({languages})(,|$)"
    yield "language", where(pc.match_substring_regex(table["languages"], pattern))
    if select.host_suffixes:
        hosts = "|".join(map(re.escape, select.host_suffixes))
        yield "host", where(pc.match_substring_regex(table["host"], rf"(^|\.)({hosts})$"))


def _without(table: pa.Table, mask: npt.NDArray[np.bool_], count: Callable[[str, int], None], rule: str) -> pa.Table:
    """The rows of the mask; the others are counted."""
    if mask.all():
        return table
    count(rule, int((~mask).sum()))
    return table.filter(pa.array(mask))


def _share(url: str) -> float:
    """A number in [0, 1) that is the URL's own."""
    return float(xxhash.xxh3_64_intdigest(url.encode()) / 2**64)

"""Which rows of an index are wanted: rules over whole columns, and a look at row groups before they are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from corpus.commoncrawl.client import is_path
from corpus.commoncrawl.config import SelectConfig
from corpus.engine.stage import Counts

MAX_OFFSET = 1 << 48
WWW = re.compile(r"www\d*\.")

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

"""Captures of one file that lie close together, as one request.

A crawl's files hold a request, a response and a metadata record for each page, so the responses of two pages that were
stored one after another lie some 2 kB apart. A joined request reads these bytes for nothing and saves a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.commoncrawl.config import FetchConfig


@dataclass(frozen=True)
class Range:
    """Bytes of one file, and the rows of the captures in them."""

    filename: str
    start: int
    end: int
    first_row: int
    end_row: int


def join(captures: pa.Table, config: FetchConfig) -> Iterator[Range]:
    """The requests for captures that are sorted by file and offset.

    Neighbours are joined where the gap is at most `gap_bytes` and both fit into `request_bytes`; records that overlap,
    as only a wrong index has them, are asked for one by one.
    """
    names = captures["filename"].to_pylist()
    starts, lengths = (captures[name].to_pylist() for name in ("offset", "length"))
    current: Range | None = None
    for row, (name, start, length) in enumerate(zip(names, starts, lengths, strict=True)):
        end = start + length
        if (
            current is not None
            and name == current.filename
            and 0 <= start - current.end <= config.gap_bytes
            and end - current.start <= config.request_bytes
        ):
            current = Range(name, current.start, end, current.first_row, row + 1)
            continue
        if current is not None:
            yield current
        current = Range(name, start, end, row, row + 1)
    if current is not None:
        yield current


def cut(lengths: npt.NDArray[np.int64], part_bytes: int) -> Iterator[tuple[int, int]]:
    """Consecutive rows of at most `part_bytes` in all, as (first, end); a larger row is a part of its own.

    >>> list(cut(np.array([4, 4, 4, 20, 1]), 10))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = np.concatenate([[0], np.cumsum(lengths)])
    first = 0
    while first < len(lengths):
        end = int(np.searchsorted(ends, ends[first] + part_bytes, "right")) - 1
        end = max(end, first + 1)
        yield first, end
        first = end

"""Joined requests cover every capture once, and how many requests that saves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpus.commoncrawl.config import FetchConfig
from corpus.commoncrawl.ranges import cut, join

CAPTURES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 300), st.integers(1, 60)), max_size=40)


def table(rows: list[tuple[str, int, int]]) -> pa.Table:
    names, offsets, lengths = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"filename": list(names), "offset": list(offsets), "length": list(lengths)})


@given(CAPTURES, st.integers(0, 50), st.integers(1, 200))
def test_every_capture_lies_in_its_request(rows: list[tuple[str, int, int]], gap: int, most: int) -> None:
    rows = sorted(rows)
    found = list(join(table(rows), FetchConfig(gap_bytes=gap, request_bytes=most)))
    assert [row for one in found for row in range(one.first_row, one.end_row)] == list(range(len(rows)))
    for one in found:
        mine = rows[one.first_row : one.end_row]
        assert {name for name, _, _ in mine} == {one.filename}
        assert one.start == mine[0][1] and one.end == mine[-1][1] + mine[-1][2]
        assert all(one.start <= start and start + length <= one.end for _, start, length in mine)
        assert len(mine) == 1 or one.end - one.start <= most
        for (_, start, length), (_, following, _) in pairwise(mine):
            assert 0 <= following - start - length <= gap
    for one, following in pairwise(found):  # none could have been joined
        far = not 0 <= following.start - one.end <= gap
        first_end = following.start + rows[following.first_row][2]
        assert one.filename != following.filename or far or first_end - one.start > most


@given(st.lists(st.integers(0, 50), max_size=50), st.integers(1, 100))
def test_parts_are_full_and_not_too_full(lengths: list[int], most: int) -> None:
    parts = list(cut(np.array(lengths, np.int64), most))
    assert [row for first, end in parts for row in range(first, end)] == list(range(len(lengths)))
    for first, end in parts:
        assert sum(lengths[first:end]) <= most or end - first == 1
        assert end == len(lengths) or sum(lengths[first : end + 1]) > most


def test_requests_saved_where_captures_lie_as_in_a_crawl() -> None:
    """One page in twenty is wanted, records take 25 kB, and 2 kB of request and metadata lie between responses."""
    dice = np.random.default_rng(0)
    wanted = np.flatnonzero(dice.random(40_000) < 0.05)
    rows = [("a", int(place) * 27_000, 25_000) for place in wanted]

    def requests(gap: int) -> int:
        return len(list(join(table(rows), FetchConfig(gap_bytes=gap))))

    assert requests(0) == len(rows)
    assert 0.93 < requests(4 << 10) / len(rows) < 0.97  # only neighbours, 5 in 100
    assert 0.83 < requests(64 << 10) / len(rows) < 0.89  # and those with two pages between them: 14 in 100

"""Samples: a few documents on each side of every limit, for the report and `retune`, chosen while the text is at hand.

For each limit there are the documents that it drops first and the kept ones, on both sides the `NEAREST` to the
threshold and `SPREAD` by the order of their ids, which are hashes: which ones depends on the shard's documents alone,
never on how they were cut into batches. `ANYWHERE` more stand for the rest. A shard has at most `ANYWHERE` samples and
20 a limit (some 400 bytes each), whatever its size; each costs the masking of its first characters.

A sample holds no raw personal data, also where the recipe keeps them: all kinds are masked before the excerpt is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.filters.columns import id_array
from corpus.filters.decide import PASSES, Limit
from corpus.filters.measure import STATISTICS
from corpus.safe import plain_url, snippet

NEAREST = 5  # a side of a limit
SPREAD = 5
ANYWHERE = 64  # a shard
SPARE = 3  # times as many candidates: one page often stands many times near a limit
EXCERPT_CHARS = 200
SCANNED_CHARS = EXCERPT_CHARS + 1024  # masked before the cut, so that no number is cut in two

SAMPLES_SCHEMA = pa.schema(
    [
        pa.field("row", pa.uint32(), nullable=False),  # in the extract stage's shard of the same name
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("url", pa.string()),  # without query, user and fragment
        pa.field("excerpt", pa.string(), nullable=False),  # one masked line
        pa.field("failed", pa.string()),  # the first limit that it fails, "length.num_chars.min"; null when kept
        pa.field("chosen_for", pa.list_(pa.string()), nullable=False),  # limits that it was chosen for
        *(entry.field(key).with_nullable(True) for key, entry in STATISTICS.items()),
    ],
    metadata={"wenhai.samples": "1"},
)

Order = tuple[float, int, int]  # distance to the threshold, priority, row: small ones first
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Sampler:
    """Keeps the samples of one shard while its documents pass by."""

    def __init__(self, limits: Sequence[Limit], schema: pa.Schema = SAMPLES_SCHEMA) -> None:
        self._limits, self._schema = limits, schema
        self._lists: dict[tuple[int, str, bool], list[Order]] = {}  # (limit, how it is chosen, dropped)
        self._held: dict[int, dict[str, Any]] = {}  # by row: what the sample will say, and the text's beginning
        self._excerpts: dict[int, str] = {}

    def add(self, documents: pa.Table, verdicts: pa.Table, measured: Mapping[str, Floats], failed: Ints) -> None:
        """Look at some documents, their verdicts, what limits read, and the limit that each failed first."""
        rows = documents["row"].to_numpy().astype(np.int64)
        priority = _priorities(documents["id"])
        by_priority = np.lexsort((rows, priority))
        entered: set[int] = set()

        def offer(limit: int, how: str, dropped: bool, at: Ints, distance: Floats | None, count: int) -> None:
            """Let the documents `at`, already in the order of their priorities, compete for the places of one list."""
            if distance is None:
                at, distance = at[:count], np.zeros(len(at[:count]))
            if len(distance) > count:  # the few that can win, before anything is sorted
                near = np.flatnonzero(distance <= np.partition(distance, count - 1)[count - 1])
                at, distance = at[near], distance[near]
            best = np.argsort(distance, kind="stable")[:count]
            at, gaps = at[best], distance[best].tolist()
            new = [(gap, int(priority[i]), int(rows[i])) for gap, i in zip(gaps, at.tolist(), strict=True)]
            name = (limit, how, dropped)
            self._lists[name] = sorted([*self._lists.get(name, []), *new])[:count]
            held = {row for _, _, row in self._lists[name]}
            entered.update(i for i in at.tolist() if int(rows[i]) in held)

        offer(PASSES, "spread", False, by_priority, None, ANYWHERE)
        kept = by_priority[failed[by_priority] == PASSES]
        for index, limit in enumerate(self._limits):
            values = np.where(limit.judges(measured), measured[limit.key], np.nan)
            for dropped, at in ((True, by_priority[failed[by_priority] == index]), (False, kept)):
                at = at[np.isfinite(values[at])]
                offer(index, "spread", dropped, at, None, SPREAD)
                offer(index, "nearest", dropped, at, np.abs(values[at] - limit.threshold), SPARE * NEAREST)
        self._hold(sorted(entered), documents, verdicts, failed)

    def table(self) -> pa.Table:
        """The samples, in the order of their rows; here their texts and URLs are masked."""
        chosen: dict[int, list[str]] = {}
        for (limit, how, _), candidates in sorted(self._lists.items()):
            count = NEAREST if how == "nearest" else SPREAD if limit != PASSES else ANYWHERE
            for row in self._distinct(candidates, count):
                names = chosen.setdefault(row, [])
                if limit != PASSES and self._limits[limit].name not in names:
                    names.append(self._limits[limit].name)
        rows = []
        for row in sorted(chosen):
            held = self._held[row]
            url = plain_url(held["url"]) if held["url"] else None
            rows.append(held | {"url": url, "excerpt": self._excerpt(row), "chosen_for": chosen[row]})
        return pa.Table.from_pylist(rows, self._schema)

    def _distinct(self, candidates: Sequence[Order], count: int) -> Iterator[int]:
        """The first `count` candidates that do not read the same."""
        read: set[str] = set()
        for _, _, row in candidates:
            if len(read) == count:
                return
            excerpt = self._excerpt(row)
            if excerpt not in read:
                read.add(excerpt)
                yield row

    def _excerpt(self, row: int) -> str:
        """The masked beginning of a document's text."""
        if row not in self._excerpts:
            self._excerpts[row] = snippet(self._held[row]["beginning"], EXCERPT_CHARS)
        return self._excerpts[row]

    def _hold(self, at: Sequence[int], documents: pa.Table, verdicts: pa.Table, failed: npt.NDArray[np.int64]) -> None:
        """Hold what these documents will say as samples, and forget those that are candidates no longer."""
        some = pa.array(at, pa.int64())
        texts = verdicts["text"].take(some)
        new = zip(
            documents.select(["row", "id", "url"]).take(some).to_pylist(),
            verdicts.select([name for name in verdicts.column_names if "." in name]).take(some).to_pylist(),
            pc.utf8_slice_codeunits(texts, 0, SCANNED_CHARS).to_pylist(),
            failed[np.array(at, np.int64)].tolist(),
            strict=True,
        )
        for document, statistics, beginning, index in new:
            document["failed"] = self._limits[index].name if index != PASSES else None
            self._held[document["row"]] = {**document, **statistics, "beginning": beginning}
        wanted = {row for candidates in self._lists.values() for _, _, row in candidates}
        self._held = {row: held for row, held in self._held.items() if row in wanted}


def _priorities(ids: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """uint64[documents]: the first bytes of the ids, which are hashes of the documents."""
    return np.ascontiguousarray(id_array(ids)[:, :8]).view(">u8").ravel().astype(np.uint64)

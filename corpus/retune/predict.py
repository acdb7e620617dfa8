"""What other rules would keep of a build, exactly: every stored document is judged again by its stored statistics.

One row group in memory and only the columns of the rules are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import read_batches, read_table
from corpus.engine import storage
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.stage import Folder, shard_name
from corpus.engine.storage import File
from corpus.filters.decide import PASSES, Limit, first_failed, limits
from corpus.filters.measure import stored
from corpus.report import ledger
from corpus.report.rows import column_names, read_row
from corpus.retune.thresholds import Thresholds
from corpus.safe import plain_url
from corpus.sources.packing import key_of

EXAMPLES = 10  # of documents that come in, and of those that go
CHARACTERS = "length.num_chars"
BYTES = "text_bytes"
NEW_RUN = "Only a new run can: python -m corpus run ..."

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Amount:
    """Documents and their text: characters after line edits, UTF-8 bytes after all edits."""

    documents: int
    characters: int
    text_bytes: int


@dataclass(frozen=True)
class RuleChange:
    """One range of a statistic and the documents that it drops first, before and after."""

    rule: str
    detail: str  # its reason and its condition, in words
    limits_before: Mapping[str, float]
    limits_after: Mapping[str, float]
    dropped_before: int
    dropped_after: int


@dataclass(frozen=True)
class Example:
    """A document whose fate changes; `limit` is what dropped it before, or drops it now. The excerpt is masked."""

    id: str
    ordinal: str
    url: str | None
    excerpt: str | None  # None: the filter stored no sample of this document
    limit: Limit
    value: float


@dataclass(frozen=True)
class Prediction:
    """What the filter stage would do under other rules. Duplicates are looked for later, among what it keeps."""

    measured: int
    before: Amount
    after: Amount
    rules: tuple[RuleChange, ...]
    kept_anew: int  # dropped before, kept after
    dropped_anew: int  # kept before, dropped after
    dropped_by_another: int  # dropped before and after, by different rules
    examples_kept: tuple[Example, ...] = field(default=())
    examples_dropped: tuple[Example, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self) | {
            name: [asdict(one) | {"limit": one.limit.as_json()} for one in getattr(self, name)]
            for name in ("examples_kept", "examples_dropped")
        }


def predict(folder: Folder, thresholds: Thresholds, documents: Folder | None = None) -> Prediction:
    """Judge all documents of a filter stage by other rules.

    Args:
        folder: the filter stage.
        documents: the extract stage, where ids and URLs of examples stand that are no samples.

    Raises:
        UsageError: a new rule is about a statistic that this build did not measure.
        WenhaiError: a file is damaged, or the stored verdicts are not those of the stored rules.
    """
    count = _Count(limits(thresholds.before), limits(thresholds.after))
    samples = {shard_name(file): file for file in folder.files("samples")}
    for file in folder.files("statistics"):
        shard = shard_name(file)
        if key_of(shard) in thresholds.apart:
            continue
        sampled = np.empty(0, np.int64)
        if shard in samples:
            sampled = read_table(storage.fetch(samples[shard].url), ["row"])["row"].to_numpy().astype(np.int64)
        for table in read_batches(storage.fetch(file.url), count.columns(file)):
            count.add(shard, table, sampled)
    count.require_measured()
    kept, dropped = (tuple(_describe(samples, documents, chosen)) for chosen in (count.kept_anew, count.dropped_anew))
    return Prediction(
        measured=count.measured,
        before=Amount(*count.before.tolist()),
        after=Amount(*count.after.tolist()),
        rules=tuple(count.rule_changes()),
        kept_anew=count.num_kept_anew,
        dropped_anew=count.num_dropped_anew,
        dropped_by_another=count.num_by_another,
        examples_kept=kept,
        examples_dropped=dropped,
    )


@dataclass(frozen=True, order=True)
class _Chosen:
    """A document that may be an example: samples first, then in an order that has nothing to do with their places."""

    not_sampled: bool
    priority: int
    shard: str
    row: int
    limit: Limit = field(compare=False)
    value: float = field(compare=False)


class _Count:
    """Verdicts before and after, added up."""

    def __init__(self, old: Sequence[Limit], new: Sequence[Limit]) -> None:
        self._old, self._new = old, new
        self._keys = list(dict.fromkeys(key for limit in (*old, *new) for key in limit.keys))
        self._ranges = list(dict.fromkeys((limit.key, limit.detail) for limit in (*old, *new)))
        self._places = [
            np.array([*(self._ranges.index((limit.key, limit.detail)) for limit in tried), PASSES])
            for tried in (old, new)
        ]  # the range of each limit; index -1 is PASSES
        self._numbers = dict.fromkeys(self._keys, 0)  # values that are numbers
        self.measured = 0
        self.before, self.after = np.zeros(3, np.int64), np.zeros(3, np.int64)
        self._dropped_before, self._dropped_after = (np.zeros(len(self._ranges) + 1, np.int64) for _ in range(2))
        self.num_kept_anew = self.num_dropped_anew = self.num_by_another = 0
        self.kept_anew: list[_Chosen] = []
        self.dropped_anew: list[_Chosen] = []

    def columns(self, file: File) -> list[str]:
        """What to read of a `statistics` file.

        Raises:
            UsageError: it lacks a statistic that a rule asks for, or was written by an older version.
        """
        wanted = list(dict.fromkeys(["row", "kept", BYTES, CHARACTERS, *self._keys]))
        missing = sorted(set(wanted) - set(column_names(file)))
        if missing:
            raise UsageError(f"{file.url}: this build did not measure {', '.join(missing)}. {NEW_RUN}")
        return wanted

    def add(self, shard: str, table: pa.Table, sampled: Ints) -> None:
        """Judge one row group; `sampled` are the rows of the shard that samples tell of."""
        measured = stored(table, self._keys)
        for key, values in measured.items():
            self._numbers[key] += int(np.count_nonzero(~np.isnan(values)))
        was = first_failed(measured, self._old, table.num_rows)
        now = first_failed(measured, self._new, table.num_rows)
        passed, passes = was == PASSES, now == PASSES
        if not np.array_equal(passed, table["kept"].to_numpy()):
            raise WenhaiError(f"shard {shard}: its verdicts are not those of its rules. Run `python -m corpus verify`.")
        characters = np.nan_to_num(table[CHARACTERS].to_numpy())
        size = np.stack([np.ones(table.num_rows), characters, table[BYTES].to_numpy()]).astype(np.int64)
        self.measured += table.num_rows
        self.before += size[:, passed].sum(axis=1)
        self.after += size[:, passes].sum(axis=1)
        old_range, new_range = self._places[0][was], self._places[1][now]
        self._dropped_before += np.bincount(old_range + 1, minlength=len(self._ranges) + 1)
        self._dropped_after += np.bincount(new_range + 1, minlength=len(self._ranges) + 1)
        self.num_kept_anew += int((~passed & passes).sum())
        self.num_dropped_anew += int((passed & ~passes).sum())
        self.num_by_another += int((~passed & ~passes & (old_range != new_range)).sum())

        rows = table["row"].to_numpy().astype(np.int64)
        priority = ledger.priorities(shard, rows)
        not_sampled = ~np.isin(rows, sampled)

        def choose(before: list[_Chosen], changed: Bools, tried: Sequence[Limit], failed: Ints) -> list[_Chosen]:
            at = np.flatnonzero(changed)
            at = at[np.lexsort((priority[at], not_sampled[at]))[:EXAMPLES]]
            new = [
                _Chosen(
                    bool(not_sampled[i]), int(priority[i]), shard, int(rows[i]), limit, float(measured[limit.key][i])
                )
                for i, limit in ((i, tried[failed[i]]) for i in at.tolist())
            ]
            return sorted([*before, *new])[:EXAMPLES]

        self.kept_anew = choose(self.kept_anew, ~passed & passes, self._old, was)
        self.dropped_anew = choose(self.dropped_anew, passed & ~passes, self._new, now)

    def require_measured(self) -> None:
        """Refuse rules about statistics that are nowhere a number.

        Raises:
            UsageError: names them.
        """
        known = {key for limit in self._old for key in limit.keys}  # nobody asks anew
        missing = [key for key, numbers in self._numbers.items() if self.measured and not numbers and key not in known]
        if missing:
            raise UsageError(f"this build did not measure {', '.join(missing)}. {NEW_RUN}")

    def rule_changes(self) -> Iterator[RuleChange]:
        """One line a range before or after, in the order of the rules."""
        for index, (key, detail) in enumerate(self._ranges):
            old, new = (
                {limit.bound: limit.threshold for limit in tried if (limit.key, limit.detail) == (key, detail)}
                for tried in (self._old, self._new)
            )
            yield RuleChange(
                key, detail, old, new, int(self._dropped_before[index + 1]), int(self._dropped_after[index + 1])
            )


def _describe(samples: Mapping[str, File], documents: Folder | None, chosen: Sequence[_Chosen]) -> Iterator[Example]:
    """The examples in words: from the samples, or id and URL from the extract stage."""
    data = {shard_name(file): file for file in documents.files()} if documents else {}
    for one in chosen:
        known: dict[str, Any] = {"id": b"", "url": None, "excerpt": None}
        if not one.not_sampled:
            table = read_table(storage.fetch(samples[one.shard].url), ["row", "id", "url", "excerpt"])
            known |= table.filter(pc.equal(table["row"], one.row)).to_pylist()[0]
        elif one.shard in data:
            known |= read_row(data[one.shard], one.row, ["id", "url"]).to_pylist()[0]
            known["url"] = plain_url(known["url"]) if known["url"] else None
        ordinal = f"{one.shard}:{one.row}"
        yield Example(known["id"].hex(), ordinal, known["url"], known["excerpt"], one.limit, one.value)

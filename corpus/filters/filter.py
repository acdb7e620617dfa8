"""The filter itself: normalise, edit lines, measure, decide, mask.

In this order, so that kept text obeys its own rules: statistics are of the text after line edits, and a placeholder
for a telephone number does not change them. Each document is judged alone: verdicts are the same for any split of a
corpus into batches. Python strings are made only of the documents that an editor may change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.document import EDITS
from corpus.filters import edits
from corpus.filters.columns import slices, text_column, url_column
from corpus.filters.config import FilterConfig
from corpus.filters.decide import PASSES, first_failed, limits
from corpus.filters.measure import STATISTICS, measure_all
from corpus.filters.resources import load_resources
from corpus.filters.rules.own import own_fields
from corpus.filters.statistic import Batch, Floats

VERDICT_SCHEMA = pa.schema(
    [
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("rule", pa.string()),  # the first rule that failed, "length.num_chars"; null when kept
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("bound", pa.string()),  # "min" or "max"
        pa.field("detail", pa.string()),  # the reason of the rule, the condition of the range
        pa.field("text", pa.large_string(), nullable=False),  # after all edits
        EDITS,
        *(entry.field(key) for key, entry in STATISTICS.items()),
    ]
)
_MASKED_SCHEMA = pa.schema([field for field in VERDICT_SCHEMA if field.name not in STATISTICS])


class Verdict(NamedTuple):
    """What was decided of one document."""

    kept: bool
    rule: str | None
    value: float | None
    threshold: float | None
    bound: str | None
    text: str
    detail: str | None = None


@dataclass(frozen=True)
class Verdicts:
    """One row a document, in the order they came; `table` has `VERDICT_SCHEMA`: verdict, text, edits, statistics; and
    what rules of the recipe's own measure."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Verdict]:
        for batch in self.table.select(list(Verdict._fields)).to_batches():
            for row in batch.to_pylist():
                yield Verdict(**row)

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """bool[documents]."""
        return np.asarray(self.table["kept"].to_numpy(), np.bool_)


class Filter:
    """A recipe's filter stage, ready to be applied; may be called from several threads."""

    def __init__(self, config: FilterConfig) -> None:
        self.config = config
        self.rules = config.rules
        self.limits = limits(self.rules)
        self.resources = load_resources(config)
        self.schema = pa.schema([*VERDICT_SCHEMA, *own_fields(config.own)])  # of verdicts

    def apply(self, documents: pa.Table | pa.RecordBatch | Sequence[str | None], column: str = "text") -> Verdicts:
        """Judge documents: an Arrow table with a text column, or texts. A null is judged as an empty document.

        URL rules need a table with a `url` column; documents without a URL pass them.
        Bytes that are not UTF-8 (a damaged file's) count as U+FFFD each.

        Raises:
            UsageError: the table has no such column, or it does not hold strings.
        """
        texts = text_column(documents, column)
        urls = url_column(documents)
        parts = []
        start = 0
        for part in slices(texts):
            parts.append(self._judge(part, urls.slice(start, len(part)) if urls is not None else None))
            start += len(part)
        return Verdicts(pa.concat_tables(parts) if parts else self.schema.empty_table())

    def personal_only(self) -> Filter:
        """The same filter without everything but the masking of personal data: no rules, no other edits, all kept."""
        return _PersonalOnly(self.config)

    def _judge(self, texts: pa.LargeStringArray, urls: pa.StringArray | None) -> pa.Table:
        config = self.config.edit
        texts, log = edits.edit(texts, config.boilerplate_lines, config.script)
        batch = Batch(texts, self.resources, urls)
        statistics = measure_all(batch)
        own = {rule.key: rule.values(batch, statistics, self.resources.code) for rule in self.config.own}
        verdict = self._decide(statistics | own, len(texts))
        verdict["text"] = edits.mask(texts, batch.personal, config.personal_data, log)
        verdict["edits"] = log.column(len(texts))
        columns = {key: STATISTICS[key].column(values) for key, values in statistics.items()}
        columns |= {key: pa.array(values, from_pandas=True) for key, values in own.items()}
        return pa.table({**verdict, **columns}, schema=self.schema)

    def _decide(self, statistics: dict[str, Floats], documents: int) -> dict[str, Any]:
        """The first rule of the recipe that a document fails."""
        failed = first_failed(statistics, self.limits, documents)
        kept = failed == PASSES
        value = np.zeros(documents, np.float64)
        for index in np.unique(failed[~kept]).tolist():
            here = failed == index
            value[here] = statistics[self.limits[index].key][here]
        chosen = [self.limits[index] if index != PASSES else None for index in failed.tolist()]
        return {
            "kept": pa.array(kept),
            "rule": pa.array([limit.key if limit else None for limit in chosen], pa.string()),
            "value": pa.array(value, mask=kept),
            "threshold": pa.array([limit.threshold if limit else None for limit in chosen], pa.float64()),
            "bound": pa.array([limit.bound if limit else None for limit in chosen], pa.string()),
            "detail": pa.array([limit.detail or None if limit else None for limit in chosen], pa.string()),
        }


class _PersonalOnly(Filter):
    """Masks and keeps; statistics are not measured, so its table has none."""

    def _judge(self, texts: pa.LargeStringArray, urls: pa.StringArray | None) -> pa.Table:
        log = edits.Edits()
        batch = Batch(texts, self.resources, urls)
        edited = edits.mask(texts, batch.personal, self.config.edit.personal_data, log)
        empty = {name: pa.nulls(len(texts), VERDICT_SCHEMA.field(name).type) for name in Verdict._fields}
        kept = pa.array(np.ones(len(texts), np.bool_))
        columns = {**empty, "kept": kept, "text": edited, "edits": log.column(len(texts))}
        return pa.table(columns, schema=_MASKED_SCHEMA)

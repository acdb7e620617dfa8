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
import pyarrow.compute as pc

from corpus.engine.errors import UsageError
from corpus.filters import boilerplate, scan
from corpus.filters.blocklist import load_blocklist
from corpus.filters.config import FilterConfig
from corpus.filters.measure import STATISTICS, measure_all
from corpus.filters.personal import mask_with_counts
from corpus.filters.statistic import Floats, buffers
from corpus.normalize import normalize_with_changes

MAX_SLICE_BYTES = 16 << 20  # text measured at once; bounds scratch memory, changes no verdict
MAX_SLICE_ROWS = 8192

EDIT = pa.struct([("kind", pa.string()), ("line", pa.uint32()), ("count", pa.uint32())])
VERDICT_SCHEMA = pa.schema(
    [
        pa.field("kept", pa.bool_(), nullable=False),
        pa.field("rule", pa.string()),  # the first rule that failed, "length.num_chars"; null when kept
        pa.field("value", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("bound", pa.string()),  # "min" or "max"
        pa.field("text", pa.large_string(), nullable=False),  # after all edits
        pa.field("edits", pa.list_(EDIT)),  # null when nothing was changed
        *(pa.field(key, pa.float64(), nullable=False) for key in STATISTICS),
    ]
)


class Verdict(NamedTuple):
    """What was decided of one document."""

    kept: bool
    rule: str | None
    value: float | None
    threshold: float | None
    bound: str | None
    text: str


@dataclass(frozen=True)
class Verdicts:
    """One row a document, in the order they came; `table` has `VERDICT_SCHEMA`: verdict, text, edits, statistics."""

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
        self.rules = self.config.rules
        self._blocklist = load_blocklist(self.config.blocklist.lists)

    def apply(self, documents: pa.Table | pa.RecordBatch | Sequence[str | None], column: str = "text") -> Verdicts:
        """Judge documents: an Arrow table with a text column, or texts. A null is judged as an empty document.

        Bytes that are not UTF-8 (a damaged file's) count as U+FFFD each.

        Raises:
            UsageError: the table has no such column, or it does not hold strings.
        """
        parts = [self._judge(part) for part in _slices(_text_column(documents, column))]
        return Verdicts(pa.concat_tables(parts) if parts else VERDICT_SCHEMA.empty_table())

    def _judge(self, texts: pa.LargeStringArray) -> pa.Table:
        edits: dict[int, list[dict[str, Any]]] = {}
        texts = self._normalize(texts, edits)
        if self.config.edit.boilerplate_lines:
            texts = self._remove_lines(texts, edits)
        statistics = measure_all(texts, self._blocklist)
        verdict = self._decide(statistics, len(texts))
        if self.config.edit.personal_data:
            texts = self._mask(texts, edits)
        verdict["text"] = texts
        verdict["edits"] = pa.array([edits.get(row) for row in range(len(texts))], pa.list_(EDIT))
        return pa.table({**verdict, **statistics}, schema=VERDICT_SCHEMA)

    def _normalize(self, texts: pa.LargeStringArray, edits: dict[int, list[dict[str, Any]]]) -> pa.LargeStringArray:
        offsets, data = buffers(texts)
        flags = np.zeros(len(texts), np.uint8)
        scan.needs_normalizing(offsets, data, scan.suspicious_table(), flags)
        changed = {}
        for row in np.flatnonzero(flags).tolist():
            text, changes = normalize_with_changes(texts[row].as_py(), characters=bool(flags[row] & scan.CHARACTERS))
            if changes:
                changed[row] = text
                for kind, count in changes.items():
                    _record(edits, row, f"normalize.{kind}", None, count)
        return _replace(texts, changed)

    def _remove_lines(self, texts: pa.LargeStringArray, edits: dict[int, list[dict[str, Any]]]) -> pa.LargeStringArray:
        changed = {}
        for row, text, removed in boilerplate.remove_lines(*buffers(texts)):
            changed[row] = text
            for line in removed:
                _record(edits, row, f"boilerplate.{line.kind}", line.line, 1)
        return _replace(texts, changed)

    def _mask(self, texts: pa.LargeStringArray, edits: dict[int, list[dict[str, Any]]]) -> pa.LargeStringArray:
        offsets, data = buffers(texts)
        flags = np.zeros(len(texts), np.bool_)
        scan.may_hold_personal_data(offsets, data, flags)
        changed = {}
        for row in np.flatnonzero(flags).tolist():
            text, counts = mask_with_counts(texts[row].as_py(), self.config.edit.personal_data)
            if counts:
                changed[row] = text
                for kind, count in counts.items():
                    _record(edits, row, f"personal.{kind}", None, count)
        return _replace(texts, changed)

    def _decide(self, statistics: dict[str, Floats], documents: int) -> dict[str, Any]:
        """The first rule of the recipe that a document fails."""
        failed = np.full(documents, -1, np.int64)
        value = np.zeros(documents, np.float64)
        threshold = np.zeros(documents, np.float64)
        labels: list[tuple[str, str]] = []
        for rule in self.rules:
            measured = statistics[rule.key]
            for bound, limit in (("min", rule.min), ("max", rule.max)):
                if limit is None:
                    continue
                outside = measured < limit if bound == "min" else measured > limit
                new = outside & (failed < 0)
                failed[new] = len(labels)
                value[new] = measured[new]
                threshold[new] = limit
                labels.append((rule.key, bound))
        kept = failed < 0
        chosen = [labels[index] if index >= 0 else (None, None) for index in failed.tolist()]
        return {
            "kept": pa.array(kept),
            "rule": pa.array([rule for rule, _ in chosen], pa.string()),
            "value": pa.array(value, mask=kept),
            "threshold": pa.array(threshold, mask=kept),
            "bound": pa.array([bound for _, bound in chosen], pa.string()),
        }


def _record(edits: dict[int, list[dict[str, Any]]], row: int, kind: str, line: int | None, count: int) -> None:
    edits.setdefault(row, []).append({"kind": kind, "line": line, "count": count})


def _replace(texts: pa.LargeStringArray, changed: dict[int, str]) -> pa.LargeStringArray:
    """`texts` with some rows replaced."""
    if not changed:
        return texts
    mask = np.zeros(len(texts), np.bool_)
    rows = sorted(changed)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array([changed[row] for row in rows], pa.large_string()))


def _text_column(documents: Any, column: str) -> pa.LargeStringArray:
    """The texts as one large_string array: no nulls, valid UTF-8."""
    if isinstance(documents, pa.Table | pa.RecordBatch):
        if column not in documents.schema.names:
            raise UsageError(
                f"the table has no column {column!r}; it has {', '.join(documents.schema.names) or 'none'}."
            )
        texts = documents.column(column)
    elif isinstance(documents, pa.Array | pa.ChunkedArray):
        texts = documents
    elif isinstance(documents, str):
        raise UsageError("one string is not a sequence of documents: give [text].")
    else:
        texts = pa.array([_storable(text) for text in documents], pa.large_string())
    kind = texts.type.value_type if pa.types.is_dictionary(texts.type) else texts.type
    if not (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    ):
        raise UsageError(f"column {column!r} holds {texts.type}, not strings.")
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
        if isinstance(texts, pa.ChunkedArray):  # an empty table has no chunk
            texts = texts.chunk(0) if texts.num_chunks else pa.array([], texts.type)
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = pc.fill_null(texts, "")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raw = texts.cast(pa.large_binary(), safe=False).to_pylist()
        texts = pa.array([text.decode("utf-8", "replace") for text in raw], pa.large_string())
    return texts


def _storable(text: str | None) -> str | None:
    """Arrow cannot store lone surrogates; they become U+FFFD."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _slices(texts: pa.LargeStringArray) -> Iterator[pa.LargeStringArray]:
    offsets, _ = buffers(texts)
    start = 0
    while start < len(texts):
        stop = int(np.searchsorted(offsets, offsets[start] + MAX_SLICE_BYTES, side="right")) - 1
        stop = min(max(stop, start + 1), start + MAX_SLICE_ROWS, len(texts))
        yield texts.slice(start, stop - start)
        start = stop

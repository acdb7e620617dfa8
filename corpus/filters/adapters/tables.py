"""From a filter's verdicts back to what other corpora have: tables of any columns, and `datasets.Dataset.map`.

Every column passes through; only the text of a document that an editor changed is replaced, in the column's own type.
Batches can be judged by several threads (kernels and automata release the interpreter); they come back in order, so
that output does not depend on the number of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters import Filter, Verdicts, load
from corpus.filters.columns import storable

VERDICT_COLUMN = "filter_verdict"  # what is added to a dropped document
REASON = pa.struct(
    [
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("bound", pa.string()),
        ("detail", pa.string()),
    ]
)

Batch = TypeVar("Batch")


def kept_rows(table: pa.Table, verdicts: Verdicts, column: str = "text") -> pa.Table:
    """The kept rows of `table` with edited text: same schema, metadata included.

    >>> saying = "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠，不亦君子乎？温故而知新，可以为师矣。"
    >>> table = pa.table({"text": ["首页 登录", saying + "电话13800138000。"], "page": [7, 8]})
    >>> [row] = kept_rows(table, load("web_zh").apply(table)).to_pylist()
    >>> row["text"][-12:], row["page"]
    ('。电话<MOBILE>。', 8)
    """
    return _select(_with_edits(table, verdicts, column), verdicts.table["kept"])


def dropped_rows(table: pa.Table, verdicts: Verdicts, column: str = "text") -> pa.Table:
    """The dropped rows, edited (personal data masked) too, and a column `filter_verdict` that says which rule."""
    drop = pc.invert(verdicts.table["kept"])
    reasons = verdicts.table.select(REASON.names).filter(drop)
    rows = _select(_with_edits(table, verdicts, column), drop)
    return rows.append_column(pa.field(VERDICT_COLUMN, REASON), reasons.to_struct_array().cast(REASON))


def statistics_rows(verdicts: Verdicts, rows: Sequence[int]) -> pa.Table:
    """A row a document, kept or not: its row in the input (for JSONL its line), verdict, edits, statistics; no text."""
    column = pa.array(rows, pa.uint64())
    return verdicts.table.drop_columns(["text"]).add_column(0, pa.field("row", pa.uint64(), nullable=False), column)


def judge_in_order(
    judge: Filter, batches: Iterable[Batch], table_of: Callable[[Batch], pa.Table], column: str, threads: int = 1
) -> Iterator[tuple[Batch, Verdicts]]:
    """Each batch with its verdicts, in order; at most `threads` + 1 batches are held."""
    if threads <= 1:
        for batch in batches:
            yield batch, judge.apply(table_of(batch), column)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[tuple[Batch, Future[Verdicts]]] = deque()
        for batch in batches:
            waiting.append((batch, pool.submit(judge.apply, table_of(batch), column)))
            if len(waiting) > threads:
                first, verdicts = waiting.popleft()
                yield first, verdicts.result()
        while waiting:
            first, verdicts = waiting.popleft()
            yield first, verdicts.result()


class DatasetFilter:
    """A filter for `datasets`: `dataset.map(f, batched=True)` drops and edits, `dataset.filter(f.keeps, batched=True)`
    only drops. See `for_datasets`."""

    def __init__(
        self,
        recipe: str,
        overrides: tuple[str, ...] = (),
        column: str = "text",
        allow_code: bool = False,
        digest: str = "",
    ) -> None:
        self.recipe, self.overrides, self.column, self.allow_code = recipe, overrides, column, allow_code
        self.digest = digest or durable.digest(_load(recipe, overrides, allow_code).config.meaning())

    def __reduce__(self) -> tuple[type[DatasetFilter], tuple[Any, ...]]:
        """Sent to workers, and hashed by `datasets` for its cache, as the recipe's name and meaning."""
        return DatasetFilter, (self.recipe, self.overrides, self.column, self.allow_code, self.digest)

    def __call__(self, batch: Any) -> Any:
        """The kept rows of a batch: columns of lists give lists, an Arrow table gives an Arrow table."""
        judge = _load(self.recipe, self.overrides, self.allow_code)
        if isinstance(batch, pa.Table):
            return kept_rows(batch, judge.apply(batch, self.column), self.column)
        verdicts = judge.apply(self._table(batch), self.column)
        texts = verdicts.table["text"].to_pylist()
        kept = [row for row, keep in enumerate(verdicts.kept.tolist()) if keep]
        columns = {name: [values[row] for row in kept] for name, values in batch.items()}
        return columns | {self.column: [texts[row] for row in kept]}

    def keeps(self, batch: Any) -> list[bool]:
        """Whether each document of a batch is kept."""
        judge = _load(self.recipe, self.overrides, self.allow_code)
        table = batch if isinstance(batch, pa.Table) else self._table(batch)
        return [bool(keep) for keep in judge.apply(table, self.column).kept]

    def _table(self, batch: Any) -> pa.Table:
        """The columns that a filter looks at."""
        if self.column not in batch:
            raise UsageError(f"the dataset has no column {self.column!r}; it has {', '.join(batch)}.")
        urls = batch.get("url") if self.column != "url" else None
        return text_table(batch[self.column], urls, self.column)


def for_datasets(
    recipe: str | Path, overrides: Sequence[str] = (), column: str = "text", *, allow_code: bool = False
) -> DatasetFilter:
    """A callable for Hugging Face `datasets`; the arguments are those of `load`, checked here and now.

    With `dataset.with_format("arrow")` a batch stays an Arrow table and no row becomes a Python object.

    Raises:
        UsageError: no such recipe, or errors in it.

    >>> for_datasets("web_zh")({"text": ["首页 登录"], "page": [7]})
    {'text': [], 'page': []}
    """
    return DatasetFilter(str(recipe), tuple(overrides), column, allow_code)


def text_table(texts: Sequence[str | None], urls: Sequence[Any] | None, column: str) -> pa.Table:
    """What `Filter.apply` looks at, from Python values: the texts and, where they are known, the URLs."""
    columns = {column: pa.array([storable(text) for text in texts], pa.large_string())}
    if urls is not None:
        columns["url"] = pa.array([storable(url) if isinstance(url, str) else None for url in urls], pa.string())
    return pa.table(columns)


@lru_cache(maxsize=4)
def _load(recipe: str, overrides: tuple[str, ...], allow_code: bool) -> Filter:
    return load(recipe, overrides, allow_code=allow_code)


def _select(table: pa.Table, rows: pa.ChunkedArray) -> pa.Table:
    """Some rows. Arrow cannot yet select rows of a view column (pyarrow 26): those make a detour."""
    schema = table.schema
    for index, field in enumerate(schema):
        if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type):
            plain = pa.large_string() if pa.types.is_string_view(field.type) else pa.large_binary()
            table = table.set_column(index, field.name, table.column(index).cast(plain))
    return table.filter(rows).cast(schema)


def _with_edits(table: pa.Table, verdicts: Verdicts, column: str) -> pa.Table:
    """`table` with the texts that editors changed; untouched where they changed none."""
    edited = pc.is_valid(verdicts.table["edits"])
    if not pc.any(edited).as_py():
        return table
    index = table.schema.get_field_index(column)
    field = table.schema.field(index)
    texts = pc.if_else(edited, verdicts.table["text"], table.column(index).cast(pa.large_string()))
    if pa.types.is_dictionary(field.type):
        texts = texts.cast(field.type.value_type).dictionary_encode()
    return table.set_column(index, field, texts.cast(field.type))

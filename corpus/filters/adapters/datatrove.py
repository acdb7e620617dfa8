"""Our filter as a step of a datatrove pipeline, in place of its Gopher, C4, FineWeb and PII steps.

    from corpus.filters.adapters.datatrove import ChineseFilter
    LocalPipelineExecutor([JsonlReader("in/"), ChineseFilter("web_zh", exclusion_writer=JsonlWriter("dropped/")),
    JsonlWriter("kept/")])

Documents are judged in batches: kernels see megabytes at a time. Kept documents carry the edited text; dropped ones get
`filter_reason` from datatrove and `filter_value`, `filter_threshold` from here. Written for datatrove 0.10.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters.base_filter import BaseFilter
from datatrove.pipeline.writers.disk_base import DiskWriter

from corpus.filters import Filter, load
from corpus.filters.adapters.tables import text_table

BATCH_DOCUMENTS = 512


class ChineseFilter(BaseFilter):  # type: ignore[misc]  # datatrove has no types
    """Keep, drop and edit documents as a recipe of ours says; arguments as `corpus.filters.load`.

    A URL in `metadata["url"]` is seen by the recipe's URL rules.
    """

    name = "wenhai filter"

    def __init__(
        self,
        recipe: str = "web_zh",
        overrides: Sequence[str] = (),
        exclusion_writer: DiskWriter | None = None,
        batch_size: int = BATCH_DOCUMENTS,
        allow_code: bool = False,
    ) -> None:
        super().__init__(exclusion_writer, batch_size)
        self.recipe, self.overrides, self.allow_code = recipe, tuple(overrides), allow_code
        self._load()  # a mistake is told where the pipeline is written, not on a worker
        self._judge: Filter | None = None  # loaded by each worker, once

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        """One document."""
        return self.filter_batch([doc])[0]

    def filter_batch(self, batch: list[Document]) -> list[bool | tuple[bool, str]]:
        """True, or False and the rule, for each document; texts are edited in place."""
        if self._judge is None:
            self._judge = self._load()
        urls = [doc.metadata.get("url") for doc in batch]
        table = self._judge.apply(text_table([doc.text for doc in batch], urls, "text")).table
        results: list[bool | tuple[bool, str]] = []
        columns = ("kept", "rule", "value", "threshold", "text", "edits")
        for doc, verdict in zip(batch, table.select(columns).to_pylist(), strict=True):
            self._take(doc, verdict)
            results.append(True if verdict["kept"] else (False, verdict["rule"]))
        return results

    def _load(self) -> Filter:
        return load(self.recipe, self.overrides, allow_code=self.allow_code)

    def _take(self, doc: Document, verdict: dict[str, Any]) -> None:
        if verdict["edits"] is not None:
            doc.text = verdict["text"]
            self.stat_update("edited")
        if not verdict["kept"]:
            doc.metadata |= {"filter_value": verdict["value"], "filter_threshold": verdict["threshold"]}

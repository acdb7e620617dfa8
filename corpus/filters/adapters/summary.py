"""What happened to the documents of a stream or of files, counted and told to a person."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from corpus.filters import Verdicts

SHOWN_BAD_LINES = 20


@dataclass
class Summary:
    """documents = kept + dropped; `bad` are records that could not be judged; text bytes and seconds give the speed."""

    log: Callable[[str], Any]
    documents: int = 0
    kept: int = 0
    edited: int = 0
    text_bytes: int = 0
    kept_bytes: int = 0
    earlier_bytes: int = 0  # of text_bytes
    dropped: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    start: float = field(default_factory=time.perf_counter)

    def add(self, text_bytes: int, verdicts: Verdicts) -> None:
        """Count a batch of documents, of so many UTF-8 bytes."""
        kept = verdicts.table.filter(verdicts.table["kept"])
        self.documents += len(verdicts)
        self.kept += kept.num_rows
        self.edited += kept.num_rows - kept["edits"].null_count
        self.text_bytes += text_bytes
        self.kept_bytes += int(pc.sum(pc.binary_length(kept["text"])).as_py() or 0)
        for entry in pc.value_counts(verdicts.table["rule"].drop_null()).to_pylist():
            self.dropped[entry["values"]] += entry["counts"]

    def add_bad(self, kind: str, message: str, count: int = 1) -> None:
        """Count records that cannot be judged; the first few are told."""
        self.bad[kind] += count
        told = self.bad.total()
        if told <= SHOWN_BAD_LINES or told == count:
            self.log(message)
        elif told - count <= SHOWN_BAD_LINES:
            self.log("further bad lines are counted, not shown")

    def as_json(self) -> dict[str, Any]:
        """The counts."""
        names = ("documents", "kept", "edited", "text_bytes", "kept_bytes")
        return {name: getattr(self, name) for name in names} | {"dropped": dict(self.dropped), "bad": dict(self.bad)}

    def merge(self, counts: dict[str, Any], *, again: bool = False) -> None:
        """Add what `as_json` gave; `again`, an earlier run did the work, so it counts for no speed."""
        self.earlier_bytes += counts["text_bytes"] if again else 0
        for name in ("documents", "kept", "edited", "text_bytes", "kept_bytes"):
            setattr(self, name, getattr(self, name) + counts[name])
        self.dropped.update(counts["dropped"])
        self.bad.update(counts["bad"])

    def render(self) -> str:
        """The summary as a person reads it."""
        seconds = time.perf_counter() - self.start
        rows = [
            ("documents", self.documents + self.bad.total(), f"{self.text_bytes / 1e6:,.1f} MB of text"),
            ("kept", self.kept, f"{self.kept_bytes / 1e6:,.1f} MB, {self.edited:,} of them edited"),
            ("dropped", self.dropped.total(), ""),
            *((f"  {rule}", count, "") for rule, count in self.dropped.most_common()),
            ("bad", self.bad.total(), ""),
            *((f"  {kind}", count, "") for kind, count in self.bad.most_common()),
        ]
        lines = [f"{name:<40} {count:>12,}  {note}".rstrip() for name, count, note in rows]
        rate = (self.text_bytes - self.earlier_bytes) / 1e6 / seconds
        return "\n".join([*lines, f"{seconds:,.1f} s, {rate:,.1f} MB/s" if rate else f"{seconds:,.1f} s"])

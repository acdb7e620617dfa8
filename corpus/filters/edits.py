"""The editors: what changes text, and the record of what each changed.

An editor takes a batch's texts and returns them with some rows replaced; what it did goes into `Edits`, from where the
ledger has it. A kernel or an automaton says which documents an editor may change at all, so that Python strings are
made only of those.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import opencc
import pyarrow as pa
import pyarrow.compute as pc

from corpus.document import EDITS
from corpus.filters import boilerplate, normalizing
from corpus.filters.columns import one_chunk
from corpus.filters.statistic import buffers
from corpus.kernels import line_kernel
from corpus.kernels.tables import HAN_SIMPLIFIED, HAN_TRADITIONAL, class_table
from corpus.normalize import normalize_with_changes
from corpus.personal_data import Kind, PersonalData, find_personal_data, mask_text

ScriptPolicy = Literal["keep", "simplified", "traditional"]


class Edits:
    """What was changed in the documents of a batch: kind ("boilerplate.copyright"), line where it is one, how often."""

    def __init__(self) -> None:
        self._rows: dict[int, list[dict[str, Any]]] = {}

    def record(self, row: int, kind: str, line: int | None = None, count: int = 1) -> None:
        """One edit of a document."""
        self._rows.setdefault(row, []).append({"kind": kind, "line": line, "count": count})

    def column(self, documents: int) -> pa.Array:
        """list<EDIT>[documents], null where nothing was changed."""
        return pa.array([self._rows.get(row) for row in range(documents)], EDITS.type)


def edit(
    texts: pa.LargeStringArray, boilerplate_lines: bool = True, script: ScriptPolicy = "keep"
) -> tuple[pa.LargeStringArray, Edits]:
    """Texts as they are measured, normalised and without boilerplate lines, and what was changed in them."""
    edits = Edits()
    texts = normalize(texts, edits)
    if boilerplate_lines:
        texts = remove_lines(texts, edits)
    if script != "keep":
        texts = convert_script(texts, script, edits)
    return texts, edits


def normalize(texts: pa.LargeStringArray, edits: Edits) -> pa.LargeStringArray:
    """Unicode normalisation that keeps Chinese punctuation (corpus/normalize.py), by kernels where they can."""
    offsets, data = buffers(texts)
    table = normalizing.action_table()
    needs = np.zeros(len(texts), np.uint8)
    normalizing.scan(offsets, data, table, needs)
    if np.any(needs == normalizing.REWRITE):
        new_offsets = np.empty(len(texts) + 1, np.int64)
        new_data = np.empty(offsets[-1] - offsets[0], np.uint8)
        changes = np.zeros((len(texts), normalizing.NUM_KINDS), np.int64)
        replacements = normalizing.replacement_table()
        normalizing.rewrite(offsets, data, table, replacements, needs, new_offsets, new_data, changes)
        rows, kinds = np.nonzero(changes)
        for row, kind, count in zip(rows.tolist(), kinds.tolist(), changes[rows, kinds].tolist(), strict=True):
            edits.record(row, f"normalize.{normalizing.KINDS[kind]}", count=count)
        texts = pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(new_offsets), pa.py_buffer(new_data))
    changed = {}
    for row in np.flatnonzero(needs == normalizing.PYTHON).tolist():
        text, counts = normalize_with_changes(texts[row].as_py())
        if counts:
            changed[row] = text
            for name, count in counts.items():
                edits.record(row, f"normalize.{name}", count=count)
    return replace(texts, changed)


def remove_lines(texts: pa.LargeStringArray, edits: Edits) -> pa.LargeStringArray:
    """Without boilerplate lines (boilerplate.py)."""
    changed = {}
    for row, text, removed in boilerplate.remove_lines(*buffers(texts)):
        changed[row] = text
        for line in removed:
            edits.record(row, f"boilerplate.{line.kind}", line.line)
    return replace(texts, changed)


def convert_script(texts: pa.LargeStringArray, target: ScriptPolicy, edits: Edits) -> pa.LargeStringArray:
    """Documents of the other script in the target's, phrase by phrase (頭髮 and 發展 part, 皇后 stays in 後面).

    "simplified" converts documents whose `script.traditional_ratio` is 0.5 or more: a Simplified page that quotes a
    Traditional title keeps its quotation. "traditional" converts those below 0.5 that hold a character only Simplified
    text uses.
    """
    offsets, data = buffers(texts)
    counts = np.empty((len(texts), line_kernel.NUM_LINE_COLUMNS), np.int64)
    line_kernel.measure_lines(offsets, data, class_table(), counts)
    traditional, simplified = counts[:, HAN_TRADITIONAL], counts[:, HAN_SIMPLIFIED]
    is_traditional = (traditional > 0) & (traditional >= simplified)
    to_convert = is_traditional if target == "simplified" else (simplified > 0) & ~is_traditional
    configuration = "t2s" if target == "simplified" else "s2t"
    changed = {}
    for row in np.flatnonzero(to_convert).tolist():
        text = texts[row].as_py()
        converted = _converter(configuration).convert(text)
        if converted != text:
            changed[row] = converted
            edits.record(row, f"script.{configuration}")
    return replace(texts, changed)


@lru_cache(maxsize=2)
def _converter(configuration: str) -> opencc.OpenCC:
    return opencc.OpenCC(configuration)


def mask(
    texts: pa.LargeStringArray, personal: PersonalData, kinds: Collection[Kind], edits: Edits, prefix: str = "personal."
) -> pa.LargeStringArray:
    """Personal data of these kinds as typed placeholders (personal_data.py); recorded as `prefix` and their kind."""
    changed = {}
    for row, spans in personal.spans.items():
        text, counts = mask_text(texts[row].as_py(), spans, kinds)
        if counts:
            changed[row] = text
            for kind, count in counts.items():
                edits.record(row, f"{prefix}{kind}", count=count)
    return replace(texts, changed)


def mask_titles(titles: pa.ChunkedArray, kinds: Collection[Kind], edits: Edits) -> pa.LargeStringArray:
    """Titles with personal data of these kinds masked, recorded as `personal.title.mobile`; a null stays one."""
    whole = one_chunk(titles.cast(pa.large_string()))
    filled = pc.fill_null(whole, "")
    return mask(whole, find_personal_data(filled, *buffers(filled)), kinds, edits, "personal.title.")


def replace(texts: pa.LargeStringArray, changed: dict[int, str]) -> pa.LargeStringArray:
    """`texts` with some rows replaced."""
    if not changed:
        return texts
    chosen = np.zeros(len(texts), np.bool_)
    rows = sorted(changed)
    chosen[rows] = True
    return pc.replace_with_mask(texts, pa.array(chosen), pa.array([changed[row] for row in rows], pa.large_string()))

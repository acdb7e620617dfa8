"""The sample a vocabulary is trained on: documents whose hash falls below their source's threshold, one task a text
shard.

Which documents are in depends on their ids, their sources and the corpus's size alone, not on shards, their order or
workers. As a stage of its own it reads 5 TB in parallel (200 MB/s a core) and is not repeated for another vocabulary.

A document's place is its key, uniform in [0, 1), over the ratio of its group that fills `sample_bytes`. Places below 1
are about the sample, from all sources alike; training takes documents in the order of their places and cuts exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpus.engine.overlap import read_files
from corpus.engine.stage import Counts, Folder, Output, Task
from corpus.engine.storage import File
from tokenizer.documents import BATCH_ROWS, UNIT, Keys, damage_message, document_keys
from tokenizer.sources import Group, TextInputStage, count_input, read_groups, read_shares
from tokenizer.traditional import is_traditional, script_table

REPORT_SOURCES = 100  # the largest, of a corpus with thousands
ROW_GROUP_BYTES = 32 << 20  # of text in memory while a shard is sampled
MARGIN = 1.1  # places that are sampled, so that chance seldom leaves less than `sample_bytes`
SCHEMA = pa.schema(
    [
        pa.field("place", pa.float64(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),  # tells documents of equal places apart
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class SampleStage(TextInputStage):
    """Text shards and the shares of sources -> `data/<shard>.parquet` with the sampled documents."""

    name: ClassVar[str] = "sample"
    version: ClassVar[int] = 3
    beside: ClassVar[tuple[str, ...]] = ("shares",)

    def config(self) -> dict[str, Any]:
        return self.recipe.of_stage(self.name) | script_table(self.recipe.by_script)

    def files_beside(self, upstream: Mapping[str, Folder], num_files: int) -> Sequence[tuple[File, ...]]:
        """The shares."""
        return [tuple(upstream["shares"].files("shares"))] * num_files

    def run(self, task: Task, out: Output) -> Counts:
        text, shares_file = task.inputs
        ratios = {group: share.ratio for group, share in read_shares(shares_file).items()}
        name, counts = f"data/{task.name}.parquet", Counts()
        with (
            out.create(name) as path,
            pq.ParquetWriter(
                path,
                SCHEMA,
                compression="zstd",
                use_dictionary=["source"],
                write_page_checksum=True,
                write_statistics=False,
            ) as writer,
        ):
            for table in group_rows(self.chosen(text, ratios, counts)):
                writer.write_table(table)
        out.set_rows(name, counts.documents_out)
        return counts

    def chosen(self, text: File, ratios: Mapping[Group, float], counts: Counts) -> Iterator[pa.Table]:
        """The sampled documents of each batch of a file, counted."""
        for batch, texts, groups in read_groups(text, self.recipe.by_script):
            keys = document_keys(batch.ids, "sample", self.recipe.seed)
            found = places(keys, [ratios[group] for group in groups])
            columns = [pa.array(found), pa.array(keys), pa.array(batch.sources, pa.string()), texts]
            table = pa.table(columns, schema=SCHEMA).filter(pa.array(found < MARGIN))
            count_input(counts, batch)
            counts.documents_out += table.num_rows
            counts.bytes_out += pc.sum(pc.binary_length(table["text"])).as_py() or 0
            if dropped := len(groups) - table.num_rows:
                counts.drop("sample.not_chosen", dropped)
            yield table


def group_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of about `ROW_GROUP_BYTES` each: what a task holds of a sample of any size."""
    held: list[pa.Table] = []
    num_bytes = 0
    for table in tables:
        held.append(table)
        num_bytes += table.nbytes
        if num_bytes >= ROW_GROUP_BYTES:
            yield pa.concat_tables(held)
            held, num_bytes = [], 0
    if held:
        yield pa.concat_tables(held)


def places(keys: Keys, ratios: Sequence[float]) -> NDArray[np.float64]:
    """Keys over ratios, as shares of all keys; infinite where the ratio is 0.

    >>> places(np.array([0, 1 << 63, 1 << 63], np.uint64), [0.5, 0.5, 0.0])
    array([ 0.,  1., inf])
    """
    of_all = np.asarray(ratios, np.float64)
    found: NDArray[np.float64] = np.full(len(keys), np.inf)
    return np.divide(keys / float(UNIT), of_all, out=found, where=of_all > 0)


def read_sample(files: Sequence[File]) -> pa.Table:
    """The sampled documents of all files in the order of their places, whatever the order of files.

    Documents that others gave one id have one place; they are in the order of their sources and texts.

    Raises:
        WenhaiError: a file is damaged.
    """
    tables = [SCHEMA.empty_table()]
    for file, data in zip(files, read_files(files), strict=True):
        try:
            tables.append(pq.read_table(pa.BufferReader(data), use_threads=False, page_checksum_verification=True))
        except (OSError, pa.ArrowException) as error:
            raise damage_message(file.url, error) from error
    table = pa.concat_tables(tables)
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in ("place", "key", "source", "text")])
    return table.take(order)


def cut_sample(table: pa.Table, num_bytes: int) -> tuple[pa.Table, Counts]:
    """As many first documents as `num_bytes` of text have room for; one at least, which may be larger."""
    ends = np.cumsum(pc.binary_length(table["text"]).to_numpy())
    kept = table.slice(0, max(1, int(np.searchsorted(ends, num_bytes, side="right"))))
    counts = Counts(table.num_rows, kept.num_rows)
    if table.num_rows:
        counts.bytes_in, counts.bytes_out = int(ends[-1]), int(ends[kept.num_rows - 1])
    if counts.documents_out < counts.documents_in:
        counts.drop("sample.full", counts.documents_in - counts.documents_out)
    return kept, counts


def by_source(sample: pa.Table, shares_file: File) -> dict[str, dict[str, Any]]:
    """Documents and bytes of each source in the corpus and in the sample, of the largest sources of the corpus.

    Bytes of the corpus are those of the first `MAX_CHARACTERS` characters of each document.
    """
    found: dict[str, dict[str, Any]] = {}
    for share in read_shares(shares_file).values():
        row = found.setdefault(share.source, {"corpus_documents": 0, "corpus_bytes": 0, "documents": 0, "bytes": 0})
        row["corpus_documents"] += share.documents
        row["corpus_bytes"] += share.bytes
    sizes = pa.table({"source": sample["source"], "bytes": pc.binary_length(sample["text"])})
    for group in sizes.group_by("source").aggregate([("bytes", "sum"), ("bytes", "count")]).to_pylist():
        found[group["source"]] |= {"documents": group["bytes_count"], "bytes": group["bytes_sum"]}
    for prefix in ("corpus_", ""):
        total = sum(row[f"{prefix}bytes"] for row in found.values())
        for row in found.values():
            row[f"{prefix}ratio"] = round(row[f"{prefix}bytes"] / total, 6) if total else None
    return dict(sorted(found.items(), key=lambda item: (-item[1]["corpus_bytes"], item[0]))[:REPORT_SOURCES])


def traditional_ratio(sample: pa.Table) -> float | None:
    """Share of the bytes of a sample that is in Traditional documents; None where there is no text."""
    total = traditional = 0
    for batch in sample.to_batches(BATCH_ROWS):
        sizes = pc.binary_length(batch["text"]).to_numpy()
        total += int(sizes.sum())
        traditional += int(sizes[is_traditional(batch["text"])].sum())
    return round(traditional / total, 6) if total else None


def texts_of_sources(sample: pa.Table, num_characters: int) -> dict[str, list[str]]:
    """Texts of each source for a report, about `num_characters` in all and the same of each; the last of each is
    cut."""
    lengths = pc.utf8_length(sample["text"]).to_numpy()
    sources, rows_of = np.unique(sample["source"].to_numpy(zero_copy_only=False), return_inverse=True)
    amounts = np.bincount(rows_of, weights=lengths, minlength=len(sources))
    largest = sorted(np.argsort(-amounts, kind="stable")[:REPORT_SOURCES].tolist())
    found = {}
    for source in largest:
        left, texts = num_characters // len(largest), []
        for row in np.flatnonzero(rows_of == source).tolist():
            if left <= 0:
                break
            texts.append(sample["text"][row].as_py()[:left])
            left -= len(texts[-1])
        found[str(sources[source])] = texts
    return found

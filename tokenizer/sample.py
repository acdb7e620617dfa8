"""The sample a vocabulary is trained on: documents whose hash falls below a threshold, one task a text shard.

Which documents are in depends on their ids and the corpus's size alone, not on shards, their order or workers. As a
stage of its own it reads 5 TB in parallel (200 MB/s a core) and is not repeated for another vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpus.engine import storage
from corpus.engine.stage import Counts, Folder, Output, Stage, Task, shard_name
from corpus.engine.storage import File
from tokenizer.config import TokenizerConfig, sampling
from tokenizer.documents import damaged, document_keys, is_below, read_documents, text_bytes

MAX_CHARACTERS = 100_000  # of one document: no book may be the sample
MARGIN = 1.1  # sampled above `sample_bytes`, so that chance seldom leaves less; training cuts exactly
SCHEMA = pa.schema([pa.field("key", pa.uint64(), nullable=False), pa.field("text", pa.large_string(), nullable=False)])


@dataclass(frozen=True)
class Sampling(Stage):
    """Text shards -> `data/<shard>.parquet` with key and text of the sampled documents."""

    recipe: TokenizerConfig

    name: ClassVar[str] = "sample"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("text",)

    def config(self) -> dict[str, Any]:
        return sampling(self.recipe)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return self.tasks(upstream["text"].files(), upstream["text"].counts.bytes_out)

    def tasks(self, files: list[File], num_bytes: int) -> list[Task]:
        """One task a file, all with the share of documents that gives `sample_bytes` of `num_bytes`."""
        ratio = min(1.0, MARGIN * self.recipe.sample_bytes / max(num_bytes, 1))
        return [Task(name, (file,), {"ratio": ratio}) for name, file in shard_names(files)]

    def run(self, task: Task, out: Output) -> Counts:
        counts = Counts()
        keys, texts = [np.empty(0, np.uint64)], [pa.array([], pa.large_string())]
        for batch in read_documents(storage.fetch(task.inputs[0].url)):
            found = document_keys(batch.ids, "sample", self.recipe.seed)
            chosen = is_below(found, task.params["ratio"])
            keys.append(found[chosen])
            texts.append(pc.utf8_slice_codeunits(batch.texts.filter(pa.array(chosen)), 0, MAX_CHARACTERS))
            counts.documents_in += len(batch.ids) + batch.num_invalid
            counts.bytes_in += batch.num_bytes + batch.num_invalid_bytes
            if not chosen.all():
                counts.drop("sample.not_chosen", int((~chosen).sum()))
            if batch.num_invalid:
                counts.error("invalid_utf8", batch.num_invalid)
        table = pa.table([pa.array(np.concatenate(keys)), pa.concat_arrays(texts)], schema=SCHEMA)
        counts.documents_out = table.num_rows
        counts.bytes_out = pc.sum(pc.binary_length(table["text"])).as_py() or 0
        with out.create(f"data/{task.name}.parquet", rows=table.num_rows) as path:
            pq.write_table(table, path, compression="zstd", write_page_checksum=True, write_statistics=False)
        return counts


@dataclass(frozen=True)
class FileSampling(Sampling):
    """The same for Parquet files from outside the build."""

    upstream: ClassVar[tuple[str, ...]] = ()
    files: tuple[File, ...] = ()

    def inputs(self) -> tuple[File, ...]:
        return self.files

    def for_worker(self) -> FileSampling:
        return replace(self, files=())

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return self.tasks(list(self.files), text_bytes(list(self.files)))


def read_sample(files: Sequence[File]) -> list[str]:
    """The texts of all files in the order of their keys; equal keys are the same document.

    Raises:
        WenhaiError: a file is damaged.
    """
    tables = [SCHEMA.empty_table()]
    for file in files:
        path = storage.fetch(file.url)
        try:
            tables.append(pq.read_table(path, use_threads=False, page_checksum_verification=True))
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, error) from error
    table = pa.concat_tables(tables)
    order = np.argsort(table["key"].to_numpy(), kind="stable")
    texts: list[str] = table["text"].take(order).to_pylist()
    return texts


def shard_names(files: list[File]) -> list[tuple[str, File]]:
    """Each file with the name of its task: its own where names are unique, else with its number before it."""
    names = [shard_name(file) for file in files]
    if len(set(names)) < len(names):
        names = [f"{number:05d}-{name}" for number, name in enumerate(names)]
    return list(zip(names, files, strict=True))

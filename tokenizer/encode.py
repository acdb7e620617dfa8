"""Text shards to token shards: one task a shard, `data/<shard>-train.*` and `data/<shard>-validation.*`.

Split and order are keyed hashes of document ids, so they do not change with shards, workers or repetition; a document
stays on its side of the split when the corpus grows. Text is read and encoded in file order, a thousand documents at a
time; only tokens wait in memory for their seeded order (0.6 bytes for a byte of Chinese text in uint16).

An empty document is a sequence of one end-of-document token. A split that no document of a shard falls to has no files.
Speed is SentencePiece's: 20-25 MB/s a core for BPE, twice that for Unigram, on the text of `python -m tokenizer run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpus.engine import durable, storage
from corpus.engine.stage import Counts, Folder, Output, Stage, Task
from corpus.engine.storage import File
from tokenizer.config import TokenizerConfig, encoding
from tokenizer.documents import document_keys, is_below, read_documents
from tokenizer.model import Tokenizer
from tokenizer.sample import shard_names
from tokenizer.shard_writer import ShardWriter, narrow
from tokenizer.shards import MEND, ShardError, Tokens, TokenShard

DOCS_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("url", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),  # the end-of-document token included
    ],
    metadata={"wenhai.docs": "1"},
)


@dataclass
class Encoded:
    """The documents of one shard, in file order."""

    ids: list[bytes]
    tokens: list[Tokens]
    characters: list[int]
    urls: list[str | None]
    sources: list[str]


@dataclass(frozen=True)
class Encoding(Stage):
    """Text shards and the vocabulary -> token shards."""

    recipe: TokenizerConfig

    name: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    upstream: ClassVar[tuple[str, ...]] = ("text", "tokenizer")

    def config(self) -> dict[str, Any]:
        return encoding(self.recipe)

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return self.tasks(upstream["text"].files(), upstream)

    def tasks(self, files: list[File], upstream: Mapping[str, Folder]) -> list[Task]:
        """One task a file; each reads the vocabulary beside it."""
        (model,) = upstream["tokenizer"].files("model")
        return [Task(name, (file, model)) for name, file in shard_names(files)]

    def run(self, task: Task, out: Output) -> Counts:
        text, model = task.inputs
        tokenizer = Tokenizer(storage.fetch(model.url))
        encoded, counts = encode_file(text, tokenizer)
        in_validation = is_below(document_keys(encoded.ids, "split", self.recipe.seed), self.recipe.validation_ratio)
        order = seeded_order(encoded.ids, self.recipe.seed)
        for split, rows in (("train", order[~in_validation[order]]), ("validation", order[in_validation[order]])):
            tokens = self._write(f"data/{task.name}-{split}", split, encoded, rows.tolist(), tokenizer, out)
            counts.extra |= {f"documents_{split}": len(rows), f"tokens_{split}": tokens}
        return counts

    def _write(
        self, prefix: str, split: str, encoded: Encoded, rows: Sequence[int], tokenizer: Tokenizer, out: Output
    ) -> int:
        """Write the shard of one split; returns its tokens."""
        if not rows:
            return 0
        lengths = [len(encoded.tokens[row]) + 1 for row in rows]
        with ExitStack() as stack:
            docs, meta, idx, tokens = (
                stack.enter_context(out.create(prefix + suffix, rows=len(rows)))
                for suffix in (".docs.parquet", ".meta.json", ".idx", ".bin")
            )
            with ShardWriter(
                (tokens, idx, meta),
                split=split,
                vocab_size=tokenizer.vocab_size,
                eod=tokenizer.eod,
                tokenizer_sha256=tokenizer.sha256,
                recipe=durable.digest(self.config()),
            ) as writer:
                for row in rows:
                    writer.add(encoded.tokens[row], encoded.ids[row].hex(), encoded.characters[row])
            columns = {
                "sequence": range(len(rows)),
                "id": [encoded.ids[row] for row in rows],
                "url": [encoded.urls[row] for row in rows],
                "source": [encoded.sources[row] for row in rows],
                "num_tokens": lengths,
            }
            table = pa.table(columns, schema=DOCS_SCHEMA)
            pq.write_table(table, docs, compression="zstd", use_dictionary=["source"], write_page_checksum=True)
        return sum(lengths)


@dataclass(frozen=True)
class FileEncoding(Encoding):
    """The same for Parquet files from outside the build."""

    upstream: ClassVar[tuple[str, ...]] = ("tokenizer",)
    files: tuple[File, ...] = ()

    def inputs(self) -> tuple[File, ...]:
        return self.files

    def for_worker(self) -> FileEncoding:
        return replace(self, files=())

    def plan(self, upstream: Mapping[str, Folder]) -> list[Task]:
        return self.tasks(list(self.files), upstream)


def encode_file(file: File, tokenizer: Tokenizer) -> tuple[Encoded, Counts]:
    """Encode every document of a Parquet file; rows that are not UTF-8 are counted as errors."""
    counts, encoded = Counts(), Encoded([], [], [], [], [])
    for batch in read_documents(storage.fetch(file.url)):
        for id, ids in zip(batch.ids, tokenizer.encode_batch(batch.texts), strict=True):
            encoded.tokens.append(narrow(ids, tokenizer.vocab_size, f"document {id.hex()}"))
        encoded.ids += batch.ids
        encoded.characters += map(len, batch.texts)
        encoded.urls += batch.urls
        encoded.sources += batch.sources
        counts.documents_in += len(batch.ids) + batch.num_invalid
        counts.documents_out += len(batch.ids)
        counts.bytes_in += batch.num_bytes + batch.num_invalid_bytes
        counts.bytes_out += batch.num_bytes
        if batch.num_invalid:
            counts.error("invalid_utf8", batch.num_invalid)
    counts.extra["characters"] = sum(encoded.characters)
    return encoded, counts


def seeded_order(ids: list[bytes], seed: int) -> NDArray[np.intp]:
    """Rows in the order of a keyed hash of their ids; equal ids stay in file order."""
    return np.argsort(document_keys(ids, "order", seed), kind="stable")


def verify_docs(shard: TokenShard) -> None:
    """Check that `P.docs.parquet` describes the sequences of its shard, one row each.

    Raises:
        ShardError: it is missing, damaged, or of other lengths.
    """
    path = shard.prefix.with_name(shard.prefix.name + ".docs.parquet")
    try:
        lengths = pq.read_table(path, columns=["num_tokens"], page_checksum_verification=True)["num_tokens"]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ShardError(f"{path}: missing or damaged ({type(error).__name__}). {MEND}") from error
    if not np.array_equal(lengths.to_numpy(), shard.lengths):
        raise ShardError(f"{path}: does not describe the sequences of {shard.idx_path.name}. {MEND}")

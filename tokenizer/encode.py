"""Text shards to token shards: one task a shard, `data/<shard>-train.*` and `data/<shard>-validation.*`.

Split and order are keyed hashes of document ids, so they do not change with shards, workers or repetition; a document
stays on its side of the split when the corpus grows. Text is read and encoded in file order, a thousand documents at a
time; only tokens wait in memory for their seeded order (0.6 bytes for a byte of Chinese text in uint16, and an eighth
of that as room to grow), beside some hundred bytes a document.

With the copies of a mixture a document of the training split is as many sequences, each with a place of its own in the
order, or none; the first copy has the place it would have without. Validation takes each chosen document once, so that
its losses weigh texts and not copies.

An empty document is a sequence of one end-of-document token. A split that no document of a shard falls to has no files.
Kernels encode (encoder.py), from Arrow batches into the dtype of the shard; of each batch the beginning of a document
is compared with SentencePiece.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpus.engine import durable, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.stage import Counts, Folder, Output, Task
from corpus.engine.storage import File
from corpus.engine.versions import version_of
from tokenizer.config import MIXTURE_STAGE
from tokenizer.documents import ID_BYTES, Batch, damage_message, document_keys, is_below, read_documents
from tokenizer.model import Tokenizer
from tokenizer.shards.provenance import COLUMNS, write_docs
from tokenizer.shards.record import Tokens
from tokenizer.shards.writer import ShardWriter
from tokenizer.sources import TextInputStage

if TYPE_CHECKING:
    from tokenizer.kernels.encoder import BatchEncoder

LEFT_OUT = "mixture.left_out"
WRITTEN_TOKENS = 1 << 20  # put into their order at once
COMPARED_CHARACTERS = 8192  # of one document in a batch of a thousand: no long one may cost more than all the others

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.binary(ID_BYTES)),
        pa.field("url", pa.string()),
        pa.field("source", pa.string()),
        pa.field("copies", pa.int64()),
        pa.field("num_tokens", pa.int64()),  # without the end-of-document token
        pa.field("num_characters", pa.int64()),
        pa.field("num_bytes", pa.int64()),
    ]
)

_log = logging.getLogger(__name__)


class DifferentIdsError(Exception):
    """A kernel's ids are not SentencePiece's; the message is the id of the document."""


class Copies:
    """How often each document of a text shard is taken, as the stage `mixture` wrote it; asked for in its order.

    `copies/S.parquet` has a row a document of `data/S.parquet` of the stage `text`, in its order, with the id
    (binary(16)) and the copies (uint8).
    """

    def __init__(self, file: File) -> None:
        path = storage.fetch(file.url)
        try:
            table = pq.read_table(path, columns=["id", "copies"], use_threads=False, page_checksum_verification=True)
        except (OSError, KeyError, pa.ArrowException) as error:
            raise damage_message(path, error) from error
        self._url = file.url
        self._ids: list[bytes] = table["id"].to_pylist()
        self._copies: NDArray[np.uint8] = table["copies"].to_numpy()
        self._next = 0

    def take(self, ids: list[bytes]) -> NDArray[np.uint8]:
        """uint8[ids]: the copies of the next documents.

        Raises:
            WenhaiError: the next documents are others.
        """
        first, self._next = self._next, self._next + len(ids)
        if self._ids[first : self._next] != ids:
            raise self._foreign()
        return self._copies[first : self._next]

    def end(self) -> None:
        """Raises `WenhaiError` when documents are left that were not asked for."""
        if self._next != len(self._ids):
            raise self._foreign()

    def _foreign(self) -> WenhaiError:
        return WenhaiError(
            f"{self._url}: is the mixture of another text shard. Remove its stage folder and run `python -m corpus "
            "run` "
            "again."
        )


@dataclass(frozen=True)
class Encoded:
    """The documents of one shard that are taken, in file order."""

    tokens: Tokens  # of one behind another's, without end-of-document tokens
    documents: pa.Table  # of `DOCUMENTS`

    def column(self, name: str) -> NDArray[np.int64]:
        """int64[documents]."""
        values: NDArray[np.int64] = self.documents[name].to_numpy()
        return values


@dataclass(frozen=True)
class TokensStage(TextInputStage):
    """Text shards and the vocabulary, and a mixture where there is one -> token shards."""

    mixed: bool = field(default=False, kw_only=True)

    name: ClassVar[str] = "tokens"
    version: ClassVar[int] = 1
    beside: ClassVar[tuple[str, ...]] = ("tokenizer",)

    @property
    def upstream(self) -> tuple[str, ...]:
        """The text, the vocabulary, and the mixture where there is one."""
        return (*super().upstream, MIXTURE_STAGE) if self.mixed else super().upstream

    def config(self) -> dict[str, Any]:
        return self.recipe.of_stage(self.name) | {"sentencepiece": version_of("sentencepiece")}

    def files_beside(self, upstream: Mapping[str, Folder], num_files: int) -> Sequence[tuple[File, ...]]:
        """The vocabulary, and the file's copies where there is a mixture."""
        (model,) = upstream["tokenizer"].files("model")
        copies = upstream[MIXTURE_STAGE].files("copies") if self.mixed else []
        return [(model, one) for one in copies] if self.mixed else [(model,)] * num_files

    def run(self, task: Task, out: Output) -> Counts:
        text, model, *mixture = task.inputs
        tokenizer = _open(model)
        encoded, counts = encode_file(text, tokenizer, *mixture)
        ids: list[bytes] = encoded.documents["id"].to_pylist()
        in_validation = is_below(document_keys(ids, "split", self.recipe.seed), self.recipe.validation_ratio)
        copies = np.where(in_validation, 1, encoded.column("copies"))
        order = seeded_order(ids, self.recipe.seed, copies)
        for split, rows in (("train", order[~in_validation[order]]), ("validation", order[in_validation[order]])):
            tokens = self._write(f"data/{task.name}-{split}", split, encoded, rows, tokenizer, out)
            counts.extra |= {f"documents_{split}": len(np.unique(rows)), f"tokens_{split}": tokens}
            if mixture:
                counts.extra[f"sequences_{split}"] = len(rows)
        if mixture:
            counts.extra["sequence_bytes"] = int((copies * encoded.column("num_bytes")).sum())
        return counts

    def _write(
        self, prefix: str, split: str, encoded: Encoded, rows: NDArray[np.intp], tokenizer: Tokenizer, out: Output
    ) -> int:
        """Write the shard of one split; returns its tokens."""
        if not len(rows):
            return 0
        lengths = encoded.column("num_tokens")[rows] + 1
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
                characters = encoded.column("num_characters")
                for group, ids in ordered_tokens(encoded, rows, tokenizer.eod):
                    writer.add_many(ids, lengths[group], int(characters[rows[group]].sum()))
            columns = {name: encoded.documents[name].take(pa.array(rows)) for name in COLUMNS}
            write_docs(docs, [{"sequence": range(len(rows)), **columns, "num_tokens": pa.array(lengths, pa.int32())}])
        return int(lengths.sum())


@lru_cache(maxsize=1)
def _open(model: File) -> Tokenizer:
    """The tokenizer, kept for the next shard: opening it takes some tenths of a second."""
    return Tokenizer(storage.fetch(model.url))


def encode_file(file: File, tokenizer: Tokenizer, mixture: File | None = None) -> tuple[Encoded, Counts]:
    """Encode every document of a Parquet file that the mixture takes; rows that are not UTF-8 are counted as errors.

    Where a kernel encodes, a document of each batch is compared with SentencePiece. If one differs, SentencePiece
    encodes the whole file: which document it is depends on ids alone, so the result is the same each time.
    """
    from tokenizer.kernels.encoder import (  # loads numba, which other commands need not wait for
        BatchEncoder,
        batch_encoder,
    )

    try:
        return _encode_file(file, batch_encoder(tokenizer), mixture)
    except DifferentIdsError as error:
        _log.warning(
            "%s: the ids of document %s are not SentencePiece's, so SentencePiece encodes the whole file, which is "
            "slower. "
            "Please report it with that document and the tokenizer %s.",
            file.url,
            error,
            tokenizer.sha256[:12],
        )
        encoded, counts = _encode_file(file, BatchEncoder(tokenizer, "a document's ids differ"), mixture)
        counts.extra["encoded_again"] = 1
        return encoded, counts


def _encode_file(file: File, encoder: BatchEncoder, mixture: File | None) -> tuple[Encoded, Counts]:
    counts, tokens, documents = Counts(), bytearray(), list[pa.RecordBatch]()  # grows in place, and is not copied
    taken = Copies(mixture) if mixture else None
    for batch in read_documents(storage.fetch(file.url)):
        copies = taken.take(batch.ids) if taken else np.ones(len(batch.ids), np.uint8)
        ids, some = _encode(batch, copies, encoder)
        tokens += ids.data
        documents.append(some)
        counts.documents_in += len(batch.ids) + batch.num_invalid
        counts.documents_out += some.num_rows
        counts.bytes_in += batch.num_bytes + batch.num_invalid_bytes
        counts.bytes_out += pc.sum(some["num_bytes"]).as_py() or 0
        if encoder.reason is None and some.num_rows:
            counts.extra["compared"] = counts.extra.get("compared", 0) + 1
        if batch.num_invalid:
            counts.error("invalid_utf8", batch.num_invalid)
        if some.num_rows < len(batch.ids):
            counts.drop(LEFT_OUT, len(batch.ids) - some.num_rows)
    if taken:
        taken.end()
    encoded = Encoded(np.frombuffer(tokens, encoder.dtype), pa.Table.from_batches(documents, DOCUMENTS))
    counts.extra["characters"] = int(encoded.column("num_characters").sum())
    return encoded, counts


def _encode(batch: Batch, copies: NDArray[np.uint8], encoder: BatchEncoder) -> tuple[Tokens, pa.RecordBatch]:
    """The tokens of those documents of a batch that have copies, and what is known of them.

    The beginning of the document of the smallest key is compared with SentencePiece.

    Raises:
        DifferentIdsError: its ids differ.
    """
    ids, texts = pa.array(batch.ids, pa.binary(ID_BYTES)), batch.texts
    columns = [ids, batch.urls, pa.array(batch.sources, pa.string()), pa.array(copies.astype(np.int64))]
    if not copies.all():
        rows = pa.array(np.flatnonzero(copies))
        texts, *columns = (column.take(rows) for column in (texts, *columns))
    if encoder.reason is None and len(texts):
        chosen = columns[0].to_pylist()
        row = int(np.argmin(document_keys(chosen, "compare", 0)))
        if encoder.differing(pc.utf8_slice_codeunits(texts.slice(row, 1), 0, COMPARED_CHARACTERS)):
            raise DifferentIdsError(chosen[row].hex())
    tokens, lengths = encoder.encode_flat(texts)
    columns += [pa.array(lengths), pc.utf8_length(texts), pc.binary_length(texts)]
    return tokens, pa.RecordBatch.from_arrays(columns, schema=DOCUMENTS)


def ordered_tokens(encoded: Encoded, rows: NDArray[np.intp], eod: int) -> Iterator[tuple[slice, Tokens]]:
    """The tokens of rows in their order, each with its end-of-document token, and which of the rows they are.

    About `WRITTEN_TOKENS` at a time, and at least a row: memory is what that and the longest document take.
    """
    tokens, lengths, end = encoded.tokens, encoded.column("num_tokens"), np.array([eod], encoded.tokens.dtype)
    starts = np.cumsum(lengths) - lengths
    groups = np.cumsum(lengths[rows] + 1) // WRITTEN_TOKENS
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(rows)]
    for group in map(slice, bounds, bounds[1:]):
        spans = zip(starts[rows[group]].tolist(), lengths[rows[group]].tolist(), strict=True)
        yield group, np.concatenate([part for start, length in spans for part in (tokens[start : start + length], end)])


def seeded_order(ids: list[bytes], seed: int, copies: NDArray[np.int64] | None = None) -> NDArray[np.intp]:
    """Rows, each as often as its copies (default once), in the order of keyed hashes; equal ids stay in file order.

    Each copy has a hash of its own, the first one always the same.
    """
    wanted = np.ones(len(ids), np.int64) if copies is None else copies
    rows, keys = [np.empty(0, np.intp)], [np.empty(0, np.uint64)]
    for copy in range(int(wanted.max(initial=0))):
        rows.append(np.flatnonzero(wanted > copy))
        purpose = f"order {copy}" if copy else "order"
        keys.append(document_keys([ids[row] for row in rows[-1].tolist()], purpose, seed))
    order: NDArray[np.intp] = np.concatenate(rows)[np.argsort(np.concatenate(keys), kind="stable")]
    return order

"""Held-out documents that no arm was trained on, and how many were left out for that.

A document that one build holds out may stand in the training text of another: under its id, where the builds were split
with different seeds; as a copy, where one build removes duplicates and the other does not. It would flatter the models
of that arm. So a held-out document is left out for all arms where the training text of any of them has

- its id (`P.docs.parquet`), or
- more than half of its 13-grams of tokens: copies, edited copies, and texts that quote most of it. The n-grams are
  those of Brown et al. 2020 (arXiv:2005.14165, appendix C); a document of fewer tokens has only its id.

Training text is read once, some tokens at a time; in memory are the n-grams of the held-out documents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.ablation.plan import Arm
from pretrain.evaluation.held_out import HeldOut, leading_documents, split_documents
from pretrain.evaluation.texts import read_texts
from tokenizer.model import Tokenizer
from tokenizer.shards import TokenShard, open_split
from tokenizer.shards.provenance import docs_path, read_ids, read_rows

NGRAM = 13  # tokens
MOST_SHARED = 0.5  # of a document's n-grams
CHUNK_TOKENS = 1 << 22
MAX_CHARACTERS = 5_000  # of one document of --text: a novel must not be the whole measure
_BASE = np.uint64(
    0x9E3779B97F4A7C15
)  # 2^64 divided by the golden ratio, odd: n-grams are polynomials of it modulo 2^64


class Document(NamedTuple):
    """A held-out document."""

    tokens: NDArray[Any]  # without its end
    text: str
    id: str | None  # 32 hexadecimal digits; None of a text that no build has


@dataclass(frozen=True)
class Held:
    """What models are asked about together: an arm's held-out documents, or a source of other texts."""

    kind: Literal["held out", "text"]
    name: str
    documents: tuple[Document, ...]  # that no arm has seen
    num_same_id: int = 0  # left out: an arm was trained on a document of this id
    num_same_text: int = 0  # left out: an arm was trained on most of the text

    @property
    def key(self) -> str:
        """What it is called in results."""
        return f"{self.kind}/{self.name}"

    @property
    def identity(self) -> str:
        """Of the documents that are asked about."""
        joined = hashlib.sha256()
        for document in self.documents:
            joined.update(document.text.encode() + b"\xff")
        return joined.hexdigest()

    def for_model(self, eod: int, max_tokens: int | None = None) -> HeldOut:
        """The documents as one stream; the first of them where `max_tokens` are fewer than they have, one at least."""
        sizes = np.cumsum([len(document.tokens) + 1 for document in self.documents])
        number = len(sizes) if max_tokens is None else max(1, int(np.searchsorted(sizes, max_tokens, side="right")))
        taken = self.documents[:number]
        tokens = np.concatenate([np.append(document.tokens, eod) for document in taken])
        return HeldOut(tokens, [document.text for document in taken], eod)


def read_held(
    arms: Sequence[Arm], texts: Sequence[str], by: str | None, tokenizer: Tokenizer, split: str, max_tokens: int
) -> list[Held]:
    """The validation split of every arm that has one, and the texts by source, without what an arm was trained on.

    Args:
        texts: JSONL or text files.
        by: the field of a line of JSONL that names its source; None: the file.
        split: of the arms, that is held out.
        max_tokens: of each, at the most.

    Raises:
        UsageError: there is no text to compare models on.
        WenhaiError: a file is damaged.
    """
    held = [
        Held("held out", arm.name, tuple(found))
        for arm in arms
        if (found := split_of(arm.folder, split, tokenizer, max_tokens))
    ]
    held += [Held("text", name, tuple(found)) for name, found in sources(texts, by, tokenizer, max_tokens).items()]
    unseen = without_seen(held, [shard for arm in arms for shard in arm.shards])
    if not any(each.documents for each in unseen):
        raise UsageError(
            "no held-out document is left to compare the models on. Encode with a share held out "
            "(tokenizer.validation_ratio), all arms with one tokenizer.seed; or give --text"
        )
    return unseen


def split_of(folder: Path, split: str, tokenizer: Tokenizer, max_tokens: int) -> list[Document]:
    """Whole documents of a split, as much of each shard, with their ids where the build says them."""
    from pretrain.data import ShardReader

    shards = sorted(open_split(folder, split), key=lambda shard: shard.num_tokens)
    documents = []
    for shard, part in zip(
        shards, leading_documents([ShardReader(shard) for shard in shards], max_tokens), strict=True
    ):
        parts = split_documents(part, tokenizer.eod)
        rows = read_rows(shard, range(len(parts))) if docs_path(shard).exists() else {}
        documents += [
            Document(tokens, tokenizer.decode(tokens), rows[number]["id"] if rows else None)
            for number, tokens in enumerate(parts)
        ]
    return [document for document in documents if document.text]


def sources(paths: Sequence[str], by: str | None, tokenizer: Tokenizer, max_tokens: int) -> dict[str, list[Document]]:
    """The first texts of each source, as many as have `max_tokens` tokens; each its first `MAX_CHARACTERS`
    characters."""
    found: dict[str, list[Document]] = {}
    taken: dict[str, int] = {}
    for text, source in read_texts(paths, by):
        if taken.get(source, 0) >= max_tokens:
            continue
        beginning = text[:MAX_CHARACTERS]
        tokens = np.asarray(tokenizer.encode(beginning))
        if taken.get(source, 0) + len(tokens) + 1 > max_tokens and source in found:
            taken[source] = max_tokens
            continue
        found.setdefault(source, []).append(Document(tokens, beginning, None))
        taken[source] = taken.get(source, 0) + len(tokens) + 1
    return found


def without_seen(held: Sequence[Held], shards: Sequence[TokenShard]) -> list[Held]:
    """The same without documents that stand in a shard of training text."""
    documents = [document for each in held for document in each.documents]
    same_id = _trained_ids({document.id for document in documents if document.id is not None}, shards)
    ngrams = NGrams([document.tokens for document in documents])
    for shard in shards:
        for tokens in _chunks(shard):
            ngrams.read(tokens)
    shares = iter(ngrams.shares())
    found = []
    for each in held:
        kept, num_same_id, num_same_text = [], 0, 0
        for document, share in zip(each.documents, shares, strict=False):
            if document.id in same_id:
                num_same_id += 1
            elif share > MOST_SHARED:
                num_same_text += 1
            else:
                kept.append(document)
        found.append(Held(each.kind, each.name, tuple(kept), num_same_id, num_same_text))
    return found


class NGrams:
    """Which n-grams of some documents stand in other text, by hashes of 64 bits."""

    def __init__(self, documents: Iterable[NDArray[Any]]) -> None:
        self._of_each = [np.unique(ngram_hashes(tokens)) for tokens in documents]
        self._known = np.unique(np.concatenate([*self._of_each, np.empty(0, np.uint64)]))
        self._seen = np.zeros(len(self._known), dtype=bool)

    def read(self, tokens: NDArray[Any]) -> None:
        """Note the n-grams of other text."""
        if not len(self._known):
            return
        hashes = ngram_hashes(tokens)
        places = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        self._seen[places[self._known[places] == hashes]] = True

    def shares(self) -> list[float]:
        """Of each document's different n-grams the share that has been read; 0 of a document without any."""
        return [
            float(self._seen[np.searchsorted(self._known, hashes)].mean()) if len(hashes) else 0.0
            for hashes in self._of_each
        ]


def ngram_hashes(tokens: NDArray[Any]) -> NDArray[np.uint64]:
    """uint64[max(0, len(tokens) - 12)], of each n-gram; equal n-grams have equal ones."""
    number = max(0, len(tokens) - NGRAM + 1)
    values = tokens.astype(np.uint64) + np.uint64(1)
    hashes = np.zeros(number, dtype=np.uint64)
    for place in range(NGRAM):
        hashes = hashes * _BASE + values[place : place + number]
    return hashes


def _trained_ids(wanted: set[str], shards: Sequence[TokenShard]) -> set[str]:
    """Those that are ids of documents of the shards."""
    by_bytes = {bytes.fromhex(id) for id in wanted}
    found: set[bytes] = set()
    for shard in shards if by_bytes else ():
        if docs_path(shard).exists():
            for ids in read_ids(shard):
                found |= by_bytes.intersection(ids)
    return {id.hex() for id in found}


def _chunks(shard: TokenShard) -> Iterator[NDArray[Any]]:
    """The tokens of a shard, some at a time, each n-gram in one of them."""
    from pretrain.data import ShardReader

    reader = ShardReader(shard, False)
    for start in range(0, shard.num_tokens, CHUNK_TOKENS):
        yield reader.tokens(start, min(start + CHUNK_TOKENS + NGRAM - 1, shard.num_tokens))

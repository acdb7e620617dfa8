"""Documents of a split that a model is not trained on: their tokens, texts and sources, of token shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data import Shard, ShardReader
from tokenizer.model import Tokenizer
from tokenizer.shards import TokenShard, open_split

MAX_HELD_OUT_TOKENS = 10_000_000  # more would cost memory and time and move the third digit
UNKNOWN = "unknown"  # the source of documents without a table


class Document(NamedTuple):
    """A text, its tokens without an end, and where it comes from."""

    tokens: NDArray[Any]
    text: str
    source: str


@dataclass(frozen=True)
class HeldOut:
    """Whole documents: their tokens one after another, each closed by `eod`, and of each its text and its source."""

    tokens: NDArray[Any]
    texts: list[str]
    eod: int
    sources: list[str] | None = None  # None: not known

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))

    def documents(self) -> Iterator[Document]:
        """Each of them."""
        parts = split_documents(self.tokens, self.eod)
        sources = self.sources or [UNKNOWN] * len(parts)
        return (Document(*document) for document in zip(parts, self.texts, sources, strict=True))


def read_held_out(data: Path, split: str, tokenizer: Tokenizer, max_tokens: int = MAX_HELD_OUT_TOKENS) -> HeldOut:
    """Whole documents of one split: all, or an equal share of each shard where they exceed `max_tokens`.

    Raises:
        ShardError: a shard is missing or damaged.
        UsageError: it is another tokenizer's, or the documents hold no character.
    """
    shards = sorted(open_split(data, split), key=lambda shard: shard.num_tokens)
    check_tokenizer(shards, tokenizer)
    parts = leading_documents([ShardReader(shard) for shard in shards], max_tokens)
    tokens = np.concatenate([np.empty(0, dtype=np.uint16), *parts])
    texts = [tokenizer.decode(ids) for ids in split_documents(tokens, tokenizer.eod)]
    found = HeldOut(tokens, texts, tokenizer.eod, _sources(shards, parts, tokenizer.eod))
    if found.num_characters == 0:
        raise UsageError(
            f"{data}: the {split} split has no text in documents of up to {max_tokens:,} tokens. Allow more of them, "
            "or encode with a larger share held out."
        )
    return found


def check_tokenizer(shards: Sequence[TokenShard], tokenizer: Tokenizer) -> None:
    """Raise UsageError where a shard is another tokenizer's."""
    for shard in shards:
        if shard.tokenizer_sha256 != tokenizer.sha256:
            raise UsageError(f"{shard.meta_path}: was not encoded with {tokenizer.path}. Name its tokenizer.")


def leading_documents(shards: Sequence[Shard], max_tokens: int) -> list[NDArray[Any]]:
    """Of shards, the smallest first, whole documents from the start of each, `max_tokens` at most together.

    Shards hold theirs in seeded order.
    """
    parts: list[NDArray[Any]] = []
    remaining = max_tokens
    for num_before, shard in enumerate(shards):
        share = remaining // (len(shards) - num_before)  # what small shards leave, larger ones may take
        tokens = shard.tokens(0, min(shard.num_tokens, share))
        ends = np.flatnonzero(tokens == shard.eod)
        parts.append(tokens[: ends[-1] + 1 if len(ends) else 0])
        remaining -= len(parts[-1])
    return parts


def split_documents(tokens: NDArray[Any], eod: int) -> list[NDArray[Any]]:
    """The documents of a stream in which each is closed by `eod`, without it."""
    ends = np.flatnonzero(tokens == eod)
    return [part[:-1] for part in np.split(tokens, ends + 1)[:-1]]


def _sources(shards: Sequence[TokenShard], parts: Sequence[NDArray[Any]], eod: int) -> list[str] | None:
    """Of the leading documents of each shard, as its table of documents says.

    None where pyarrow is missing, which the packages for training do not bring, or a table is: training needs none.
    """
    if find_spec("pyarrow") is None:
        return None
    from tokenizer.shards.provenance import docs_path, read_rows

    sources: list[str] = []
    for shard, part in zip(shards, parts, strict=True):
        if not docs_path(shard).exists():
            return None
        rows = read_rows(shard, range(int(np.count_nonzero(part == eod))))
        sources += [row["source"] for _, row in sorted(rows.items())]
    return sources

"""What a tokenizer makes of texts: counts of each token, and of characters, bytes and tokens by group of documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenizer.model import Tokenizer
from tokenizer.traditional import is_traditional

BATCH_DOCUMENTS = 1024
ALPHA = 2.5  # of the Renyi entropy; Zouhar et al. chose it for its correlation with translation quality
COVERAGE = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
TRADITIONAL, OTHER = "traditional", "simplified and other"

Frequency = NDArray[np.int64]


@dataclass
class Amounts:
    """Sizes of some documents and of their tokens."""

    documents: int = 0
    characters: int = 0  # code points
    bytes: int = 0  # of UTF-8
    tokens: int = 0  # without end-of-document tokens
    byte_tokens: int = 0  # tokens that are single bytes

    def add(self, text: str, num_tokens: int, num_byte_tokens: int) -> None:
        """Add a document."""
        self.documents += 1
        self.characters += len(text)
        self.bytes += len(text.encode())
        self.tokens += num_tokens
        self.byte_tokens += num_byte_tokens

    def ratios(self) -> dict[str, float | None]:
        """`characters_per_token`, `bytes_per_token`, `byte_fallback_ratio`; None where there are no tokens."""
        return {
            "characters_per_token": ratio(self.characters, self.tokens),
            "bytes_per_token": ratio(self.bytes, self.tokens),
            "byte_fallback_ratio": ratio(self.byte_tokens, self.tokens),
        }

    def as_json(self) -> dict[str, Any]:
        """The sizes and their ratios."""
        return {
            "documents": self.documents,
            "characters": self.characters,
            "bytes": self.bytes,
            "tokens": self.tokens,
        } | (self.ratios())


@dataclass
class Usage:
    """How often each token was used, and the amounts of all documents, of each source and of each script."""

    frequency: Frequency  # int64[vocab_size]
    total: Amounts = field(default_factory=Amounts)
    sources: dict[str, Amounts] = field(default_factory=dict)
    scripts: dict[str, Amounts] = field(default_factory=dict)


def measure(tokenizer: Tokenizer, texts_by_source: Mapping[str, Sequence[str]]) -> Usage:
    """Encode all texts, some documents at a time.

    Raises:
        TokenizerError: a text holds lone surrogates.
    """
    is_byte = np.array([tokenizer.is_byte(id) for id in range(tokenizer.vocab_size)], np.bool_)
    usage = Usage(np.zeros(tokenizer.vocab_size, np.int64))
    for source in sorted(texts_by_source):
        of_source = usage.sources.setdefault(source, Amounts())
        for texts in _batches(texts_by_source[source]):
            ids = tokenizer.encode_batch(texts)
            usage.frequency += np.bincount(np.concatenate(ids), minlength=tokenizer.vocab_size)
            traditional = is_traditional(pa.array(texts, pa.large_string())).tolist()
            for text, tokens, is_trad in zip(texts, ids, traditional, strict=True):
                of_script = usage.scripts.setdefault(TRADITIONAL if is_trad else OTHER, Amounts())
                num_bytes = int(np.count_nonzero(is_byte[tokens]))
                for amounts in (usage.total, of_source, of_script):
                    amounts.add(text, len(tokens), num_bytes)
    return usage


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), BATCH_DOCUMENTS):
        yield texts[start : start + BATCH_DOCUMENTS]


def renyi_efficiency(frequency: Frequency, alpha: float = ALPHA) -> float | None:
    """H_alpha(p) / log |V|, with H_alpha(p) = log(sum of p_i ** alpha) / (1 - alpha): 1 where all tokens are equally
    frequent.

    p is the distribution of tokens in the texts and V the vocabulary, tokens that never occur included. An alpha above
    1 punishes what is far too frequent more than what is rare. Zouhar et al. 2023, "Tokenization and the Noiseless
    Channel". None without tokens or with a vocabulary of one.

    >>> renyi_efficiency(np.array([5, 5, 5, 5])), renyi_efficiency(np.array([5, 5, 0, 0]))
    (1.0, 0.5)
    """
    total = int(frequency.sum())
    if not total or len(frequency) < 2:
        return None
    probabilities = frequency[frequency > 0] / total
    entropy = math.log(math.fsum((probabilities**alpha).tolist())) / (1 - alpha)
    return round(max(entropy, 0.0) / math.log(len(frequency)), 6)


def coverage(frequency: Frequency) -> dict[str, Any]:
    """`top`: the share of all tokens that the k most frequent ones are, for k = 1, 2, 5, 10, ... ; `pieces_for`: how
    many of the most frequent cover a share.

    >>> coverage(np.array([1, 7, 0, 2]))["top"]
    [[1, 0.7], [2, 0.9], [3, 1.0]]
    """
    used = np.sort(frequency[frequency > 0])[::-1]
    if not len(used):
        return {"top": [], "pieces_for": {}}
    shares = np.cumsum(used) / used.sum()
    steps = [digit * 10**power for power in range(7) for digit in (1, 2, 5) if digit * 10**power < len(used)]
    return {
        "top": [[count, round(float(shares[count - 1]), 6)] for count in [*steps, len(used)]],
        "pieces_for": {f"{part:g}": int(np.searchsorted(shares, part - 1e-12)) + 1 for part in COVERAGE},
    }


def ratio(part: float, whole: float) -> float | None:
    """part / whole to six digits behind the point; None where there is no whole."""
    return round(part / whole, 6) if whole else None

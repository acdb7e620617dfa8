"""The [tokenizer] section of a recipe: how the vocabulary is trained and how documents become token shards."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from corpus.engine.config import Strict
from tokenizer.shards import UINT16_VOCAB_LIMIT

MIXTURE_STAGE = "mixture"  # of the corpus: how often each document is encoded
SMALLEST_VOCABULARY = 300  # two control ids, 256 bytes, and room for the required characters


class TokenizerConfig(Strict):
    """Every key has a default that suits Chinese web text; a recipe names only what it changes."""

    model_type: Literal["bpe", "unigram"] = "bpe"
    """BPE exports to other libraries with equal ids, trains faster and is encoded by kernels; Unigram is SentencePiece's."""

    vocab_size: int = Field(50_304, ge=SMALLEST_VOCABULARY, lt=UINT16_VOCAB_LIMIT)
    """Pieces, control ids and bytes included; below 65,500 a token takes two bytes. Fewer where the text has fewer."""

    character_coverage: float = Field(0.9995, ge=0.9, le=1.0)
    """Share of the sample's characters that get a piece of their own; the rest are spelled in bytes."""

    split_digits: bool = True
    """Each digit is a token of its own, so that numbers have one spelling."""

    segmentation: Literal["none", "jieba"] = "none"
    """jieba: no piece crosses a word of jieba's, the way Yuan 1.0 and CPM did it; up to 28 % more tokens, and 0.3 MB/s
    of sample a core. Only the vocabulary is trained so: encoding segments nothing."""

    sample_bytes: int = Field(200_000_000, ge=1, le=10_000_000_000)
    """UTF-8 bytes of text to train on, documents chosen by the hash of their id."""

    num_threads: int = Field(4, ge=1, le=64)
    """Part of the recipe, not of the machine: it changes a Unigram vocabulary."""

    validation_ratio: float = Field(0.005, ge=0.0, le=0.5)
    """Share of documents, chosen by the hash of their id, that is kept from training."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Of the sample, the split and the order of documents inside a shard."""


def sampling(config: TokenizerConfig) -> dict[str, Any]:
    """What decides which documents the vocabulary is trained on."""
    return config.model_dump(include={"sample_bytes", "seed"})


def training(config: TokenizerConfig) -> dict[str, Any]:
    """What decides the vocabulary, given the sample."""
    return config.model_dump(exclude={"seed", "validation_ratio"})


def encoding(config: TokenizerConfig) -> dict[str, Any]:
    """What decides the token shards, given text and vocabulary."""
    return config.model_dump(include={"validation_ratio", "seed"})

"""The [tokenizer] section of a recipe: how the vocabulary is trained and how documents become token shards.

Bytes for what has no piece (byte fallback) are no key: without them a character that the sample did not have would have
no id, and texts would not come back.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from corpus.engine.config import Strict
from tokenizer.shards.record import UINT16_VOCAB_LIMIT

MIXTURE_STAGE = "mixture"  # of the corpus: how often each document is encoded
SMALLEST_VOCABULARY = 300  # two control ids, 256 bytes, and room for the required characters
MAX_SYMBOL_CHARACTERS = 64
RESERVED_PIECE = "<|reserved_{}|>"
KEYS_OF_STAGES = {  # what decides each stage's outputs, given what it reads
    "shares": {"sample_bytes", "source_exponent", "traditional_ratio"},
    "sample": {"seed"},
    "tokenizer": {
        *("model_type", "vocab_size", "character_coverage", "split_digits", "segmentation", "num_threads"),
        *("sample_bytes", "user_symbols", "control_symbols", "reserved_ids", "reject", "reject_pieces"),
    },
    "tokens": {"validation_ratio", "seed"},
}
_TAKEN = re.compile(r"<unk>|<\|endoftext\|>|<0x[0-9A-F]{2}>|<\|reserved_[0-9]+\|>")
_NOT_PRINTED = re.compile("[\x00-\x1f\x7f-\x9f\u2581\u2585\ud800-\udfff]|\\s")


class TokenizerConfig(Strict):
    """Every key has a default that suits Chinese web text; a recipe names only what it changes."""

    model_type: Literal["bpe", "unigram"] = "bpe"
    """BPE exports to other libraries with equal ids, trains faster and is encoded by kernels; Unigram is
    SentencePiece's."""

    vocab_size: int = Field(50_304, ge=SMALLEST_VOCABULARY, lt=UINT16_VOCAB_LIMIT)
    """Pieces, symbols, control ids and bytes included; below 65,500 a token takes two bytes. Fewer where the text has
    fewer."""

    character_coverage: float = Field(0.9995, ge=0.9, le=1.0)
    """Share of the sample's characters that get a piece of their own; the rest are spelled in bytes."""

    split_digits: bool = True
    """Each digit is a token of its own, so that numbers have one spelling."""

    user_symbols: tuple[str, ...] = Field((), strict=False)
    """Strings that are one token wherever they stand in a text, and come back as themselves: `["<n>"]`. Anybody's text
    can hold them, so they separate nothing that must be trusted."""

    control_symbols: tuple[str, ...] = Field((), strict=False)
    """Names of ids that no text produces, as <|endoftext|> is one: `["<|im_start|>", "<|im_end|>"]` for
    conversations."""

    reserved_ids: int = Field(0, ge=0, le=4096)
    """Control ids <|reserved_0|>, <|reserved_1|>, ... for later use: a model that has them can learn a new control
    symbol without another vocabulary."""

    reject: Literal["suspicious", "none"] = "suspicious"
    """suspicious: pieces that `tokenizer.report.suspicious` names (advertising, addresses, broken encodings, fixed
    texts) are left out, and the next ones take their ids; so are those that no text can produce then."""

    reject_pieces: tuple[str, ...] = Field((), strict=False)
    """No piece of two characters or more holds one of these strings; `python -m tokenizer report` lists candidates."""

    segmentation: Literal["none", "jieba"] = "none"
    """jieba: no piece crosses a word of jieba's, the way Yuan 1.0 and CPM did it; up to 28 % more tokens, and 0.3 MB/s
    of sample a core. Only the vocabulary is trained so: encoding segments nothing."""

    sample_bytes: int = Field(200_000_000, ge=1, le=10_000_000_000)
    """UTF-8 bytes of text to train on, documents chosen by the hash of their id."""

    source_exponent: float = Field(0.7, ge=0.0, le=1.0)
    """A source of n bytes has a share of the sample proportional to n to this power, so that small sources shape the
    vocabulary too: 1 takes them as they come, 0 gives all the same. For languages, Devlin et al. (multilingual BERT)
    have 0.7, Conneau and Lample 2019 0.5, Conneau et al. 2020 and Xue et al. 2021 (mT5) 0.3."""

    traditional_ratio: float | None = Field(None, ge=0.0, le=1.0)
    """Share of the sample that is Traditional Chinese documents, by their characters; without it, as they come."""

    num_threads: int = Field(4, ge=1, le=64)
    """Part of the recipe, not of the machine: it changes a Unigram vocabulary."""

    validation_ratio: float = Field(0.005, ge=0.0, le=0.5)
    """Share of documents, chosen by the hash of their id, that is kept from training."""

    seed: int = Field(0, ge=0, lt=2**63)
    """Of the sample, the split and the order of documents inside a shard."""

    @field_validator("user_symbols", "control_symbols")
    @classmethod
    def _usable(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for place, symbol in enumerate(symbols):
            if problem := _problem(symbol, symbols[:place]):
                raise ValueError(f"{symbol!r} {problem}")
        return symbols

    @field_validator("control_symbols")
    @classmethod
    def _unspelled(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in symbols:
            if len(symbol) == 1:  # SentencePiece's BPE looks single characters up among all pieces
                raise ValueError(f"{symbol!r} is one character, which texts hold. Give a longer name, as <|{symbol}|>")
        return symbols

    @field_validator("reject_pieces")
    @classmethod
    def _not_empty(cls, strings: tuple[str, ...]) -> tuple[str, ...]:
        if "" in strings:
            raise ValueError("an empty string is in every piece. Take it out")
        return strings

    @model_validator(mode="after")
    def _fits(self) -> TokenizerConfig:
        both = sorted(set(self.user_symbols) & set(self.control_symbols))
        if both:
            raise ValueError(f"{both[0]!r} is in user_symbols and in control_symbols. Take it out of one")
        num_symbols = len(self.user_symbols) + len(self.control_symbols) + self.reserved_ids
        if self.vocab_size < SMALLEST_VOCABULARY + num_symbols:
            raise ValueError(
                f"vocab_size = {self.vocab_size} has no room for {num_symbols} symbols and reserved ids. "
                f"Raise it to {SMALLEST_VOCABULARY + num_symbols} or more"
            )
        return self

    @property
    def by_script(self) -> bool:
        """Whether Traditional documents are told apart from others."""
        return self.traditional_ratio is not None

    def of_stage(self, stage: str) -> dict[str, Any]:
        """The keys that decide a stage's outputs."""
        return self.model_dump(mode="json", include=KEYS_OF_STAGES[stage])


def _problem(symbol: str, before: tuple[str, ...]) -> str | None:
    """Why a string cannot be a symbol, and what to do."""
    if not symbol:
        return "is empty. Take it out"
    if len(symbol) > MAX_SYMBOL_CHARACTERS:
        return f"has {len(symbol)} characters. Shorten it to {MAX_SYMBOL_CHARACTERS}"
    if found := _NOT_PRINTED.search(symbol):
        return (
            f"holds U+{ord(found[0]):04X}: blanks, line breaks, control characters, U+2581 and U+2585 cannot be in one"
        )
    if _TAKEN.fullmatch(symbol):
        return "is a symbol of every vocabulary, or reserved. Choose another name"
    if symbol in before:
        return "is listed twice. Name it once"
    return None


def control_pieces(config: TokenizerConfig) -> list[str]:
    """The control symbols behind <|endoftext|>, reserved ones last, in the order of their ids."""
    return [*config.control_symbols, *(RESERVED_PIECE.format(number) for number in range(config.reserved_ids))]

"""What the tests of both kernels share: vocabularies, random and tricky texts, and the comparison with
SentencePiece."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sentencepiece
from hypothesis import strategies as st

from tests.tokenizer.texts import documents
from tokenizer.kernels.encoder import build_kernel
from tokenizer.kernels.text_kernels import Kernel
from tokenizer.model import EOD_PIECE, SPACE_MARK, Tokenizer

UINT16, INT32 = np.dtype("<u2"), np.dtype("<i4")
USER_SYMBOLS = ["<n>", "<n><n>", f"床前{SPACE_MARK}明", "x", "\n\n", "a b", "学而时", "😀"]
ALPHABETS = (
    ("ab", 300),
    ("ab ", 700),
    ("abc 1-\n", 400),
    ("学而时习之，。 ", 330),
    ("學而時習之不亦說乎，。\n", 900),
    ("的 =\t\u3000", 500),
    ("😀👨\u200d👩𠀀a ", 600),
    ("éßяк\u0301x ", 1500),
)
TRICKY = (
    *"\0\n\t\r \u3000\u2585\ufffd\ufeff\u200d\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff\u0301",
    *(SPACE_MARK, SPACE_MARK * 3, "  ", "<s>", "</s>", "<unk>", "<0xE4>", EOD_PIECE, "⁇", "aaaa", "學", "\n\n"),
    *("<|im_start|>", "<n>", "<n><n>", "<n><n><n>", "床前 明", "\n\n\n", "a b", "学而时", "x"),
)
UNITS = ("ab", " ", "\n", SPACE_MARK, "𠀀", "的", "<n>", "\u0301")


@dataclass(frozen=True)
class Vocabulary:
    """A small model, its kernel, and what its training texts are made of."""

    tokenizer: Tokenizer
    kernel: Kernel
    alphabet: str


def skewed(alphabet: str, length: int, source: random.Random) -> str:
    """Characters of a Zipf-like frequency, some of them in runs."""
    weights = [1 / rank for rank in range(1, len(alphabet) + 1)]
    return "".join(one * source.choice((1, 1, 1, 2, 5)) for one in source.choices(alphabet, weights, k=length))


def foreign(path: Path, texts: Sequence[str] | None = None, **options: Any) -> Tokenizer:
    """A model by SentencePiece's own trainer, with what `Tokenizer` asks for and other settings."""
    data = io.BytesIO()
    lines = "\n".join(documents(60) if texts is None else texts).split("\n")
    settings: dict[str, Any] = {
        "sentence_iterator": iter(lines),
        "model_writer": data,
        "model_type": "bpe",
        "vocab_size": 600,
        "hard_vocab_limit": False,
        "character_coverage": 1.0,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        "allow_whitespace_only_pieces": True,
        "byte_fallback": True,
        "eos_piece": EOD_PIECE,
        "required_chars": SPACE_MARK,
        "num_threads": 1,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(**(settings | options))
    path.write_bytes(data.getvalue())
    return Tokenizer(path)


def vocabularies(folder: Path, model_type: str) -> list[Vocabulary]:
    """Small vocabularies of many kinds; every other one has a user's symbols and control symbols too."""
    found = []
    for number, (alphabet, size) in enumerate(ALPHABETS):
        source = random.Random(number)
        texts = [skewed(alphabet, 60, source) for _ in range(60)]
        extra = {"user_defined_symbols": USER_SYMBOLS, "control_symbols": ["<|im_start|>"]} if number % 2 else {}
        tokenizer = foreign(
            folder / f"{number}.model", texts, model_type=model_type, vocab_size=size + 10 * bool(extra), **extra
        )
        found.append(Vocabulary(tokenizer, build_kernel(tokenizer), alphabet))
    return found


def texts_of(alphabet: str) -> st.SearchStrategy[str]:
    """Texts of an alphabet with tricky parts, any other characters, and runs."""
    part = st.one_of(
        st.text(st.sampled_from(alphabet), max_size=30),
        st.sampled_from(TRICKY),
        st.characters(exclude_categories=["Cs"]),
        st.builds(lambda one, count: one * count, st.sampled_from(alphabet), st.integers(1, 70)),
    )
    return st.lists(part, max_size=8).map("".join)


def arrow(texts: Sequence[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def assert_equal(tokenizer: Tokenizer, found: Sequence[Any], texts: Sequence[str]) -> None:
    expected = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    assert [ids.tolist() for ids in found] == expected

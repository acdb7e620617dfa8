"""What is BPE's own: merging by scans and by the heap, and which models are left to SentencePiece."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.kernel_cases import (
    UINT16,
    Vocabulary,
    arrow,
    assert_equal,
    foreign,
    texts_of,
    vocabularies,
)
from tests.tokenizer.texts import documents
from tokenizer.kernels import bpe
from tokenizer.kernels.bpe import build_kernel
from tokenizer.kernels.encoder import BatchEncoder, encode_with
from tokenizer.kernels.lexicon import UnsupportedError, read_lexicon
from tokenizer.kernels.text_kernels import Kernel
from tokenizer.model import Tokenizer


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> list[Vocabulary]:
    return vocabularies(tmp_path_factory.mktemp("bpe"), "bpe")


def with_short(vocabulary: Vocabulary, short: int) -> Kernel:
    return vocabulary.kernel._replace(tables=vocabulary.kernel.tables._replace(short_chunk=short))


@given(data=st.data())
def test_scans_and_the_heap_agree(known: list[Vocabulary], data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from(known))
    texts = [data.draw(texts_of(vocabulary.alphabet))]
    for short in (1, 3, 10_000):
        assert_equal(vocabulary.tokenizer, encode_with(with_short(vocabulary, short), arrow(texts), UINT16), texts)


@pytest.mark.parametrize(
    "options", [{}, {"treat_whitespace_as_suffix": True}, {"split_by_whitespace": False}, {"split_digits": False}]
)
def test_bpe_of_another_training_is_encoded_too(tmp_path: Path, options: dict[str, Any]) -> None:
    tokenizer = foreign(tmp_path / "x.model", **options)
    encoder, texts = BatchEncoder(tokenizer), [*documents(40, start=300), " a  b ", "x = 10\n"]
    assert encoder.reason is None
    assert_equal(tokenizer, encoder.encode(arrow(texts)), texts)


def assert_refused(tokenizer: Tokenizer, reason: str, **changes: Any) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        build_kernel(tokenizer, replace(read_lexicon(tokenizer), **changes))


def test_vocabularies_that_no_trainer_gives_are_refused(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = read_lexicon(tokenizer).normal
    assert_refused(tokenizer, "unused", unused={"x": 300})
    assert_refused(
        tokenizer, "no piece of its own", normal={p.replace("学", "\u2fff", len(p) == 1): i for p, i in pieces.items()}
    )
    assert_refused(tokenizer, "not the order of BPE merges", normal={p: i for p, i in pieces.items() if i != 300})
    monkeypatch.setattr(bpe, "ID_BITS", 9)
    assert_refused(tokenizer, "more than 512 pieces")

"""Both kernels give the ids of SentencePiece: random vocabularies and texts, long runs, every code point, real
prose."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.tokenizer.kernel_cases import (
    UINT16,
    UNITS,
    USER_SYMBOLS,
    Vocabulary,
    arrow,
    assert_equal,
    foreign,
    skewed,
    texts_of,
    vocabularies,
)
from tests.tokenizer.texts import documents
from tokenizer import model
from tokenizer.config import TokenizerConfig
from tokenizer.kernels.encoder import build_kernel, encode_with
from tokenizer.model import SPACE_MARK, Tokenizer
from tokenizer.train import train


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Vocabulary]:
    return vocabularies(tmp_path_factory.mktemp("kernels"), request.param)


@given(data=st.data())
@examples(300)
def test_ids_are_sentencepieces(known: list[Vocabulary], data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from(known))
    texts = data.draw(st.lists(texts_of(vocabulary.alphabet), max_size=4))
    assert_equal(vocabulary.tokenizer, encode_with(vocabulary.kernel, arrow(texts), UINT16), texts)


def test_random_prose_of_every_vocabulary(known: list[Vocabulary]) -> None:
    for number, vocabulary in enumerate(known):
        source = random.Random(100 + number)
        texts = [skewed(vocabulary.alphabet, source.randrange(300), source) for _ in range(150)]
        assert_equal(vocabulary.tokenizer, encode_with(vocabulary.kernel, arrow(texts), UINT16), texts)


@given(data=st.data())
@examples(200)
def test_long_texts_are_cut_where_the_tokenizer_cuts_them(known: list[Vocabulary], data: st.DataObject) -> None:
    """User's symbols with newlines and across cuts among them."""
    vocabulary = data.draw(st.sampled_from(known))
    parts = st.sampled_from([*vocabulary.alphabet, "\n", SPACE_MARK, "\u2fff", "<n>", "\n\n", "𠀀"])
    text = data.draw(st.lists(parts, max_size=60).map("".join))
    limit = data.draw(st.integers(1, 12))
    found = encode_with(vocabulary.kernel, arrow([text, "x", text]), UINT16, limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "CHUNK_CHARACTERS", limit)
        assert_equal(vocabulary.tokenizer, found, [text, "x", text])


@pytest.mark.parametrize("unit", UNITS)
def test_long_runs(known: list[Vocabulary], unit: str) -> None:
    """Three times as long as the longest chunk; Unigram's sums are beyond 100,000 several times over."""
    text = unit * (150_000 // len(unit))
    for vocabulary in known[1:5:3]:
        assert_equal(vocabulary.tokenizer, encode_with(vocabulary.kernel, arrow([text]), UINT16), [text])


def test_a_sum_that_is_subtracted(known: list[Vocabulary]) -> None:
    """Characters that tie, at every distance around the place where Unigram's sum is beyond 100,000."""
    for vocabulary in known[3:5]:
        source = random.Random(5)
        texts = ["𠀀" * (3000 + 7 * step) + skewed(vocabulary.alphabet, 900, source) for step in range(60)]
        assert_equal(vocabulary.tokenizer, encode_with(vocabulary.kernel, arrow(texts), UINT16), texts)


def test_every_code_point(known: list[Vocabulary]) -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    (ids,) = encode_with(known[3].kernel, arrow([text]), UINT16)
    assert np.array_equal(ids, known[3].tokenizer.encode_batch([text])[0])


def test_every_piece_beside_every_symbol(known: list[Vocabulary]) -> None:
    for vocabulary in known[1::2]:
        tokenizer = vocabulary.tokenizer
        pieces = {tokenizer.piece_bytes(id).decode("utf-8", "replace") for id in range(tokenizer.vocab_size)}
        texts = [
            f"{piece}{symbol}{piece}" for piece in sorted(pieces) for symbol in (*USER_SYMBOLS, "<|im_start|>", "<")
        ]
        assert_equal(tokenizer, encode_with(vocabulary.kernel, arrow(texts), UINT16), texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_all_real_text(test_data: Path, tmp_path: Path, kind: str) -> None:
    """A vocabulary of one part of the documents, the ids of all."""
    texts = []
    for path in sorted((test_data / "text").glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    assert len(texts) > 5000
    for number, options in enumerate(({}, {"user_defined_symbols": ["的", "，但", "<n>"], "split_digits": True})):
        size = 8000 if kind == "bpe" else 4000
        tokenizer = foreign(tmp_path / f"{number}.model", texts[:1500:3], model_type=kind, vocab_size=size, **options)
        found = encode_with(build_kernel(tokenizer), arrow(texts), UINT16)
        assert all(map(np.array_equal, found, tokenizer.encode_batch(texts)))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_models_of_our_training(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.model"
    path.write_bytes(train(documents(150), TokenizerConfig.model_validate({"model_type": kind, "vocab_size": 600})))
    tokenizer, texts = Tokenizer(path), documents(60, start=700)
    assert_equal(tokenizer, encode_with(build_kernel(tokenizer), arrow(texts), UINT16), texts)

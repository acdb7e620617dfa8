"""The kernels give the ids of SentencePiece: random vocabularies and texts, long runs, real prose, every fallback."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizer.texts import documents
from tokenizer import bpe, model
from tokenizer.bpe import BatchEncoder, UnsupportedError, batch_encoder, build_tables, encode_with
from tokenizer.bpe_kernels import Tables
from tokenizer.config import TokenizerConfig
from tokenizer.model import EOD_PIECE, SPACE_MARK, Tokenizer
from tokenizer.train import train

UINT16, INT32 = np.dtype("<u2"), np.dtype("<i4")
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
    *"\0\n\t\r \u3000\u2585\ufffd\ufeff\u200d\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff",
    *(SPACE_MARK, SPACE_MARK * 3, "  ", "<s>", "</s>", "<unk>", "<0xE4>", EOD_PIECE, "⁇", "aaaa", "學", "\n\n"),
)


@dataclass(frozen=True)
class Vocabulary:
    """A small model, its kernels' tables, and what its training texts are made of."""

    tokenizer: Tokenizer
    tables: Tables
    alphabet: str


def skewed(alphabet: str, length: int, source: random.Random) -> str:
    """Characters of a Zipf-like frequency, some of them in runs."""
    weights = [1 / rank for rank in range(1, len(alphabet) + 1)]
    return "".join(one * source.choice((1, 1, 1, 2, 5)) for one in source.choices(alphabet, weights, k=length))


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> list[Vocabulary]:
    found = []
    for number, (alphabet, size) in enumerate(ALPHABETS):
        source = random.Random(number)
        texts = [skewed(alphabet, 60, source) for _ in range(60)]
        path = tmp_path_factory.mktemp("bpe") / "tokenizer.model"
        path.write_bytes(train(texts, TokenizerConfig(vocab_size=size, character_coverage=1.0, num_threads=1)))
        tokenizer = Tokenizer(path)
        found.append(Vocabulary(tokenizer, build_tables(tokenizer), alphabet))
    return found


def arrow(texts: Sequence[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def assert_equal(tokenizer: Tokenizer, found: Sequence[Any], texts: Sequence[str]) -> None:
    expected = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    assert [ids.tolist() for ids in found] == expected


@given(data=st.data())
@settings(max_examples=200)
def test_ids_are_sentencepieces(vocabularies: list[Vocabulary], data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from(vocabularies))
    part = st.one_of(
        st.text(st.sampled_from(vocabulary.alphabet), max_size=30),
        st.sampled_from(TRICKY),
        st.characters(exclude_categories=["Cs"]),
        st.builds(lambda one, count: one * count, st.sampled_from(vocabulary.alphabet), st.integers(1, 70)),
    )
    texts = data.draw(st.lists(st.lists(part, max_size=8).map("".join), max_size=4))
    short = data.draw(st.sampled_from((1, 3, bpe.SHORT_CHUNK)))
    found = encode_with(vocabulary.tables, arrow(texts), UINT16, short_chunk=short)
    assert_equal(vocabulary.tokenizer, found, texts)


def test_random_prose_of_every_vocabulary(vocabularies: list[Vocabulary]) -> None:
    """By scans, by the heap, and by both."""
    for number, vocabulary in enumerate(vocabularies):
        source = random.Random(100 + number)
        texts = [skewed(vocabulary.alphabet, source.randrange(300), source) for _ in range(100)]
        for short in (1, 10, 10_000):
            found = encode_with(vocabulary.tables, arrow(texts), INT32, short_chunk=short)
            assert_equal(vocabulary.tokenizer, found, texts)


@given(data=st.data())
@settings(max_examples=150)
def test_long_texts_are_cut_where_the_tokenizer_cuts_them(vocabularies: list[Vocabulary], data: st.DataObject) -> None:
    vocabulary = data.draw(st.sampled_from(vocabularies))
    text = data.draw(st.text(st.sampled_from(vocabulary.alphabet + "\n" + SPACE_MARK + "\u2fff"), max_size=80))
    limit = data.draw(st.integers(1, 12))
    found = encode_with(vocabulary.tables, arrow([text, "x", text]), UINT16, chunk_characters=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "CHUNK_CHARACTERS", limit)
        assert_equal(vocabulary.tokenizer, found, [text, "x", text])


@pytest.mark.parametrize("unit", ["a", "ab", " ", "a ", "\n", "\0", SPACE_MARK, "𠀀", "的", "=\t", "學而"])
def test_a_long_run_goes_through_the_heap(vocabularies: list[Vocabulary], unit: str) -> None:
    """Three times as long as the longest chunk, or none where the unit merges with nothing."""
    text = unit * (150_000 // len(unit))
    for vocabulary in vocabularies[1::2]:
        found = encode_with(vocabulary.tables, arrow([text]), UINT16)
        assert_equal(vocabulary.tokenizer, found, [text])


def test_every_code_point(tokenizer: Tokenizer) -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    (ids,) = encode_with(build_tables(tokenizer), arrow([text]), UINT16)
    assert np.array_equal(ids, tokenizer.encode_batch([text])[0])


def test_a_batch_may_be_empty_a_slice_or_without_bytes(tokenizer: Tokenizer) -> None:
    encoder, texts = BatchEncoder(tokenizer), [*documents(6, start=70), "", ""]
    assert encoder.reason is None
    assert encoder.encode(arrow([])) == []
    assert [ids.tolist() for ids in encoder.encode(arrow(["", ""]))] == [[], []]
    for start, stop in ((0, 8), (2, 5), (6, 8), (5, 5)):
        found = encoder.encode(arrow(texts)[start:stop])
        assert_equal(tokenizer, found, texts[start:stop])
        assert all(ids.dtype == UINT16 for ids in found)


def test_equal_tokenizers_share_an_encoder(tokenizer: Tokenizer, vocabularies: list[Vocabulary]) -> None:
    encoder = batch_encoder(tokenizer)
    assert batch_encoder(Tokenizer(tokenizer.path)) is encoder
    assert batch_encoder(vocabularies[0].tokenizer) is not encoder


def foreign(path: Path, **options: Any) -> Tokenizer:
    """A model by SentencePiece's own trainer, with what `Tokenizer` asks for and other settings."""
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        **{
            "sentence_iterator": iter("\n".join(documents(60)).split("\n")),
            "model_writer": data,
            "model_type": "bpe",
            "vocab_size": 600,
            "hard_vocab_limit": False,
            "normalization_rule_name": "identity",
            "remove_extra_whitespaces": False,
            "add_dummy_prefix": False,
            "byte_fallback": True,
            "eos_piece": EOD_PIECE,
            "minloglevel": 2,
        }
        | options
    )
    path.write_bytes(data.getvalue())
    return Tokenizer(path)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"model_type": "unigram"}, "not the order of BPE merges"),
        ({"user_defined_symbols": ["床前明", "x"]}, "not the order of BPE merges"),
        ({"control_symbols": ["学"]}, "single character"),
        ({"model_type": "char"}, "not the order of BPE merges"),
    ],
)
def test_other_models_are_sentencepieces(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    tokenizer = foreign(tmp_path / "x.model", **options)
    with pytest.raises(UnsupportedError, match=reason):
        build_tables(tokenizer)
    encoder, texts = BatchEncoder(tokenizer), [*documents(5, start=50), "", f"{SPACE_MARK}x"]
    assert reason in str(encoder.reason)
    found = encoder.encode(arrow(texts))
    assert_equal(tokenizer, found, texts)
    assert {ids.dtype for ids in found} == {UINT16}


@pytest.mark.parametrize(
    "options", [{}, {"treat_whitespace_as_suffix": True}, {"split_by_whitespace": False}, {"split_digits": False}]
)
def test_bpe_of_another_training_is_encoded_too(tmp_path: Path, options: dict[str, Any]) -> None:
    tokenizer = foreign(tmp_path / "x.model", **options)
    encoder, texts = BatchEncoder(tokenizer), [*documents(40, start=300), " a  b ", "x = 10\n"]
    assert encoder.reason is None
    assert_equal(tokenizer, encoder.encode(arrow(texts)), texts)


def test_other_ids_on_a_trial_text_are_a_reason(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = build_tables(tokenizer)
    tables.symbols[ord("学")], tables.symbols[ord("而")] = tables.symbols[ord("而")], tables.symbols[ord("学")]
    monkeypatch.setattr(bpe, "build_tables", lambda _: tables)
    encoder = BatchEncoder(tokenizer)
    assert "ids differ on a trial text" in str(encoder.reason)
    assert_equal(tokenizer, encoder.encode(arrow(["学而时习之"])), ["学而时习之"])


class Renamed:
    """A tokenizer that calls a piece something else."""

    def __init__(self, tokenizer: Tokenizer, old: str, new: str) -> None:
        self._tokenizer, self._old, self._new = tokenizer, old, new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def piece(self, id: int) -> str:
        piece = self._tokenizer.piece(id)
        return self._new if piece == self._old else piece


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (SPACE_MARK, "\u2fff", "a space"),
        ("学", "\u2fff", "no piece of its own"),
        ("学而", "学\n", "newline"),
    ],
)
def test_vocabularies_that_no_trainer_gives_are_refused(tokenizer: Tokenizer, old: str, new: str, reason: str) -> None:
    assert old in {tokenizer.piece(id) for id in range(tokenizer.vocab_size)}
    with pytest.raises(UnsupportedError, match=reason):
        build_tables(Renamed(tokenizer, old, new))  # type: ignore[arg-type]


def test_more_pieces_than_a_slot_holds_are_a_reason(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "ID_BITS", 9)
    with pytest.raises(UnsupportedError, match="more than 512 pieces"):
        build_tables(tokenizer)


def test_unused_pieces_are_a_reason(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer.processor, "is_unused", lambda id: id == 300)
    with pytest.raises(UnsupportedError, match="unused"):
        build_tables(tokenizer)


def test_all_real_text(test_data: Path, tmp_path: Path) -> None:
    """A vocabulary of one half of the documents, the ids of the other half."""
    texts = []
    for path in sorted((test_data / "text").glob("*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    assert len(texts) > 5000
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train(texts[:2000:2], TokenizerConfig(vocab_size=8000, num_threads=1)))
    encoder = BatchEncoder(tokenizer := Tokenizer(path))
    assert encoder.reason is None
    for short in (1, bpe.SHORT_CHUNK):
        found = encode_with(build_tables(tokenizer), arrow(texts), UINT16, short_chunk=short)
        assert all(map(np.array_equal, found, tokenizer.encode_batch(texts)))

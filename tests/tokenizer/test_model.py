"""Text to ids and back: exact for all of Unicode, bounded in time, and never by way of a control symbol."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.tokenizer.texts import documents
from tokenizer import model
from tokenizer.config import TokenizerConfig
from tokenizer.model import EOD_PIECE, Tokenizer, TokenizerError
from tokenizer.train import train

UNICODE = st.characters(exclude_categories=["Cs"])
TRICKY = st.sampled_from(
    "\n,\r\n,\t, "
    ",\u3000,\u2581,\u2585,\0,\ufeff,\u200d,<0x0A>,<unk>,学,，,\u2581\u2581,a,1,\U0010ffff,\ufdd0,\x7f,e\u0301,"
    "<s>,</s>,<pad>,⁇,<|endoftext|>".split(",")
)


@given(st.one_of(st.text(UNICODE, max_size=60), st.lists(TRICKY, max_size=20).map("".join)))
@examples(400)
def test_every_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not any(tokenizer.is_control(id) for id in ids)


def test_every_code_point_comes_back(tokenizer: Tokenizer) -> None:
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_unigram_comes_back_too(tmp_path: Path) -> None:
    path = tmp_path / "unigram.model"
    path.write_bytes(train(documents(100), TokenizerConfig(model_type="unigram", vocab_size=600, num_threads=2)))
    unigram = Tokenizer(path)
    for text in [*documents(20, start=500), "\u2581 \n\0<unk>" + EOD_PIECE, "", "𠀀\r\n\t　 "]:
        ids = unigram.encode(text)
        assert unigram.decode(ids) == text
        assert not any(unigram.is_control(id) for id in ids)


def test_control_ids_decode_to_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.eod == 1
    assert tokenizer.piece(tokenizer.eod) == EOD_PIECE
    assert tokenizer.decode([*tokenizer.encode("学而"), tokenizer.eod, *tokenizer.encode("时习")]) == "学而时习"


def test_small_texts(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode_batch([]) == []
    assert [ids.tolist() for ids in tokenizer.encode_batch(["", "", "学"])] == [[], [], tokenizer.encode("学")]


def test_a_cut_character_decodes_to_a_replacement(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("\U0002ffff")
    assert len(ids) == 4
    assert tokenizer.decode(ids[:3]) == "\ufffd"


def test_ids_are_sentencepieces(tokenizer: Tokenizer, model_bytes: bytes) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    for text in documents(50, start=2000):
        assert tokenizer.encode(text) == reference.encode(text)


def test_cuts_at_newlines_change_no_id(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n".join(documents(30, start=3000)) + "\n"
    whole = tokenizer.encode(text)
    monkeypatch.setattr(model, "CHUNK_CHARACTERS", 100)
    pieces = list(model._chunks(text))
    assert len(pieces) > 20
    assert all(piece.endswith("\n") for piece in pieces[:-1])
    assert tokenizer.encode(text) == whole


@given(text=st.text(st.sampled_from("学而 \n▁"), max_size=80), limit=st.integers(1, 9))
def test_cuts_lose_nothing(tokenizer: Tokenizer, text: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "CHUNK_CHARACTERS", limit)
        pieces = list(model._chunks(text))
        assert "".join(pieces) == text
        assert all(len(piece) <= limit for piece in pieces)
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("unit", ["的", " ", "\u2581", "\n", "ab", "=", "𠀀"])
def test_a_long_line_is_encoded_in_bounded_parts(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    """SentencePiece's cost grows faster than its input: no part that it sees may be long."""
    longest = 0
    encode = tokenizer._encode_plain

    def watch(pieces: list[str]) -> Any:
        nonlocal longest
        longest = max(longest, *map(len, pieces))
        return encode(pieces)

    monkeypatch.setattr(tokenizer, "_encode_plain", watch)
    text = unit * (200_000 // len(unit))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert longest <= model.CHUNK_CHARACTERS


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="surrogates"):
        tokenizer.encode("学\ud800")


def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer) -> None:
    for id in (-1, tokenizer.vocab_size, 2**40):
        with pytest.raises(TokenizerError, match="outside 0"):
            tokenizer.decode([5, id])


def test_a_tokenizer_can_be_sent_to_a_worker(tokenizer: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.sha256 == tokenizer.sha256
    assert copy.encode("学而时习之") == tokenizer.encode("学而时习之")


@pytest.mark.parametrize("data", [b"", b"not a model", bytes(1000), b"\n\x0b\n\x05<unk>"])
def test_files_that_are_no_model_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"x\.model"):
        Tokenizer(tmp_path / "x.model")


def test_damaged_models_are_refused_or_work(tmp_path: Path, model_bytes: bytes) -> None:
    for cut in (1, 10, len(model_bytes) // 2, len(model_bytes) - 1):
        (tmp_path / "x.model").write_bytes(model_bytes[:cut])
        with pytest.raises(TokenizerError, match=r"x\.model"):
            Tokenizer(tmp_path / "x.model")


def test_a_missing_model_and_a_folder_without_one(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"x\.model: cannot be read"):
        Tokenizer(tmp_path / "x.model")
    with pytest.raises(TokenizerError, match="no finished tokenizer here"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"byte_fallback": False, "eos_piece": EOD_PIECE}, "byte pieces"),
        ({"byte_fallback": True, "eos_piece": "</s>"}, "no control symbol"),
        ({"byte_fallback": True, "eos_piece": EOD_PIECE, "add_dummy_prefix": True}, "changes text"),
        ({"byte_fallback": True, "eos_piece": EOD_PIECE, "normalization_rule_name": "nmt_nfkc"}, "changes text"),
        ({"byte_fallback": True, "eos_piece": EOD_PIECE, "remove_extra_whitespaces": True}, "changes text"),
    ],
)
def test_models_that_cannot_be_exact_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    exact = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": False}
    data = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter("\n".join(documents(30)).split("\n")),
        model_writer=data,
        model_type="bpe",
        vocab_size=500,
        hard_vocab_limit=False,
        minloglevel=2,
        **(exact | options),
    )
    (tmp_path / "x.model").write_bytes(data.getvalue())
    with pytest.raises(TokenizerError, match=message):
        Tokenizer(tmp_path / "x.model")

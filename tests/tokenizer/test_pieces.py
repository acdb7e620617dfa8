"""Pieces taken out of a model: what stays can be produced, what was rejected cannot, and every text comes back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from tests.tokenizer.texts import LINES, documents
from tokenizer.config import TokenizerConfig
from tokenizer.kernels.encoder import batch_encoder
from tokenizer.model import SPACE_MARK, Tokenizer
from tokenizer.pieces import TooSmallError, trim
from tokenizer.train import train

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def proto_of(model: bytes) -> Any:
    return sentencepiece_model_pb2.ModelProto.FromString(model)


def normal(model: bytes) -> list[str]:
    return [piece.piece for piece in proto_of(model).pieces if piece.type == NORMAL]


def nothing(pieces: list[str]) -> Mapping[str, str]:
    return {}


def holding(*strings: str) -> Any:
    return lambda pieces: {piece: "unwanted" for piece in pieces if any(string in piece for string in strings)}


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest) -> bytes:
    symbols = {"user_symbols": ("<n>",), "control_symbols": ("<|im_start|>",), "reserved_ids": 2}
    config = TokenizerConfig(vocab_size=760, model_type=request.param, num_threads=1, **symbols)
    source, words = (
        random.Random(0),
        [line[start : start + 3] for line in LINES for start in range(0, len(line) - 3, 3)],
    )
    mixed = ["".join(source.choices(words, k=12)) for _ in range(600)]
    return train([*mixed, *documents(20), *["温故<n>而知新"] * 20], config)


def unreachable(model: bytes) -> list[str]:
    """Pieces that their own text is not encoded to."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    spelled = {piece: processor.encode(piece.replace(SPACE_MARK, " "), out_type=str) for piece in normal(model)}
    return [piece for piece, found in spelled.items() if found != [piece]]


def test_rejected_pieces_are_gone_and_the_next_ones_take_their_ids(model: bytes, tmp_path: Path) -> None:
    before = normal(model)
    size = len(proto_of(model).pieces) - 90
    trimmed = trim(model, size, holding("学而", "君子"))
    after = normal(trimmed.model)
    assert [piece for piece in after if len(piece) > 1 and any(word in piece for word in ("学而", "君子"))] == []
    assert {"知", "学", "君"} <= set(after)  # single characters stay
    assert trimmed.vocab_size == len(proto_of(trimmed.model).pieces) == size
    assert after == [piece for piece in before if piece in set(after)]  # in the old order
    assert unreachable(trimmed.model) == []
    assert set(trimmed.rejected) & set(before) == set(trimmed.rejected) and len(trimmed.rejected) > 4
    (tmp_path / "m").write_bytes(trimmed.model)
    tokenizer = Tokenizer(tmp_path / "m")
    for text in documents(20, start=500):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_best_of_the_others_are_kept(model: bytes) -> None:
    """Of the pieces that are neither rejected nor unreachable, those with the highest scores."""
    trimmed = trim(model, len(proto_of(model).pieces) - 90, holding("学而"))
    gone = {piece.replace(" ", SPACE_MARK) for piece in [*trimmed.rejected, *trimmed.unreachable]}
    scores = {piece.piece: piece.score for piece in proto_of(model).pieces if piece.type == NORMAL}
    kept = {piece for piece in normal(trimmed.model) if len(piece) > 1}
    others = {piece for piece in scores if len(piece) > 1} - kept - gone
    assert others and min(scores[piece] for piece in kept) >= max(scores[piece] for piece in others)


def test_symbols_and_bytes_keep_their_ids(model: bytes) -> None:
    before, after = (proto_of(data).pieces for data in (model, trim(model, 600, holding("学")).model))
    first = 6 + 256
    assert [piece.SerializeToString() for piece in before[:first]] == [
        piece.SerializeToString() for piece in after[:first]
    ]
    assert [piece.piece for piece in after[:6]] == [
        *("<unk>", "<|endoftext|>", "<|im_start|>", "<|reserved_0|>", "<|reserved_1|>", "<n>")
    ]
    assert [piece.type for piece in after[2:6]] == [CONTROL, CONTROL, CONTROL, USER_DEFINED]


def test_scores_are_what_other_readers_of_the_model_expect(model: bytes, tmp_path: Path) -> None:
    size = len(proto_of(model).pieces) - 90
    trimmed = proto_of(trim(model, size, holding("学")).model)
    scores = {piece.piece: piece.score for piece in trimmed.pieces if piece.type == NORMAL}
    assert trimmed.trainer_spec.vocab_size == size
    if trimmed.trainer_spec.model_type == 2:
        assert list(scores.values()) == [-rank for rank in range(len(scores))]
    else:
        old = {piece.piece: piece.score for piece in proto_of(model).pieces}
        assert scores == {piece: old[piece] for piece in scores}


def test_a_trimmed_bpe_is_still_encoded_by_kernels(tmp_path: Path) -> None:
    trained = train(documents(100), TokenizerConfig(vocab_size=600))
    (tmp_path / "m").write_bytes(trim(trained, 560, holding("学而", "之")).model)
    assert (
        batch_encoder(Tokenizer(tmp_path / "m")).reason is None
    )  # they refuse scores that are not the order of merges


def test_a_piece_that_others_are_merged_through_takes_them_with_it() -> None:
    """With room for two pieces: 甲乙丙 and 甲乙丙戊 cannot be merged without 甲乙, so the next two take their ids."""
    texts = ["甲乙丙"] * 900 + ["甲乙"] * 900 + ["甲乙丙戊"] * 400
    trained = train(texts, TokenizerConfig(vocab_size=300, character_coverage=1.0))
    alphabet = ["乙", "甲", "丙", "戊", "\t", "\n", SPACE_MARK]
    assert normal(trained) == ["甲乙", "甲乙丙", "甲乙丙戊", "丙戊", "乙丙", *alphabet]
    trimmed = trim(trained, 258 + len(alphabet) + 2, lambda pieces: {"甲乙": "unwanted"})
    assert trimmed.rejected == {"甲乙": "unwanted"}
    assert trimmed.unreachable == ["甲乙丙", "甲乙丙戊"]
    assert normal(trimmed.model) == ["丙戊", "乙丙", *alphabet]


def test_a_piece_with_another_way_to_it_stays() -> None:
    """甲乙丙 is merged from 甲乙 and 丙, but also from 甲 and 乙丙."""
    texts = ["甲乙丙"] * 900 + ["甲乙"] * 900 + ["乙丙"] * 500
    trained = train(texts, TokenizerConfig(vocab_size=300, character_coverage=1.0))
    assert {"甲乙", "甲乙丙", "乙丙"} <= set(normal(trained))
    trimmed = trim(trained, 300, lambda pieces: {"甲乙": "unwanted"})
    assert trimmed.unreachable == []
    assert {"甲乙丙", "乙丙"} <= set(normal(trimmed.model))


@settings(max_examples=20)
@given(data=st.data())
def test_whatever_is_rejected_the_rest_can_be_produced(data: st.DataObject, bpe: bytes) -> None:
    pieces = [piece for piece in normal(bpe) if len(piece) > 1]
    unwanted = set(data.draw(st.lists(st.sampled_from(pieces), max_size=30)))
    size = data.draw(st.integers(520, 600))
    trimmed = trim(bpe, size, lambda pieces: dict.fromkeys(unwanted, "drawn"))
    assert trimmed.vocab_size <= size
    assert unreachable(trimmed.model) == []
    assert unwanted.isdisjoint(normal(trimmed.model))
    text = "".join(data.draw(st.lists(st.sampled_from(LINES), max_size=3)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=trimmed.model)
    assert processor.decode(processor.encode(text)) == text


@pytest.fixture(scope="module")
def bpe() -> bytes:
    return train(documents(100), TokenizerConfig(vocab_size=600))


def test_nothing_rejected_only_cuts(bpe: bytes) -> None:
    trimmed = trim(bpe, 550, nothing)
    long, all_long = ([piece for piece in normal(data) if len(piece) > 1] for data in (trimmed.model, bpe))
    assert (trimmed.vocab_size, trimmed.rejected, trimmed.unreachable) == (550, {}, [])
    assert long == all_long[: len(long)]
    assert trim(bpe, 10_000, nothing).model == trim(bpe, 600, nothing).model


def test_fewer_than_must_stay_is_refused(bpe: bytes) -> None:
    needed = sum(piece.type != NORMAL or len(piece.piece) == 1 for piece in proto_of(bpe).pieces)
    with pytest.raises(TooSmallError) as caught:
        trim(bpe, needed - 1, nothing)
    assert caught.value.needed == needed
    assert trim(bpe, needed, nothing).vocab_size == needed

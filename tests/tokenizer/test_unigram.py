"""What is Unigram's own: sums in float32 and ties, pieces that are unused, characters that are only part of a piece."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2

from tests.tokenizer.kernel_cases import UINT16, arrow, assert_equal, foreign
from tokenizer.kernels import trie
from tokenizer.kernels.encoder import BatchEncoder, build_kernel, encode_with
from tokenizer.kernels.lexicon import MAX_PIECE_CHARACTERS, UnsupportedError, read_lexicon
from tokenizer.kernels.unigram import build_kernel as build_unigram
from tokenizer.model import Tokenizer

NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
Piece = tuple[str, float, int]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return foreign(tmp_path_factory.mktemp("unigram") / "base.model", model_type="unigram")


def made_of(base: Tokenizer, pieces: list[Piece], path: Path) -> Tokenizer:
    """The symbols and bytes of a model, with other pieces."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(base.path.read_bytes())  # type: ignore[attr-defined]
    kept = [piece for piece in proto.pieces if piece.type not in (NORMAL, USER_DEFINED, UNUSED)]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    for piece, score, kind in [*pieces, ("▁", -2.0, NORMAL)]:
        proto.pieces.add(piece=piece, score=score, type=kind)
    path.write_bytes(proto.SerializeToString())
    return Tokenizer(path)


def assert_all_equal(tokenizer: Tokenizer, alphabet: str, seed: int, length: int = 400) -> None:
    source = random.Random(seed)
    texts = ["".join(source.choices(alphabet, k=source.randrange(length))) for _ in range(200)]
    assert_equal(tokenizer, encode_with(build_kernel(tokenizer), arrow(texts), UINT16), texts)


@pytest.mark.parametrize("seed", range(6))
def test_scores_that_tie(base: Tokenizer, tmp_path: Path, seed: int) -> None:
    """Few different scores, whose sums tie exactly or by rounding."""
    source = random.Random(seed)
    pieces = {"".join(source.choices("abcd", k=source.randint(1, 6))) for _ in range(60)} | set("abc")
    scores = [-1.0, -2.0, -3.0, -1.1, -2.2, -3.3, -0.1 * seed]
    tokenizer = made_of(
        base, [(piece, source.choice(scores), NORMAL) for piece in sorted(pieces)], tmp_path / "x.model"
    )
    assert_all_equal(tokenizer, "abcde ", seed)


def test_pieces_that_are_unused_or_the_users(base: Tokenizer, tmp_path: Path) -> None:
    source = random.Random(3)
    pieces = sorted({"".join(source.choices("ab的", k=source.randint(1, 5))) for _ in range(70)})
    kinds = source.choices((NORMAL, USER_DEFINED, UNUSED), (4, 1, 2), k=len(pieces))
    made = [(piece, -source.random() * 9, kind) for piece, kind in zip(pieces, kinds, strict=True)]
    tokenizer = made_of(base, made, tmp_path / "x.model")
    assert {kind for _, _, kind in made} == {NORMAL, USER_DEFINED, UNUSED}
    assert_all_equal(tokenizer, "ab的c ", 4)


def test_a_character_that_is_only_part_of_a_piece(base: Tokenizer, tmp_path: Path) -> None:
    """Beside its piece it is spelled in bytes; with it there are two ways."""
    made = [
        ("ab", -3.0, NORMAL),
        ("a", -1.0, NORMAL),
        ("的b𠀀", -4.0, NORMAL),
        ("的", -2.0, UNUSED),
        ("c", 0.5, NORMAL),
    ]
    tokenizer = made_of(base, made, tmp_path / "x.model")
    assert tokenizer.decode(tokenizer.encode("b的𠀀")) == "b的𠀀"
    assert_all_equal(tokenizer, "ab的𠀀c", 5, 60)


@pytest.mark.parametrize("score", [-700.0, 650.0])
def test_sums_beyond_the_limit_on_both_sides(base: Tokenizer, tmp_path: Path, score: float) -> None:
    """SentencePiece subtracts a sum beyond 100,000 from all that is pending: here after each 150 characters."""
    source = random.Random(8)
    pieces = {"".join(source.choices("abc", k=source.randint(1, 4))) for _ in range(40)} | set("abc")
    made = [(piece, score * len(piece) + source.random() / 64, NORMAL) for piece in sorted(pieces)]
    assert_all_equal(made_of(base, made, tmp_path / "x.model"), "abcd", 9, 3000)


@pytest.mark.parametrize("score", [3e38, -3e38])
def test_scores_whose_sums_are_no_numbers_are_a_reason(base: Tokenizer, tmp_path: Path, score: float) -> None:
    made = made_of(base, [("a", -1.0, NORMAL), ("b", score, NORMAL)], tmp_path / "x.model")
    assert "a score is beyond" in str(BatchEncoder(made).reason)


@pytest.mark.parametrize("kind", [NORMAL, USER_DEFINED])
def test_a_piece_longer_than_pieces_are_is_a_reason(base: Tokenizer, tmp_path: Path, kind: int) -> None:
    """One of a million characters took 650 MB and seconds."""
    for length, reason in ((MAX_PIECE_CHARACTERS, None), (MAX_PIECE_CHARACTERS + 1, "a piece has more than")):
        tokenizer = made_of(base, [("a", -1.0, NORMAL), ("b" * length, -2.0, kind)], tmp_path / "x.model")
        encoder = BatchEncoder(tokenizer)
        assert encoder.reason is reason or str(reason) in str(encoder.reason)
        assert_equal(tokenizer, encoder.encode(arrow(["a" + "b" * 2100])), ["a" + "b" * 2100])


@pytest.mark.parametrize(("limit", "reason"), [("MAX_TRIES", "too long"), ("MAX_SLOTS", "do not fit")])
def test_pieces_made_to_fill_a_trie_badly_are_a_reason(
    base: Tokenizer, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    """With children of many different counts, each count passes all slots again: 245,000 pieces took minutes."""
    monkeypatch.setattr(trie, limit, 300)
    assert reason in str(BatchEncoder(base).reason)


def test_no_piece_at_all_is_a_reason(base: Tokenizer) -> None:
    with pytest.raises(UnsupportedError, match="no piece"):
        build_unigram(base, replace(read_lexicon(base), normal={}))

"""Scores on a grid: sums are exact, so a text is cut alike wherever it stands, and by every library."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from tokenizers import Tokenizer as Backend

from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.export.convert import tokenizer_json
from tokenizer.model import CHUNK_CHARACTERS, Tokenizer
from tokenizer.pieces import on_grid
from tokenizer.train import train


@pytest.fixture(scope="module")
def trained() -> bytes:
    return train_asterisks()


def train_asterisks() -> bytes:
    """A Unigram vocabulary in which a run of asterisks can be cut in several ways with the same pieces."""
    data = io.BytesIO()
    texts = [text + "**" * (seed % 9) + "*" * (seed % 7) + "，" for seed, text in enumerate(documents(200))]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter("".join(texts).split("\n")),
        model_writer=data,
        model_type="unigram",
        vocab_size=900,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        byte_fallback=True,
        required_chars="\n\t",
        max_sentencepiece_length=2,
        split_by_unicode_script=False,
        bos_id=-1,
        eos_id=1,
        eos_piece="<|endoftext|>",
        num_threads=1,
        minloglevel=2,
    )
    return data.getvalue()


def write(path: Path, model: bytes) -> Tokenizer:
    path.write_bytes(model)
    return Tokenizer(path)


def ways(tokenizer: Tokenizer) -> tuple[set[tuple[str, ...]], int]:
    """The ways ***** is cut behind different words, and how often another library cuts otherwise."""
    backend = Backend.from_str(json.dumps(tokenizer_json(tokenizer)))
    texts = [line[:size] + "*****" for line in documents(20) for size in range(1, 40)]
    found = {tuple(piece for id in tokenizer.encode(text) if "*" in (piece := tokenizer.piece(id))) for text in texts}
    return found, sum(backend.encode(text).ids != tokenizer.encode(text) for text in texts)


def test_trained_scores_cut_by_what_stands_before_and_the_grid_does_not(trained: bytes, tmp_path: Path) -> None:
    cuts, num_other = ways(write(tmp_path / "trained.model", trained))
    assert len(cuts) > 1
    assert num_other
    cuts, num_other = ways(write(tmp_path / "grid.model", on_grid(trained)))
    assert len(cuts) == 1
    assert num_other == 0


def test_training_puts_scores_on_the_grid(tmp_path: Path) -> None:
    """Also where pieces are taken out, and with symbols."""
    texts = [f"{text}***{'*' * (seed % 7)}哈哈哈，<n>" for seed, text in enumerate(documents(60))]
    config = TokenizerConfig(
        vocab_size=560, model_type="unigram", num_threads=1, user_symbols=("<n>",), reject_pieces=("学而",)
    )
    tokenizer = write(tmp_path / "m", train(texts, config))
    scores = [tokenizer.processor.get_score(id) for id in range(tokenizer.vocab_size)]
    assert all((8 * score).is_integer() for score in scores) and len(set(scores)) > 20
    backend = Backend.from_str(json.dumps(tokenizer_json(tokenizer)))
    for text in [*texts, "哈哈哈哈哈*****", "*" * 99]:
        assert backend.encode(text).ids == tokenizer.encode(text)


def test_every_score_is_the_nearest_multiple_and_the_rest_stays(trained: bytes) -> None:
    before, after = (sentencepiece.SentencePieceProcessor(model_proto=data) for data in (trained, on_grid(trained)))
    assert after.vocab_size() == before.vocab_size()
    for id in range(before.vocab_size()):
        assert after.id_to_piece(id) == before.id_to_piece(id)
        assert after.is_byte(id) == before.is_byte(id) and after.is_control(id) == before.is_control(id)
        assert (after.get_score(id) * 8).is_integer()
        assert abs(after.get_score(id) - before.get_score(id)) <= 1 / 16
    assert on_grid(on_grid(trained)) == on_grid(trained)


def test_sums_of_the_longest_chunk_are_exact() -> None:
    scores = np.full(CHUNK_CHARACTERS, np.float32(-31.875))
    assert np.cumsum(scores, dtype=np.float32).tolist() == np.cumsum(scores, dtype=np.float64).tolist()

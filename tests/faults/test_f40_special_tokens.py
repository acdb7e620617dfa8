"""FAULTS row 40: what looks like a special token in a text stays text, in training, encoding and decoding.

A document that could write `<|endoftext|>` as one id would end itself in the middle and begin another document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.run import run_stages
from tests.examples import examples
from tests.tokenizer.test_stages import Texts
from tests.tokenizer.texts import documents
from tokenizer.build import stages
from tokenizer.config import TokenizerConfig
from tokenizer.model import EOD_PIECE, Tokenizer
from tokenizer.shards import SPLITS, open_split
from tokenizer.train import train

SPECIAL = [
    EOD_PIECE,
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<eod>",
    "<|eod|>",
    "<|im_start|>",
    "[CLS]",
    "[MASK]",
    "<0x0A>",
    "<0xE4>",
    "▁",
    "▂",
    "▃",
    "<n>",
    "##的",
    "⁇",
]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Trained on a text that is full of them, so that they could have become pieces."""
    kind: Literal["bpe", "unigram"] = request.param
    texts = [text + "".join(SPECIAL) * 5 for text in documents(80)]
    path = tmp_path_factory.mktemp(kind) / "tokenizer.model"
    path.write_bytes(train(texts, TokenizerConfig(model_type=kind, vocab_size=700, num_threads=1)))
    return Tokenizer(path)


@given(parts=st.lists(st.sampled_from([*SPECIAL, "学而时习之", " ", "\n", "a"]), max_size=12))
@examples(150)
def test_they_stay_text(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    ids = tokenizer.encode(text)
    assert not any(tokenizer.is_control(id) for id in ids)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("special", SPECIAL)
def test_no_piece_but_the_controls_is_spelled_like_one(tokenizer: Tokenizer, special: str) -> None:
    for text in (special, special * 3, f"甲{special}乙", f"\n{special}\n"):
        ids = tokenizer.encode(text)
        assert tokenizer.eod not in ids
        assert tokenizer.decode(ids) == text


def test_a_document_cannot_end_itself(tmp_path: Path) -> None:
    texts = tuple(f"{text}{special}{text}" for special in SPECIAL for text in documents(4))
    run_stages([Texts((texts,))], str(tmp_path), workers=0)
    run_stages(stages(TokenizerConfig(vocab_size=600, validation_ratio=0.1, num_threads=1)), str(tmp_path), workers=0)
    tokenizer = Tokenizer(tmp_path)
    found = []
    for split in SPLITS:
        for shard in open_split(tmp_path, split):
            for index in range(shard.num_sequences):
                ids = shard.sequence(index).tolist()
                assert [place for place, id in enumerate(ids) if id == tokenizer.eod] == [len(ids) - 1]
                found.append(tokenizer.decode(ids[:-1]))
    assert sorted(found) == sorted(texts)

"""Training: equal texts give equal bytes, and what cannot be trained is said in words."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.config import parse
from corpus.engine.errors import UsageError, WenhaiError
from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig, encoding, sampling, training
from tokenizer.model import Tokenizer
from tokenizer.train import CUT_CHARACTERS, MAX_SENTENCE_CHARACTERS, sentences, train
from tokenizer.vocabulary import vocabulary_report


def open_model(data: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=data)


@pytest.mark.parametrize("options", [{"model_type": "bpe"}, {"model_type": "unigram", "num_threads": 3}])
def test_equal_texts_give_equal_bytes_in_any_process_and_folder(
    tmp_path: Path, repository: Path, options: dict[str, Any]
) -> None:
    expected = train(documents(60), TokenizerConfig(vocab_size=500, **options))
    code = (
        f"import sys; sys.path.insert(0, {str(repository)!r})\n"
        "from tests.tokenizer.texts import documents\n"
        "from tokenizer.config import TokenizerConfig\n"
        "from tokenizer.train import train\n"
        f"sys.stdout.buffer.write(train(iter(documents(60)), TokenizerConfig(vocab_size=500, **{options!r})))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True, timeout=250)
    assert hashlib.sha256(found.stdout).hexdigest() == hashlib.sha256(expected).hexdigest()
    assert list(tmp_path.iterdir()) == []  # training leaves no files behind


def test_control_ids_come_first_and_no_piece_holds_a_line_break(model_bytes: bytes) -> None:
    model = open_model(model_bytes)
    pieces = [model.id_to_piece(id) for id in range(model.vocab_size())]
    assert pieces[:2] == ["<unk>", "<|endoftext|>"]
    assert pieces[2:258] == [f"<0x{byte:02X}>" for byte in range(256)]
    assert {"\n", "\t", "\u2581"} <= set(pieces)
    assert [piece for piece in pieces if set(piece) & set("\n\t\r\0") and len(piece) > 1] == []
    assert [piece for piece in pieces[258:] if sum(character.isdigit() for character in piece) > 1] == []


def test_digits_may_merge_where_the_recipe_says_so() -> None:
    texts = ["1988年1988年2024年"] * 50
    merged = open_model(train(texts, TokenizerConfig(vocab_size=300, split_digits=False)))
    assert "1988" in [merged.id_to_piece(id) for id in range(merged.vocab_size())]


def test_sentences_keep_every_other_character() -> None:
    long = "学" * (2 * MAX_SENTENCE_CHARACTERS + 1)
    found = list(sentences([f"甲\u2585乙\r\n{long}\0丙"]))
    assert found == ["甲", "乙", "学" * MAX_SENTENCE_CHARACTERS, "学" * MAX_SENTENCE_CHARACTERS, "学", "丙"]
    assert all(len(sentence.encode()) <= 4192 for sentence in sentences(["\U0010ffff" * 5000]))


@given(
    st.lists(st.sampled_from(["学而时习之", "，", "。", "字" * 190, "字" * 300, "a b"]), max_size=30), st.integers(1, 3)
)
def test_long_lines_are_cut_behind_punctuation_where_some_is_near(parts: list[str], times: int) -> None:
    line = "".join(parts) * times
    found = list(sentences([line]))
    assert "".join(found) == line and all(len(sentence) <= MAX_SENTENCE_CHARACTERS for sentence in found)
    for sentence in found[:-1]:
        near = sentence[MAX_SENTENCE_CHARACTERS - CUT_CHARACTERS :]
        if len(sentence) < MAX_SENTENCE_CHARACTERS:
            assert len(sentence) > MAX_SENTENCE_CHARACTERS - CUT_CHARACTERS and sentence[-1] in "，。 "
        else:
            assert sentence[-1] in "，。 " or not set(near) & set("，。 ")


def test_a_line_with_a_reserved_character_still_trains() -> None:
    texts = ["明月光\u2585疑是地上霜" * 3] * 20
    model = open_model(train(texts, TokenizerConfig(vocab_size=300, character_coverage=1.0)))
    assert "霜" in [model.id_to_piece(id) for id in range(model.vocab_size())]


def test_a_small_text_gives_a_smaller_vocabulary() -> None:
    model = open_model(train(["学而时习之，不亦说乎？"] * 3, TokenizerConfig(vocab_size=5000)))
    assert 258 < model.vocab_size() < 320


def test_a_unigram_of_a_small_text_too() -> None:
    config = TokenizerConfig(vocab_size=5000, model_type="unigram", num_threads=1)
    assert 258 < open_model(train(documents(20), config)).vocab_size() < 5000


def test_too_many_characters_for_the_vocabulary() -> None:
    with pytest.raises(WenhaiError, match=r"vocab_size = 300 is too small.* \d{3,} pieces.*Raise vocab_size"):
        train(["".join(chr(0x4E00 + number) for number in range(500))], TokenizerConfig(vocab_size=300))


@pytest.mark.parametrize("texts", [[], [""], ["\n\n", "\u2581"]])
def test_no_text_at_all(texts: list[str]) -> None:
    with pytest.raises(WenhaiError, match="no text to train"):
        train(texts, TokenizerConfig())


def test_report_counts_what_the_vocabulary_is_made_of(tokenizer: Tokenizer) -> None:
    report = vocabulary_report(tokenizer, documents(20))
    scripts = report["pieces_by_script"]
    assert sum(scripts.values()) == tokenizer.vocab_size
    assert (scripts["control"], scripts["byte"]) == (2, 256)
    assert scripts["han"] > 100
    assert sum(report["pieces_by_length"].values()) == tokenizer.vocab_size - 258
    assert report["characters_per_token"] > 1.5
    assert report["byte_fallback_ratio"] == 0
    assert vocabulary_report(tokenizer, ["\U0002ffff"])["byte_fallback_ratio"] == 1
    assert vocabulary_report(tokenizer, [])["characters_per_token"] is None


def test_recipe_errors_are_listed_together() -> None:
    section = {"vocab_sise": 3, "vocab_size": 65_500, "model_type": "wordpiece", "validation_ratio": 0.6}
    with pytest.raises(UsageError) as caught:
        parse(TokenizerConfig, section, "mine.toml [tokenizer]")
    message = str(caught.value)
    assert "4 errors" in message
    assert "did you mean vocab_size?" in message
    for key in ("vocab_size:", "model_type:", "validation_ratio:"):
        assert key in message


def test_every_key_belongs_to_a_stage() -> None:
    config = TokenizerConfig()
    assert sampling(config).keys() | training(config).keys() | encoding(config).keys() == config.model_dump().keys()


def test_with_jieba_no_piece_crosses_a_word_and_texts_still_come_back(tmp_path: Path) -> None:
    texts = ["研究生命的起源，研究生命的意义。" for _ in range(200)] + [f"第{i}个研究生命题不难。" for i in range(100)]
    plain, segmented = (
        train(texts, TokenizerConfig(vocab_size=330, segmentation=segmentation)) for segmentation in ("none", "jieba")
    )
    assert segmented == train(texts, TokenizerConfig(vocab_size=330, segmentation="jieba"))
    longest = {}
    for name, model in (("plain", plain), ("jieba", segmented)):
        (tmp_path / name).write_bytes(model)
        tokenizer = Tokenizer(tmp_path / name)
        assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
        longest[name] = max(len(tokenizer.piece(id)) for id in tokenizer.encode(texts[0]))
    assert longest["jieba"] <= 3 < longest["plain"]

"""Training: equal texts give equal bytes, and what cannot be trained is said in words."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

import tokenizer.train
from corpus.engine.config import parse
from corpus.engine.errors import UsageError, WenhaiError
from tests.tokenizer.texts import LINES, documents
from tokenizer.config import KEYS_OF_STAGES, TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.train import (
    CUT_CHARACTERS,
    MAX_SENTENCE_CHARACTERS,
    WORD_MARK,
    TokenizerStage,
    segment,
    sentences,
    train,
    train_without_rejected,
)


def open_model(data: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=data)


SYMBOLS: dict[str, Any] = {"user_symbols": ("<n>", "君子"), "control_symbols": ("<|im_start|>",), "reserved_ids": 3}


TRAININGS: tuple[dict[str, Any], ...] = (
    {"model_type": "bpe", "reject": "suspicious", "reject_pieces": ("学而",)},
    {"model_type": "unigram", "num_threads": 3, "reject": "suspicious", "reject_pieces": ("学而",)},
    {"model_type": "unigram", "num_threads": 2, **SYMBOLS},
    {"model_type": "bpe", "segmentation": "jieba", **SYMBOLS},
)


def test_equal_texts_give_equal_bytes_in_any_process_and_folder(tmp_path: Path, repository: Path) -> None:
    expected = [train(documents(60), TokenizerConfig(vocab_size=500, **options)) for options in TRAININGS]
    code = (
        f"import hashlib, sys; sys.path.insert(0, {str(repository)!r})\n"
        "from tests.tokenizer.texts import documents\n"
        "from tokenizer.config import TokenizerConfig\n"
        "from tokenizer.train import train\n"
        f"for options in {TRAININGS!r}:\n"
        "    model = train(iter(documents(60)), TokenizerConfig(vocab_size=500, **options))\n"
        "    print(hashlib.sha256(model).hexdigest())"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=250)
    assert found.stdout.split() == [hashlib.sha256(model).hexdigest() for model in expected]
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


def test_a_small_text_gives_a_smaller_vocabulary() -> None:
    model = open_model(train(["学而时习之，不亦说乎？"] * 3, TokenizerConfig(vocab_size=5000)))
    assert 258 < model.vocab_size() < 320


def test_too_many_characters_for_the_vocabulary() -> None:
    with pytest.raises(WenhaiError, match=r"vocab_size = 300 is too small.* \d{3,} pieces.*Raise vocab_size"):
        train(["".join(chr(0x4E00 + number) for number in range(500))], TokenizerConfig(vocab_size=300))


@pytest.mark.parametrize("texts", [[], [""], ["\n\n", "\u2581"]])
def test_no_text_at_all(texts: list[str]) -> None:
    with pytest.raises(WenhaiError, match="no text to train"):
        train(texts, TokenizerConfig())


def test_every_key_belongs_to_a_stage() -> None:
    assert set().union(*KEYS_OF_STAGES.values()) == TokenizerConfig().model_dump().keys()


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


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_symbols_have_the_first_ids_and_texts_come_back(kind: str, tmp_path: Path) -> None:
    config = TokenizerConfig(vocab_size=500, model_type=kind, num_threads=1, character_coverage=1.0, **SYMBOLS)
    texts = ["第一句<n>君子坦荡荡<|im_start|>学而时习之", "<n><n>君子君 子<|reserved_1|><|endoftext|>\n<n"]
    (tmp_path / "m").write_bytes(train([*documents(60), *texts * 9], config))
    tokenizer = Tokenizer(tmp_path / "m")
    names = [
        "<unk>",
        "<|endoftext|>",
        "<|im_start|>",
        *(f"<|reserved_{number}|>" for number in range(3)),
        "<n>",
        "君子",
    ]
    assert [tokenizer.piece(id) for id in range(9)] == [*names, "<0x00>"]
    assert [tokenizer.is_control(id) for id in range(9)] == [True] * 6 + [False] * 3
    for text in texts:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert [ids.count(id) for id in range(8)] == [*[0] * 6, text.count("<n>"), text.count("君子")]
    others = [tokenizer.piece(id) for id in range(8 + 256, tokenizer.vocab_size)]
    assert [piece for piece in others if "君子" in piece or "<n>" in piece] == []


def test_more_are_trained_until_enough_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a margin that is too small for what is rejected, training is repeated with a larger one."""
    sizes = []
    once = tokenizer.train._train

    def watched(texts: Any, config: TokenizerConfig, vocab_size: int) -> bytes:
        sizes.append(vocab_size)
        return once(texts, config, vocab_size)

    monkeypatch.setattr(tokenizer.train, "_train", watched)
    monkeypatch.setattr(
        tokenizer.train, "rejected_pieces", lambda pieces, *_: dict.fromkeys(pieces[:100], "one of the first")
    )
    trained = train_without_rejected(documents(300), TokenizerConfig(vocab_size=480, reject_pieces=("之",)))
    assert sizes == [480 + 94, 480 + 4 * 94]
    assert (trained.vocab_size, len(trained.rejected)) == (480, 100)


def test_who_rejects_nearly_everything_gets_a_smaller_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is repeated a few times, however much text there is."""
    sizes = []
    once = tokenizer.train._train

    def watched(texts: Any, config: TokenizerConfig, vocab_size: int) -> bytes:
        sizes.append(vocab_size)
        return once(texts, config, min(vocab_size, 600))

    monkeypatch.setattr(tokenizer.train, "_train", watched)
    endless = SimpleNamespace(pieces=range(10**6))  # of texts without end
    monkeypatch.setattr(tokenizer.train, "parse_model", lambda model: endless)
    config = TokenizerConfig(vocab_size=480, reject="none", reject_pieces=tuple(set("".join(LINES))))
    trained = train_without_rejected(documents(60), config)
    assert sizes == [480 + 94, 480 + 4 * 94, 480 + 16 * 94, 480 + 64 * 94]
    assert 258 < trained.vocab_size < 480


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_what_is_no_text_stays_where_it_is_a_character_or_a_symbol(kind: str) -> None:
    symbols = ("锟斤拷", "时时彩", "@example.com")
    texts = [f"{line}\ufffd\ue000{symbol}" for line in LINES for symbol in symbols] * 9
    config = TokenizerConfig(
        vocab_size=450, model_type=kind, num_threads=1, user_symbols=symbols, character_coverage=1.0
    )
    model = open_model(train(texts, config))
    pieces = [model.id_to_piece(id) for id in range(model.vocab_size())]
    assert {*symbols, "\ufffd", "\ue000"} <= set(pieces)
    assert [piece for piece in pieces if len(piece) > 1 and "\ufffd" in piece] == []


def test_a_text_with_nothing_but_rejected_pieces_gives_a_smaller_vocabulary() -> None:
    config = TokenizerConfig(vocab_size=2000, reject_pieces=("学", "而"))
    trained = train_without_rejected(["学而学而学而"] * 50, config)
    pieces = [open_model(trained.model).id_to_piece(id) for id in range(258, trained.vocab_size)]
    assert sorted(pieces) == sorted(["学", "而", "\n", "\t", "\u2581"])


def test_too_many_characters_are_told_where_pieces_are_rejected_too() -> None:
    """The margin would have room for them; the vocabulary has not."""
    texts = ["".join(chr(0x4E00 + number) for number in range(60))]
    with pytest.raises(WenhaiError, match=r"vocab_size = 300 is too small.* 321 pieces.*Raise vocab_size"):
        train(texts, TokenizerConfig(vocab_size=300, character_coverage=1.0, reject_pieces=("甲乙",)))


def test_suspicious_pieces_are_asked_for_as_they_are_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def suspicious(pieces: Any, texts: Any) -> dict[str, str]:
        asked.extend(pieces)
        assert texts == documents(50)
        return {"学而": "spam", "Linux": "spam"}

    monkeypatch.setattr("tokenizer.report.suspicious_pieces", suspicious)
    trained = train_without_rejected(documents(50), TokenizerConfig(vocab_size=600, reject="suspicious"))
    assert trained.rejected == {"学而": "spam", "Linux": "spam"}
    assert all(len(piece) > 1 for piece in asked) and any("\u2581" in piece for piece in asked)
    asked.clear()
    train(documents(50), TokenizerConfig(vocab_size=480, reject="none"))
    assert asked == []


def test_a_changed_list_of_spam_words_trains_again() -> None:
    assert "spam_words" in TokenizerStage(TokenizerConfig(reject="suspicious")).config()
    assert "spam_words" not in TokenizerStage(TokenizerConfig(reject="none")).config()


def test_a_symbol_is_not_cut_into_words() -> None:
    """Else SentencePiece would not find it in its sentences, and learn pieces of it instead."""
    symbols = ("<|u|>", "<|user|>", "清华大学生")
    texts = ["他来到北京<|user|>清华大学生说<|u|>不亦说乎"] * 20
    for line in segment(texts, symbols):
        assert line.split(WORD_MARK)[2:7] == ["北京", "<|user|>", "清华大学生", "说", "<|u|>"]
    model = open_model(train(texts, TokenizerConfig(vocab_size=330, segmentation="jieba", user_symbols=symbols)))
    pieces = [model.id_to_piece(id) for id in range(5 + 256, model.vocab_size())]
    assert [piece for piece in pieces if set(piece) & set("<|user>") or "清华" in piece] == []


def test_jieba_sees_no_line_of_more_than_a_thousand_characters() -> None:
    long = "研究生命的起源" * 1000
    lines = list(segment(sentences([long])))
    assert "".join(lines).replace(WORD_MARK, "") == long
    assert max(len(line.replace(WORD_MARK, "")) for line in lines) == MAX_SENTENCE_CHARACTERS


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"user_symbols": [""]}, "user_symbols: '' is empty"),
        ({"user_symbols": ["<n>", "<n>"]}, "user_symbols: '<n>' is listed twice"),
        ({"user_symbols": ["x" * 65]}, "has 65 characters. Shorten it to 64"),
        ({"user_symbols": ["a b"]}, r"holds U\+0020"),
        ({"user_symbols": ["a\n"]}, r"holds U\+000A"),
        ({"user_symbols": ["\u2581a"]}, r"holds U\+2581"),
        ({"control_symbols": ["a\u3000b"]}, r"holds U\+3000"),
        ({"control_symbols": ["<|endoftext|>"]}, "is a symbol of every vocabulary"),
        ({"user_symbols": ["<unk>"]}, "is a symbol of every vocabulary"),
        ({"user_symbols": ["<0xE4>"]}, "is a symbol of every vocabulary"),
        ({"control_symbols": ["<|reserved_7|>"]}, "is a symbol of every vocabulary, or reserved"),
        ({"control_symbols": ["问"]}, "'问' is one character.*Give a longer name"),
        ({"user_symbols": ["<a>"], "control_symbols": ["<a>"]}, "in user_symbols and in control_symbols"),
        ({"reserved_ids": 40, "vocab_size": 330}, "vocab_size = 330 has no room for 40 symbols.*Raise it to 340"),
        ({"reject_pieces": [""]}, "reject_pieces: an empty string is in every piece"),
        ({"user_symbols": [3]}, r"user_symbols\.0: .*string"),
        ({"user_symbols": "<n>"}, "user_symbols: .*tuple"),
        ({"traditional_ratio": 1.1}, "traditional_ratio"),
        ({"source_exponent": -0.1}, "source_exponent"),
        ({"reject": "spam"}, "reject: "),
    ],
)
def test_symbols_that_cannot_be_are_refused_in_words(section: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(TokenizerConfig, section, "mine.toml [tokenizer]")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_user_symbol_is_one_token(kind: str, tmp_path: Path) -> None:
    """Also one that is a single character, holds another one, or what the list of symbols is separated by."""
    symbols = ("君", "君子", ",", '"', "😀", "<n>", "<n")
    config = TokenizerConfig(vocab_size=600, model_type=kind, num_threads=1, user_symbols=symbols)
    (tmp_path / "m").write_bytes(train(documents(40), config))
    found = Tokenizer(tmp_path / "m")
    assert [found.piece(id) for id in found.encode("".join(symbols))] == list(symbols)
    assert found.decode(found.encode('君不君,子<n>之"')) == '君不君,子<n>之"'

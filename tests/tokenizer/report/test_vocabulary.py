"""The report: complete, bounded, the same for the same model and texts."""

from __future__ import annotations

import json

import pytest

from corpus.engine import durable
from tests.tokenizer.texts import documents
from tokenizer.config import TokenizerConfig
from tokenizer.model import Tokenizer
from tokenizer.report import vocabulary_report
from tokenizer.report.vocabulary import MAX_SOURCES, NUM_SHOWN, OTHER_SOURCES
from tokenizer.train import train


@pytest.fixture(scope="module")
def spam_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A model whose text was full of advertising."""
    texts = ["天天中彩票", "学而时习之", "哈哈哈哈哈哈", "加微信"] * 50
    data = train(texts, TokenizerConfig(vocab_size=301, reject="none", user_symbols=("<n>",)))
    path = tmp_path_factory.mktemp("spam") / "tokenizer.model"
    path.write_bytes(data)
    return Tokenizer(path)


def test_the_vocabulary_is_counted_whole(tokenizer: Tokenizer) -> None:
    report = vocabulary_report(tokenizer, {"poems": documents(20)})
    assert sum(report["pieces_by_script"].values()) == tokenizer.vocab_size
    assert sum(report["pieces_by_length"].values()) == tokenizer.vocab_size - 258
    assert report["pieces_by_script"]["control"] == 2 and report["pieces_by_script"]["byte"] == 256
    lengths = [len(piece) for piece in report["longest_pieces"]]
    assert len(lengths) == NUM_SHOWN and lengths == sorted(lengths, reverse=True)
    assert max(map(len, report["longest_han_pieces"])) == len(report["longest_han_pieces"][0])
    assert all(any("\u4e00" <= character <= "\u9fff" for character in piece) for piece in report["longest_han_pieces"])
    assert not any(character.isascii() and character.isalnum() for character in "".join(report["longest_han_pieces"]))
    assert str(lengths[0]) == max(report["pieces_by_length"], key=int)


def test_used_and_unused_pieces_are_all(tokenizer: Tokenizer) -> None:
    report = vocabulary_report(tokenizer, {"poems": ["学而时习之。"]})
    frequency = dict(map(tuple, report["most_frequent"]))
    assert sum(frequency.values()) == report["measured_tokens"]
    assert len(frequency) == report["used_pieces"]
    assert report["unused"]["pieces"] == tokenizer.vocab_size - 258 - report["used_pieces"]
    assert sum(report["unused"]["by_script"].values()) == report["unused"]["pieces"]
    assert not set(frequency) & set(report["unused"]["longest"])


def test_a_byte_is_shown_as_one(tokenizer: Tokenizer) -> None:
    report = vocabulary_report(tokenizer, {"rare": ["\U0002ffff"]})
    assert report["most_frequent"] == [["<0xBF>", 2], ["<0xAF>", 1], ["<0xF0>", 1]]
    assert report["byte_fallback_ratio"] == report["sources"]["rare"]["byte_fallback_ratio"] == 1


def test_suspicious_pieces_come_with_their_uses(spam_tokenizer: Tokenizer) -> None:
    texts = ["天天中彩票，天天中彩票", "加微信"]
    report = vocabulary_report(spam_tokenizer, {"spam": texts})
    found = {piece: (reason, count) for piece, reason, count in report["suspicious"]}
    assert found["天天中彩票"] == ("spam: gambling (天天中彩)", 2)
    assert found["加微信"] == ("spam: selling (加微信)", 1)
    assert report["suspicious_pieces"] == len(found) == sum(report["suspicious_by_kind"].values())
    assert report["suspicious_ratio"] == round(3 / report["measured_tokens"], 6)
    counts = [count for _, _, count in report["suspicious"]]
    assert counts == sorted(counts, reverse=True)
    assert "学而时习之" not in found and "<n>" not in found


def test_sources_beyond_a_number_are_one(tokenizer: Tokenizer) -> None:
    sources = {f"source {number:03}": ["学" * (number + 1)] for number in range(MAX_SOURCES + 5)}
    report = vocabulary_report(tokenizer, sources)
    assert len(report["sources"]) == MAX_SOURCES + 1
    assert report["sources"][OTHER_SOURCES]["documents"] == 5
    assert report["sources"][OTHER_SOURCES]["characters"] == sum(range(1, 6))
    assert sum(found["tokens"] for found in report["sources"].values()) == report["measured_tokens"]


def test_equal_texts_give_equal_json(tokenizer: Tokenizer) -> None:
    one = {"a": documents(5), "b": documents(5, start=5)}
    other = dict(reversed(one.items()))
    reports = [durable.canonical_json(vocabulary_report(tokenizer, sources)) for sources in (one, other)]
    assert reports[0] == reports[1]
    assert json.loads(reports[0]) == vocabulary_report(tokenizer, one)


def test_a_model_without_texts(tokenizer: Tokenizer) -> None:
    report = vocabulary_report(tokenizer, {})
    assert (report["characters_per_token"], report["renyi_efficiency"], report["used_pieces"]) == (None, None, 0)
    assert report["coverage"] == {"top": [], "pieces_for": {}}
    assert report["most_frequent"] == [] and report["sources"] == {}

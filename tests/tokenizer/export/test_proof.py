"""What an export is compared with, on which texts, and what is said where it differs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.tokenizer.texts import documents
from tokenizer.export import proof
from tokenizer.export.proof import Document, _overlaps, compare, first_difference, trial_documents
from tokenizer.model import CHUNK_CHARACTERS, EOD_PIECE, Tokenizer


class Library:
    """Ours, but for what it is told to get wrong; notes how much it was given at once."""

    def __init__(
        self, tokenizer: Tokenizer, name: str = "other 1.0", wrong_ids: str = "", wrong_text: str = ""
    ) -> None:
        self.tokenizer, self.name, self.wrong_ids, self.wrong_text = tokenizer, name, wrong_ids, wrong_text
        self.given: list[int] = []

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        self.given.append(sum(map(len, texts)))
        return [self.tokenizer.encode(text)[: 1 if text == self.wrong_ids else None] for text in texts]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        texts = [self.tokenizer.decode(one) for one in ids]
        return [text[:-1] + "?" if text == self.wrong_text else text for text in texts]


def test_equal_libraries(tokenizer: Tokenizer) -> None:
    given = [Document(f"document {number}", text) for number, text in enumerate(documents(20))]
    found = compare(tokenizer, [Library(tokenizer), Library(tokenizer)], given)
    for one in found:
        assert one.is_equal
        assert one.num_documents == 20
        assert one.num_characters == sum(len(text) for _, text in given)
        assert one.num_tokens == sum(len(tokenizer.encode(text)) for _, text in given)


def test_each_difference_is_counted_and_the_first_is_named_without_its_text(models: dict[str, Tokenizer]) -> None:
    tokenizer, texts = models["bpe"], documents(20)
    given = [Document(f"document {number}", text) for number, text in enumerate([*texts, texts[7]])]
    (found,) = compare(tokenizer, [Library(tokenizer, wrong_ids=texts[7], wrong_text=texts[3])], given)
    assert (found.num_documents, found.num_other_ids, found.num_other_texts) == (21, 2, 1)
    assert found.first == f"document 3, decoded, character {len(texts[3]) - 1} of {len(texts[3])}"
    (found,) = compare(tokenizer, [Library(tokenizer, wrong_ids=texts[7])], given)
    assert found.first == f"document 7, token 1 of {len(tokenizer.encode(texts[7]))}"
    assert not found.is_equal


def test_only_the_library_that_differs_is_blamed(models: dict[str, Tokenizer]) -> None:
    tokenizer, texts = models["bpe"], documents(3)
    libraries = [Library(tokenizer, "good 1"), Library(tokenizer, "bad 1", wrong_ids=texts[1])]
    found = compare(tokenizer, libraries, [Document(text[:0], text) for text in texts])
    assert [(one.library, one.is_equal) for one in found] == [("good 1", True), ("bad 1", False)]


def test_little_is_compared_at_once(models: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "GROUP_CHARACTERS", 500)
    library = Library(models["bpe"])
    texts = [*documents(30), "学" * 2_000]
    (found,) = compare(models["bpe"], [library], [Document("", text) for text in texts])
    assert found.num_documents == 31
    assert sum(library.given) == sum(map(len, texts))
    assert max(library.given[:-1]) <= 500 and library.given[-1] == 2_000


def test_first_difference() -> None:
    assert [first_difference(*pair) for pair in (("abc", "abd"), ("ab", "abc"), ("", "a"), ("abc", "ab"))] == [
        2,
        2,
        0,
        2,
    ]


def test_trial_texts_hold_what_conversions_get_wrong(models: dict[str, Tokenizer]) -> None:
    tokenizer = models["bpe with symbols"]
    given = list(trial_documents(tokenizer))
    texts = {text for _, text in given}
    assert len({name for name, _ in given}) == len(given)
    assert {"", EOD_PIECE, "<0x0A>", "<unk>", "<|im_start|>", "<n>", "<n><n>", "学而时习之"[:1] * 2} <= texts
    assert {chr(c) for c in range(0x3000, 0xD800)} <= set("".join(texts))
    assert max(map(len, texts)) > 3 * CHUNK_CHARACTERS
    assert any(len(line) > CHUNK_CHARACTERS for text in texts for line in text.split("\n"))


def test_a_piece_that_begins_as_it_ends_is_laid_over_itself() -> None:
    assert list(_overlaps(["哈哈", "学习", "abab", "a"])) == ["哈哈哈哈哈", "abababababab"[:10]]

"""The texts that every export is compared on."""

from __future__ import annotations

from tokenizer.export.trials import _overlaps, trial_documents
from tokenizer.model import CHUNK_CHARACTERS, EOD_PIECE, Tokenizer


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

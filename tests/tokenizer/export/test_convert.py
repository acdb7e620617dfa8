"""`tokenizer.json` in the tokenizers library against SentencePiece: equal ids and texts for whatever is encoded."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend

from tests.examples import examples
from tests.tokenizer.export.conftest import CONTROL_SYMBOLS, KINDS, USER_SYMBOLS
from tests.tokenizer.texts import documents
from tokenizer.export.convert import ExportError, counted_apart, is_bpe, tokenizer_json
from tokenizer.model import CHUNK_CHARACTERS, EOD_PIECE, SPACE_MARK, Tokenizer

UNICODE = st.characters(exclude_categories=["Cs"])
RUNS = st.builds(
    str.__mul__, st.sampled_from(["哈", "哈哈", "-", "—", "…", " ", "之", "ab", "\n", "0"]), st.integers(1, 9)
)
SYMBOLS = ["<0x0A>", "<0xE4>", "<unk>", EOD_PIECE, *USER_SYMBOLS, *CONTROL_SYMBOLS, "<|reserved_0|>", "<|im_"]
TRICKY = st.sampled_from(
    [
        *"\n\r\t \0\u3000\ufeff\u2585学，aA1<>|",
        SPACE_MARK,
        "\U0010ffff",
        "e\u0301",
        "\r\n",
        "之乎者",
        "不亦君子乎",
        *SYMBOLS,
    ]
)


@cache
def convert(tokenizer: Tokenizer) -> Backend:
    return Backend.from_str(json.dumps(tokenizer_json(tokenizer)))


def assert_equal(tokenizer: Tokenizer, text: str) -> None:
    expected = tokenizer.encode(text)
    assert convert(tokenizer).encode(text).ids == expected
    assert convert(tokenizer).decode(expected) == text


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.one_of(st.text(UNICODE, max_size=60), st.lists(TRICKY, max_size=20).map("".join)))
def test_any_text(models: dict[str, Tokenizer], kind: str, text: str) -> None:
    assert_equal(models[kind], text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(text=st.one_of(st.text(UNICODE), st.lists(TRICKY).map("".join), st.lists(RUNS).map("".join)))
@examples(2000)
def test_any_text_at_length(models: dict[str, Tokenizer], kind: str, text: str) -> None:
    assert_equal(models[kind], text)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.lists(RUNS, max_size=12).map("".join))
def test_runs_and_ties(models: dict[str, Tokenizer], kind: str, text: str) -> None:
    assert_equal(models[kind], text)


def test_documents(tokenizer: Tokenizer) -> None:
    for text in documents(100, 500):
        assert_equal(tokenizer, text)


def test_long_texts_are_cut_where_ours_are(tokenizer: Tokenizer) -> None:
    unit = "学而时习之，不亦说乎？"
    line = (unit * (CHUNK_CHARACTERS // len(unit) + 1))[:CHUNK_CHARACTERS]
    assert_equal(tokenizer, f"{line[1:]}\n{line}\n{line}{unit}{unit}")


def test_where_a_long_line_with_a_symbol_is_cut(models: dict[str, Tokenizer]) -> None:
    """Unigram's symbols are pieces; BPE's are found before a line is cut, which the exported folder says."""
    line = USER_SYMBOLS[0] + "学而时习之，不亦说乎？" * (CHUNK_CHARACTERS // 10)
    texts = ["学" * shift + line for shift in range(2)]
    for kind, is_exact in (("unigram with symbols", True), ("bpe with symbols", False)):
        equal = [convert(models[kind]).encode(text).ids == models[kind].encode(text) for text in texts]
        assert all(equal) == is_exact
        assert bool(counted_apart(models[kind])) != is_exact


def test_a_symbol_in_a_text_is_text_or_one_token(models: dict[str, Tokenizer]) -> None:
    for kind in ("bpe with symbols", "unigram with symbols"):
        backend = convert(models[kind])
        for symbol in (EOD_PIECE, *CONTROL_SYMBOLS, "<|reserved_1|>"):
            assert len(backend.encode(symbol).ids) > 2
        for symbol in USER_SYMBOLS:
            (id,) = backend.encode(symbol).ids
            assert backend.decode([id]) == symbol


def test_the_kind_is_seen_in_the_scores(models: dict[str, Tokenizer]) -> None:
    assert [is_bpe(models[kind]) for kind in KINDS] == [True, False, True, False]


def test_every_id_has_its_name(tokenizer: Tokenizer) -> None:
    backend = convert(tokenizer)
    assert backend.get_vocab_size() == tokenizer.vocab_size
    for id in range(tokenizer.vocab_size):
        assert backend.id_to_token(id) == tokenizer.piece(id).replace(SPACE_MARK, " ")


def test_what_the_format_cannot_hold_is_refused(models: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = models["bpe"]
    monkeypatch.setattr(tokenizer, "piece", lambda id: "学")
    with pytest.raises(ExportError, match="two pieces '学'"):
        tokenizer_json(tokenizer)

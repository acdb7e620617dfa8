"""Held-out documents that no arm has seen: ids, copies, near copies, n-grams against brute force."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from pretrain.ablation import unseen
from pretrain.ablation.plan import Arm, open_arms
from pretrain.ablation.unseen import NGRAM, Held, NGrams, ngram_hashes, read_held, split_of
from pretrain.config import load_config
from pretrain.evaluation.held_out import split_documents
from tests.pretrain.ablation.builds import build, prose, two_builds
from tokenizer.model import Tokenizer

PLENTY = 1_000_000


def arms_of(words: list[str], config: str) -> tuple[Arm, ...]:
    return open_arms(words, load_config(config))


def held_of(
    words: list[str], config: str, tokenizer: Tokenizer, *texts: Path, max_tokens: int = PLENTY
) -> dict[str, Held]:
    found = read_held(arms_of(words, config), [str(path) for path in texts], None, tokenizer, "validation", max_tokens)
    return {each.key: each for each in found}


def test_every_arms_held_out_documents_are_asked_about(tmp_path: Path, tokenizer: Tokenizer, config: str) -> None:
    one = build(tmp_path / "one", tokenizer, [prose(0)], [prose(1), prose(2)])
    other = build(tmp_path / "other", tokenizer, [prose(3)], [prose(4)], first_id=100)
    held = held_of([f"one={one}", f"other={other}"], config, tokenizer)
    assert list(held) == ["held out/one", "held out/other"]
    texts = {key: [document.text for document in each.documents] for key, each in held.items()}
    assert texts == {"held out/one": [prose(1), prose(2)], "held out/other": [prose(4)]}
    assert [document.id for document in held["held out/other"].documents] == [f"{101:032x}"]
    assert not any(each.num_same_id or each.num_same_text for each in held.values())


def test_a_document_that_another_arm_was_trained_on_is_left_out(
    tmp_path: Path, tokenizer: Tokenizer, config: str
) -> None:
    # one holds out ids 1 to 4; other is trained on ids 2 and 3, and id 3 there is the text of id 1 here
    one = build(tmp_path / "one", tokenizer, [prose(0)], [prose(1), prose(2), prose(5), prose(6)])
    other = build(tmp_path / "other", tokenizer, [prose(3), prose(1)], first_id=2)
    held = held_of([f"one={one}", f"other={other}"], config, tokenizer)["held out/one"]
    assert [document.text for document in held.documents] == [prose(6)]
    assert (held.num_same_id, held.num_same_text) == (2, 1)


def test_without_text_to_compare_on_it_is_refused(tmp_path: Path, tokenizer: Tokenizer, config: str) -> None:
    one = build(tmp_path / "one", tokenizer, [prose(0)], [prose(3)])
    other = build(tmp_path / "other", tokenizer, [prose(3)], first_id=100)
    with pytest.raises(UsageError, match="no held-out document is left"):
        held_of([f"one={one}", f"other={other}"], config, tokenizer)


@pytest.mark.parametrize(("num_shared", "is_seen"), [(200, True), (140, True), (60, False), (0, False)])
def test_near_copies_are_left_out(
    tmp_path: Path, tokenizer: Tokenizer, config: str, num_shared: int, is_seen: bool
) -> None:
    copy = prose(1)[:num_shared] + prose(2)[num_shared:]
    one = build(tmp_path / "one", tokenizer, [prose(0)], [prose(8)])
    other = build(tmp_path / "other", tokenizer, [prose(7), prose(1)], first_id=100)
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": copy}) + "\n" + json.dumps({"text": prose(9)}) + "\n")
    held = held_of([f"one={one}", f"other={other}"], config, tokenizer, tmp_path / "text.jsonl")["text/text.jsonl"]
    assert held.num_same_text == is_seen
    assert [document.text for document in held.documents] == ([] if is_seen else [copy]) + [prose(9)]


def test_texts_are_taken_by_source_up_to_a_number_of_tokens(tmp_path: Path, tokenizer: Tokenizer, config: str) -> None:
    words = two_builds(tmp_path, tokenizer)
    long = prose(50, unseen.MAX_CHARACTERS + 500)
    texts = [prose(seed) for seed in range(10, 20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "b.txt").write_text(long)
    size = len(tokenizer.encode(texts[0])) + 1
    held = held_of(words, config, tokenizer, tmp_path / "a.jsonl", tmp_path / "b.txt", max_tokens=size)
    assert [document.text for document in held["text/a.jsonl"].documents] == texts[:1]
    (document,) = held["text/b.txt"].documents  # one at least
    assert document.text == long[: unseen.MAX_CHARACTERS]


def test_a_stream_of_them_is_what_a_model_is_asked_about(tmp_path: Path, tokenizer: Tokenizer, config: str) -> None:
    held = held_of(two_builds(tmp_path, tokenizer), config, tokenizer)["held out/one"]
    whole = held.for_model(tokenizer.eod)
    assert whole.texts == [document.text for document in held.documents]
    assert [tokenizer.decode(ids) for ids in split_documents(whole.tokens, whole.eod)] == whole.texts
    first = len(held.documents[0].tokens) + 1
    for max_tokens, number in [
        (1, 1),
        (first, 1),
        (first + len(held.documents[1].tokens), 1),
        (PLENTY, len(whole.texts)),
    ]:
        assert held.for_model(tokenizer.eod, max_tokens).texts == whole.texts[:number]
    assert held.for_model(tokenizer.eod, first + len(held.documents[1].tokens) + 1).texts == whole.texts[:2]
    assert held.identity != Held(held.kind, held.name, held.documents[:-1]).identity


def test_a_build_without_a_table_of_documents_has_its_texts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = build(tmp_path / "one", tokenizer, [prose(0)], [prose(1)])
    next((folder / "data").glob("*validation.docs.parquet")).unlink()
    (document,) = split_of(folder, "validation", tokenizer, PLENTY)
    assert (document.text, document.id) == (prose(1), None)


SMALL = st.lists(st.integers(0, 2), max_size=60)


@given(st.lists(SMALL, max_size=4), st.lists(SMALL, max_size=4))
def test_shares_are_those_of_sets(held: list[list[int]], read: list[list[int]]) -> None:
    def grams(tokens: list[int]) -> set[tuple[int, ...]]:
        return {tuple(tokens[place : place + NGRAM]) for place in range(len(tokens) - NGRAM + 1)}

    found = NGrams([np.array(tokens, dtype=np.uint16) for tokens in held])
    for tokens in read:
        found.read(np.array(tokens, dtype=np.uint16))
    seen = set().union(*map(grams, read))
    wanted = [len(grams(tokens) & seen) / len(grams(tokens)) if grams(tokens) else 0.0 for tokens in held]
    assert found.shares() == pytest.approx(wanted)


@given(st.integers(NGRAM, 80), st.integers(1, 30))
def test_chunks_hold_every_ngram_once(num_tokens: int, chunk: int) -> None:
    tokens = np.arange(num_tokens, dtype=np.uint16)
    reader = mock.Mock()
    reader.return_value.tokens = lambda start, stop: tokens[start:stop]
    with mock.patch("pretrain.data.ShardReader", reader), mock.patch.object(unseen, "CHUNK_TOKENS", chunk):
        hashes = np.concatenate(
            [ngram_hashes(part) for part in unseen._chunks(mock.Mock(num_tokens=num_tokens))]  # type: ignore[arg-type]
        )
    assert hashes.tolist() == ngram_hashes(tokens).tolist()


def test_one_document_is_like_the_next_only_if_it_is_the_same() -> None:
    assert len({int(ngram_hashes(np.array(row))[0]) for row in np.eye(NGRAM, dtype=np.int64)}) == NGRAM
    assert len(ngram_hashes(np.arange(NGRAM - 1))) == 0

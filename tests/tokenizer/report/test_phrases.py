"""Parts of fixed texts: what the statistics are, and that counting is exact."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenizer.report import suspicious_pieces
from tokenizer.report.phrases import (
    MIN_CHARACTERS,
    MIN_COUNT,
    MIN_PER_DOCUMENT,
    Contexts,
    find_contexts,
    fixed_phrases,
)
from tokenizer.report.texts import evenly


def contexts(piece: str, texts: list[str]) -> Contexts:
    """By looking at every place."""
    found = Contexts()
    for number, text in enumerate(texts):
        for place in range(len(text)):
            if text.startswith(piece, place):
                found.before[text[place - 1] if place else "\0"] += 1
                found.after[(text + "\0")[place + len(piece)]] += 1
                found.documents.add(number)
    return found


@given(
    st.lists(st.text("甲乙丙a\n", max_size=40), max_size=5),
    st.sets(st.text("甲乙丙", min_size=MIN_CHARACTERS, max_size=MIN_CHARACTERS + 2), max_size=8),
)
def test_every_occurrence_is_found(texts: list[str], wanted: set[str]) -> None:
    found = find_contexts(wanted, texts)
    for piece in wanted:
        expected = contexts(piece, texts)
        got = found.get(piece, Contexts())
        assert (got.before, got.after, len(got.documents)) == (
            expected.before,
            expected.after,
            len(expected.documents),
        )
        assert (piece in found) == (expected.count > 0)


def test_overlaps_count() -> None:
    assert find_contexts({"甲甲甲甲甲"}, ["甲" * 7])["甲甲甲甲甲"].count == 3


def test_a_slogan_is_fixed_and_a_word_is_not() -> None:
    source = random.Random(0)
    letters = "的一是在了有和这我也"
    texts = []
    for number in range(3 * MIN_COUNT):
        filler = "".join(source.choices(letters, k=6))
        texts.append(f"{filler}，荣誉推出本刊物。{filler}正则表达式{filler[::-1]}{number % 10}")
    found = suspicious_pieces(["荣誉推出本", "荣誉推出本刊物", "▁荣誉推出本刊物", "正则表达式"], texts)
    assert set(found) == {"荣誉推出本", "荣誉推出本刊物", "▁荣誉推出本刊物"}
    assert found["荣誉推出本刊物"] == f"phrase: the same neighbours in 100% of {3 * MIN_COUNT} places"


def test_words_of_enumerations_are_words() -> None:
    texts = [f"{a}、马绍尔群岛、{b}" for a in "甲乙丙丁戊己" for b in "子丑寅卯"]
    assert fixed_phrases(["马绍尔群岛"], texts) == {}
    assert fixed_phrases(["马绍尔群岛"], [text.replace("、", "，") for text in texts]) != {}


def test_one_side_may_be_fixed() -> None:
    texts = [f"在{a}中华人民共和国的{b}" for a in "甲乙丙丁戊己" for b in "子丑寅卯"]
    assert fixed_phrases(["中华人民共和国"], texts) == {}


@pytest.mark.parametrize(("per_document", "named"), [(MIN_PER_DOCUMENT - 1, False), (MIN_PER_DOCUMENT, True)])
def test_what_few_documents_repeat_is_theirs(per_document: float, named: bool) -> None:
    source = random.Random(0)
    text = "".join(
        f"{source.choice('甲乙丙丁')}火金水聚於{source.choice('甲乙丙丁')}" for _ in range(int(per_document))
    )
    found = fixed_phrases(["火金水聚於"], [text, text])
    assert found == ({"火金水聚於": f"phrase: {2 * int(per_document)} times in 2 documents"} if named else {})


@pytest.mark.parametrize(("count", "named"), [(MIN_COUNT - 1, False), (MIN_COUNT, True)])
def test_few_occurrences_say_nothing(count: int, named: bool) -> None:
    assert bool(fixed_phrases(["荣誉推出本"], ["由荣誉推出本刊"] * count)) == named


def test_short_pieces_and_other_scripts_are_not_judged() -> None:
    texts = ["由荣誉推出的freecodecamp本 "] * 50
    assert fixed_phrases(["荣誉推出", "freecodecamp", " 荣誉推出", "推出的free"], texts) == {}


@given(st.lists(st.text(max_size=30), max_size=60), st.integers(1, 300))
def test_a_sample_is_spread_and_of_about_its_size(texts: list[str], num_characters: int) -> None:
    chosen = evenly(texts, num_characters)
    total = sum(map(len, texts))
    if total <= num_characters:
        assert chosen == texts
    else:
        assert abs(len(chosen) - len(texts) * num_characters / total) <= 1
        remaining = iter(texts)
        assert all(text in remaining for text in chosen)  # in the order they had

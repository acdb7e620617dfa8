"""The dataset card: what the build says of itself, and a line to fill in where only a person can know."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from corpus.recipe import record_recipe
from corpus.report.card import render_card
from corpus.report.metadata import gather
from tests.corpus.retune.conftest import built, inputs  # noqa: F401  (fixtures)


@pytest.fixture(scope="module")
def card(built: Path) -> str:  # noqa: F811
    return render_card(str(built), gather(str(built)))


def test_rules_stand_with_limits_and_what_they_removed(card: str, built: Path) -> None:  # noqa: F811
    facts = gather(str(built))
    for one in facts.reasons:
        assert re.search(rf"\| `{re.escape(one.rule)}` \| .* \| {one.documents:,} \| {re.escape(one.share)} \|", card)
    assert "| `length.num_chars` | min 150, max 900 | code points. Unicode code points of the document" in card
    assert "1 input files" not in card
    assert "in documents that were dropped afterwards, too" in card


def test_biases_are_those_of_this_build(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("corpus.report.card.SMALL_GROUP", 10)
    card = render_card(str(built), gather(str(built)))
    lost = next(one for one in gather(str(built)).measured.lengths if one.name == "100 to 199")
    assert f"- of 100 to 199 characters: {lost.kept} of {lost.documents} kept" in card
    assert "by language: Chinese:" not in card


def test_what_only_a_person_knows_is_asked_for(
    built: Path,  # noqa: F811
    inputs: Path,  # noqa: F811
    tmp_path: Path,
    card: str,
) -> None:
    assert card.count("to fill in") == 1 and card.count("**To fill in:**") == 2
    out = Path(shutil.copytree(built, tmp_path / "out"))
    person = [
        "card.name=论语选",
        "card.license=cc-by-4.0",
        "card.contact=corpus@example.org",
        "card.homepage=https://example.org",
    ]
    record_recipe(str(out), str(inputs / "small.toml"), person)
    filled = render_card(str(out), gather(str(out)))
    assert "o fill in" not in filled
    assert 'license: "cc-by-4.0"' in filled and "# 论语选" in filled and "corpus@example.org" in filled

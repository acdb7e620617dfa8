"""Recipes written: a text whose values change keeps all its other bytes; whatever is written means what it should."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.config import RECIPES, apply_overrides, load_toml
from corpus.engine.errors import UsageError
from corpus.engine.toml import dump, edit, toml_value
from corpus.recipe import Recipe
from corpus.retune import write_recipe


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_plain_text_means_the_same_in_the_same_order(path: Path) -> None:
    values = load_toml(path)
    assert toml_value(tomllib.loads(dump(values))) == toml_value(values)


def test_only_changed_lines_change(tmp_path: Path) -> None:
    path = RECIPES / "web_zh.toml"
    base = load_toml(path)
    values = apply_overrides(
        base, ["filter.script.hangul_ratio=off", "filter.length.num_chars.min=80", "dedup.threshold=0.7"]
    )
    target = tmp_path / "mine.toml"
    write_recipe(target, path.read_text(encoding="utf-8"), base, values)
    assert load_toml(target) == values
    old, new = (one.read_text(encoding="utf-8").splitlines() for one in (path, target))
    changed = [line for line in difflib.ndiff(old, new) if line[0] in "+-" and line[2:]]
    assert [line.split("#")[0].rstrip() for line in changed if line[0] == "+"] == [
        "+     { min = 80, max = 200_000 },",
        '+ hangul_ratio = "off"',
        "+ [dedup]",
        "+ threshold = 0.7",
    ]
    was, now = ([line.partition("#")[2] for line in changed if line[0] == sign] for sign in "-+")
    assert len(was) == 2 and all(was) and was == now[:2]


def test_a_recipe_that_extends_another_keeps_doing_so(tmp_path: Path) -> None:
    path = RECIPES / "classical_zh.toml"
    base = load_toml(path)
    values = apply_overrides(base, ["filter.repetition.top_2_gram_ratio.max=0.5", "filter.length.num_chars.min=5"])
    target = tmp_path / "mine.toml"
    write_recipe(target, path.read_text(encoding="utf-8"), base, values)
    assert 'extends = "web_zh"' in target.read_text(encoding="utf-8")
    assert toml_value(load_toml(target)) == toml_value(values)


@pytest.mark.parametrize(
    "text",
    [
        "[filter]\nlength = { num_chars = { min = 50 } }\n",  # a section as one value
        "filter = { length = { num_chars = { min = 50 } } }\n",  # all of them
        "[filter.length]\nnum_chars.min = 50\n",  # a dotted key
        "[filter.length.num_chars]\nmin = 50\n",  # a range as a section
        'filter.length.num_chars = { min = 50 } # "x"\n',
    ],
)
def test_other_ways_to_write_a_recipe_fall_back_to_plain_text(tmp_path: Path, text: str) -> None:
    base: dict[str, Any] = tomllib.loads(text)
    values = apply_overrides(base, ["filter.length.num_chars.min=80", "filter.script.kana_ratio.max=0.25"])
    target = tmp_path / "mine.toml"
    write_recipe(target, text, base, values)
    assert load_toml(target) == values


def test_a_path_that_cannot_be_followed_from_elsewhere_is_written_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "base.toml").write_text("[filter.length]\nnum_chars = { min = 50 }\n")
    mine = tmp_path / "a" / "mine.toml"
    mine.write_text('extends = "./base.toml"\n')
    base = load_toml(mine)
    values = apply_overrides(base, ["filter.length.num_chars.min=80"])
    write_recipe(tmp_path / "new.toml", mine.read_text(), base, values)
    assert load_toml(tmp_path / "new.toml") == values
    assert "extends" not in (tmp_path / "new.toml").read_text()


def test_a_comment_stays_where_it_was() -> None:
    old, new = ({"filter": {"length": {"num_chars": {"min": limit}}}} for limit in (50, 12345))
    text = "[filter.length] # 长度\n# 说明\nnum_chars = { min = 50 }     # 一句话\n"
    assert edit(text, old, new) == "[filter.length] # 长度\n# 说明\nnum_chars = {min = 12345}     # 一句话\n"


@pytest.mark.parametrize(("name", "words"), [("mine.txt", r"ends in \.toml"), ("none/mine.toml", "does not exist")])
def test_where_it_may_be_written(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        write_recipe(tmp_path / name, "", {}, {})


def test_a_recipe_with_lists_beside_it_means_the_same_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    mine = tmp_path / "a" / "mine.toml"
    mine.write_text('[filter.url]\nhosts = ["hosts.txt"]\n[dedup]\nearlier = ["old"]\n')
    base = load_toml(mine, model=Recipe)
    values = apply_overrides(base, ["filter.length.num_chars.min=80"])
    write_recipe(tmp_path / "new.toml", mine.read_text(), base, values)
    assert load_toml(tmp_path / "new.toml", model=Recipe) == values
    assert values["filter"]["url"]["hosts"] == [str(tmp_path / "a" / "hosts.txt")]

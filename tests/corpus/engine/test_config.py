"""Recipes: strict, all errors at once, nearest key named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated

import pydantic
import pytest

from corpus.engine.config import BesideRecipe, RecipePath, Strict, apply_overrides, find_recipe, load_toml, parse
from corpus.engine.errors import UsageError


class Dedup(Strict):
    threshold: float = 0.8
    bands: int = 14


class Recipe(Strict):
    name: str
    dedup: Dedup | None = None


def test_all_errors_come_at_once_and_name_the_nearest_key() -> None:
    with pytest.raises(UsageError) as caught:
        parse(Recipe, {"nam": "x", "dedup": {"treshold": 0.7, "bands": "many"}}, "my.toml")
    message = str(caught.value)
    assert message.startswith("my.toml: 4 errors")
    assert "dedup.treshold: unknown key; did you mean threshold?" in message
    assert "nam: unknown key; did you mean name?" in message
    assert "dedup.bands: Input should be a valid integer" in message
    assert caught.value.exit_code == 2


def test_errors_of_set_are_told_as_its_own() -> None:
    overrides = ["dedup.treshold=0.7", "dedup.bands=many"]
    values = apply_overrides({"name": "x"}, overrides)
    with pytest.raises(UsageError) as caught:
        parse(Recipe, values, "my.toml", overrides)
    message = str(caught.value)
    assert message.startswith("--set: 2 errors") and "my.toml" not in message
    assert all(f"(--set {override})" in message for override in overrides)
    with pytest.raises(UsageError) as caught:
        parse(Recipe, values | {"nam": "y"}, "my.toml", overrides)
    told = {line.strip().partition(":")[0]: "--set" in line for line in str(caught.value).splitlines()}
    assert told == {"my.toml": False, "dedup.treshold": True, "dedup.bands": True, "nam": False}


def test_extends_is_suggested_for_extend() -> None:
    with pytest.raises(UsageError, match=r"extend: unknown key; did you mean extends\?"):
        parse(Recipe, {"name": "x", "extend": "web_zh"}, "my.toml")
    with pytest.raises(UsageError, match="extends: stands in a file"):
        parse(Recipe, {"name": "x", "extends": "web_zh"}, "my.toml", ["extends=web_zh"])


def test_overrides_are_read_as_toml_else_as_text() -> None:
    values = {"dedup": {"bands": 14}}
    changed = apply_overrides(values, ["dedup.bands=20", "dedup.threshold=0.7", "name=web 中文", "a={min = 1}"])
    assert changed == {"dedup": {"bands": 20, "threshold": 0.7}, "name": "web 中文", "a": {"min": 1}}
    assert values == {"dedup": {"bands": 14}}


@pytest.mark.parametrize("override", ["a", "=3", "a..b=3", "dedup.bands.x=1", "a=1e999999", "a=nan"])
def test_bad_overrides_are_refused(override: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        apply_overrides({"dedup": {"bands": 14}}, [override])


@pytest.mark.parametrize(
    "data",
    [
        b"a = inf",
        b"a = [" + b"[" * 40 + b"]" * 41,
        b"a = ",
        b"\xff\xfe",
        b"# " + b"x" * (1 << 20),
        b"[" * 5000,
        b"a = " + b"9" * 5000,
    ],
    ids=["infinite", "deep", "cut", "bytes", "large", "bomb", "integer"],
)
def test_hostile_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "r.toml").write_bytes(data)
    with pytest.raises(UsageError, match=r"r\.toml"):
        load_toml(tmp_path / "r.toml")


def test_a_value_where_a_section_stands_is_said_in_our_words() -> None:
    with pytest.raises(UsageError, match="dedup: is a section of keys, not a value"):
        parse(Recipe, {"name": "x", "dedup": 3}, "my.toml")


def test_recipes_are_found_by_name_or_path() -> None:
    assert find_recipe("web_zh").is_file()
    assert find_recipe("my.toml") == Path("my.toml")
    assert find_recipe("./mine") == Path("mine")
    with pytest.raises(UsageError, match=r"did you mean web_zh.* built-in recipes: .*web_zh"):
        find_recipe("web_hz")
    with pytest.raises(UsageError, match="unknown recipe"):
        find_recipe("x" * 5000)


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        load_toml(tmp_path / "none.toml")


class Lists(Strict):
    files: tuple[RecipePath, ...] = pydantic.Field(default=(), strict=False)
    model: RecipePath | None = None
    words: tuple[Annotated[str, BesideRecipe(("seo",))], ...] = pydantic.Field(default=(), strict=False)
    name: str = ""


class Placed(Strict):
    lists: Lists = Lists()
    tables: tuple[Lists, ...] = pydantic.Field(default=(), strict=False)


def test_paths_of_a_recipe_are_those_of_the_file_that_says_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("base", "mine", "here"):
        (tmp_path / folder).mkdir()
    (tmp_path / "base" / "base.toml").write_text(
        '[lists]\nfiles = ["a.txt", "s3://b/c", "/d"]\nmodel = "m"\nname = "a.txt"\n'
    )
    mine = tmp_path / "mine" / "my.toml"
    mine.write_text('extends = "../base/base.toml"\n[lists]\nwords = ["seo", "w.txt"]\n[[tables]]\nmodel = "t"\n')
    monkeypatch.chdir(tmp_path / "here")
    made = parse(Placed, load_toml(Path("../mine/my.toml"), ['lists.model="set.bin"'], Placed), "my.toml")
    assert made.lists.files == (str(tmp_path / "base" / "a.txt"), "s3://b/c", "/d")
    assert made.lists.words == ("seo", str(tmp_path / "mine" / "w.txt"))
    assert made.lists.model == str(tmp_path / "here" / "set.bin")
    assert made.tables[0].model == str(tmp_path / "mine" / "t")
    assert made.lists.name == "a.txt"
    assert load_toml(mine)["lists"]["words"] == ["seo", "w.txt"]  # of a model that is not known nothing is a path


@pytest.mark.parametrize("path", ["items.jsonl", "in/*.jsonl", "in"])
def test_a_path_that_stands_in_the_current_folder_only_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    (tmp_path / "mine [1]").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("")
    (tmp_path / "items.jsonl").write_text("")
    recipe = tmp_path / "mine [1]" / "my.toml"
    recipe.write_text(f'[lists]\nfiles = ["{path}"]\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"my\.toml: lists\.files: .*Write {re.escape('../' + path)}"):
        load_toml(recipe, model=Placed)
    shutil.copytree(tmp_path / "in", tmp_path / "mine [1]" / "in")
    (tmp_path / "mine [1]" / "items.jsonl").write_text("")
    assert load_toml(recipe, model=Placed)["lists"]["files"] == [str(recipe.parent / path)]


def test_strings_that_are_no_paths_are_left_to_their_readers(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('lists = 3\n[[tables]]\nfiles = "one"\nmodel = 4\nwords = ["a\\u0000", 5]\n')
    values = load_toml(tmp_path / "my.toml", model=Placed)
    assert values == {
        "lists": 3,
        "tables": [{"files": str(tmp_path / "one"), "model": 4, "words": ["a\0", 5]}],
    }
    with pytest.raises(UsageError, match=r"tables\.1\.nam: unknown key; did you mean name"):
        parse(Placed, {"tables": [{}, {"nam": "x"}]}, "my.toml")

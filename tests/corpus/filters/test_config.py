"""Recipes: unknown keys name the nearest valid one, all errors at once, rules in the recipe's order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus.engine.config import find_recipe, load_toml
from corpus.engine.errors import UsageError
from corpus.engine.toml import dump
from corpus.filters import STATISTICS, Filter, FilterConfig, Rule, load


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_errors_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    recipe = write(
        tmp_path,
        """
        [filter.length]
        num_char = { min = 3 }
        [filter.lenght]
        num_chars = { min = 3 }
        [filter.lines]
        num_lines = { mn = 3 }
        mean_line_chars = { min = 5, max = 3 }
        [filter.repetition]
        top_2_gram_ratio = {}
        top_3_gram_ratio = { max = "0.2" }
        [filter.edit]
        personal_data = ["mobil"]
        """,
    )
    with pytest.raises(UsageError) as caught:
        load(recipe)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    for part in (
        "7 errors",
        "filter.length.num_char: unknown key; did you mean num_chars?",
        "filter.lenght: unknown key; did you mean length?",
        "filter.lines.num_lines.mn: unknown key; did you mean min?",
        "filter.lines.mean_line_chars: min 5 is above max 3",
        "filter.repetition.top_2_gram_ratio: a range needs min, max or both",
        "filter.repetition.top_3_gram_ratio.max",
        "filter.edit.personal_data.0",
    ):
        assert part in message


def test_a_limit_that_is_no_value_of_its_statistic_is_refused(tmp_path: Path) -> None:
    recipe = write(
        tmp_path,
        """
        [filter.length]
        num_chars = { min = -5 }
        [filter.characters]
        han_ratio = { min = 30 }
        digit_ratio = { max = 1 }
        latin_ratio = "off"
        [filter.quality]
        bigram_association = { min = -0.5 }
        [filter.url]
        blocked = { max = 2 }
        """,
    )
    with pytest.raises(UsageError) as caught:
        load(recipe, ["filter.script.kana_ratio.max=250"])
    message = str(caught.value)
    assert "4 errors" in message
    assert "filter.characters.han_ratio: min 30 is no value of it, which is 0 to 1" in message
    assert "did you mean 0.3?" in message
    assert "filter.length.num_chars: min -5" in message and "filter.url.blocked: max 2" in message
    assert "max 250" in message and "did you mean 2.5" not in message
    assert "(--set filter.script.kana_ratio.max=250)" in message


def test_rules_keep_the_recipe_order(tmp_path: Path) -> None:
    recipe = write(
        tmp_path,
        """
        [filter.repetition]
        top_3_gram_ratio = { max = 0.3 }
        top_2_gram_ratio = { max = 0.2 }
        [filter.length]
        num_chars = { min = 20 }
        """,
    )
    keys = [rule.key for rule in load(recipe).rules]
    assert keys == ["repetition.top_3_gram_ratio", "repetition.top_2_gram_ratio", "length.num_chars"]
    added = load(recipe, ["filter.script.kana_ratio.max=0.1", "filter.length.num_chars.min=5"]).rules
    assert added[-1] == Rule(key="script.kana_ratio", min=None, max=0.1)
    assert added[2] == Rule(key="length.num_chars", min=5, max=None)


def test_meaning_changes_with_what_changes_bytes_and_only_with_that(tmp_path: Path) -> None:
    base = load("web_zh").config.meaning()
    assert load("web_zh").config.meaning() == base
    words = tmp_path / "words.txt"
    words.write_text("某个词\n")
    for override in (
        "filter.length.num_chars.min=51",
        "filter.edit.boilerplate_lines=false",
        'filter.edit.personal_data=["email"]',
        'filter.blocklist.lists=["porn"]',
    ):
        assert load("web_zh", [override]).config.meaning() != base
    with_words = f'filter.blocklist.lists=["{words}"]'
    before = load("web_zh", [with_words]).config.meaning()
    other = tmp_path / "other.txt"
    other.write_text("别的词\n")
    assert load("web_zh", [f'filter.blocklist.lists=["{other}"]']).config.meaning() != before


def test_a_model_made_in_python_has_its_rules() -> None:
    config = FilterConfig.model_validate({"lines": {"num_lines": {"max": 3.0}}})
    assert [rule.key for rule in Filter(config).rules] == ["length.num_chars", "lines.num_lines"]


def test_a_recipe_without_a_filter(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no \[filter"):
        load(write(tmp_path, "[sources]\nkind = 'auto'\n"))


def test_built_in_recipes_explain_each_range(repository: Path) -> None:
    for path in (repository / "corpus" / "recipes").glob("*.toml"):
        rules = load(path.stem).rules
        assert {rule.key for rule in rules} <= set(STATISTICS)
    lines = (repository / "corpus" / "recipes" / "web_zh.toml").read_text().splitlines()
    ranges = [line for line in lines if re.match(r"(\w+ = |    )\{", line)]
    assert len(ranges) == len(load("web_zh").rules)
    assert all("#" in line and len(line.partition("#")[2]) > 15 for line in ranges)


def test_a_recipe_extends_another_key_by_key(tmp_path: Path) -> None:
    base = write(
        tmp_path,
        """
        [filter.length]
        num_chars = { min = 50, max = 1000 }
        [filter.lines]
        label_char_ratio = { max = 0.4 }
        num_lines = { max = 9 }
        """,
    )
    base.rename(tmp_path / "base.toml")
    mine = write(
        tmp_path,
        """
        extends = "base.toml"
        [filter.length]
        num_chars = { min = 5 }
        [filter.lines]
        label_char_ratio = "off"
        """,
    )
    assert load(mine).rules == (
        Rule(key="length.num_chars", min=5, max=None),
        Rule(key="lines.num_lines", min=None, max=9),
    )
    assert [rule.key for rule in load(mine, ["filter.lines.num_lines=off"]).rules] == ["length.num_chars"]


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ('"recipe.toml"', "extends this file again"),
        ('"none.toml"', r"none\.toml: cannot be read"),
        ("3", "names one recipe"),
        ('"webzh"', "did you mean web_zh"),
        ('"loop.toml"', r"loop\.toml: cannot be read"),
        ('"a\\u0000/b"', "null byte"),
        ('"large.toml"', "larger than"),
        ('"/dev/zero"', "larger than"),
        ('"chain1.toml"', "the 9th in a row"),
        ('"./"', "Is a directory"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, base: str, message: str) -> None:
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (2 << 20))
    for link in range(1, 10):
        (tmp_path / f"chain{link}.toml").write_text(f'extends = "chain{link + 1}.toml"\n')
    with pytest.raises(UsageError, match=message):
        load(write(tmp_path, f"extends = {base}\n[filter.length]\nnum_chars = {{ min = 5 }}\n"))


@pytest.mark.parametrize("name", ["books_zh", "classical_zh", "forum_zh", "news_zh"])
def test_a_recipe_written_out_has_the_fingerprint_of_the_one_that_extends(tmp_path: Path, name: str) -> None:
    written = write(tmp_path, dump(load_toml(find_recipe(name))))
    assert load(written).config.meaning() == load(name).config.meaning()

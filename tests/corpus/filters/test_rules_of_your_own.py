"""[[filter.rules]]: patterns in linear time, expressions of a grammar that can do nothing else, and installed functions
where somebody allows them; each measured, decided and told as any statistic is."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError, WenhaiError
from corpus.filters import Filter, load
from corpus.filters.rules import code
from corpus.filters.rules.expression import parse
from tests.corpus.texts import document
from tests.linear import assert_linear

RECIPE = """
[filter.length]
num_chars = { min = 5 }

[[filter.rules]]
name = "casino"
reason = "advertises a casino"
pattern = '彩金|(?i)casino'
max = 1

[[filter.rules]]
name = "numbers"
reason = "mostly numbers"
expression = "digit_ratio / han_ratio > 1 or not (digit_ratio < 0.9)"
when = { num_lines = { max = 3 } }

[filter.lines]
num_lines = { max = 4 }
"""


def write(folder: Path, text: str) -> str:
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    return str(folder / "recipe.toml")


def own(body: str) -> str:
    return f'[[filter.rules]]\nname = "mine"\nreason = "why"\n{body}\n'


def test_they_measure_decide_and_are_told_in_the_recipes_order(tmp_path: Path) -> None:
    judge = load(write(tmp_path, RECIPE))
    assert [limit.name for limit in judge.limits] == [
        "length.num_chars.min", "rules.casino.max", "rules.numbers.max", "lines.num_lines.max",
    ]  # fmt: skip
    casino, digits = "送彩金彩金\n大CASINO\n彩\n金", "电1234567890"
    verdicts = judge.apply([casino, "送彩金彩金彩金", digits, digits + "\n电" * 3, document(1), "Latin only 12"])
    rows = verdicts.table.select(["rule", "value", "detail", "rules.casino", "rules.numbers"]).to_pylist()
    assert list(rows[0].values()) == ["rules.casino", 2.0, "advertises a casino", 2.0, 0.0]
    assert (rows[1]["rule"], rows[1]["rules.casino"]) == (None, 1.0)
    assert rows[2]["detail"] == "mostly numbers; where lines.num_lines <= 3" and rows[2]["rule"] == "rules.numbers"
    assert (rows[3]["rule"], rows[3]["rules.numbers"]) == (None, 1.0)  # four lines
    assert rows[4]["rule"] is None
    assert (rows[5]["rule"], rows[5]["rules.numbers"]) == (None, None)  # divided by zero: not measured
    assert verdicts.table.schema.equals(judge.schema) and judge.apply([]).table.schema.equals(judge.schema)
    sets = ["filter.rules.casino.max=2", "filter.rules.numbers=off"]
    other = load(write(tmp_path, RECIPE), sets)
    assert [verdict.rule for verdict in other.apply([casino, digits])] == [None, None]
    assert other.config.meaning() != judge.config.meaning()
    changed = load(write(tmp_path, RECIPE), ["filter.rules.casino.pattern=彩"])
    assert changed.rules == judge.rules and changed.config.meaning() != judge.config.meaning()
    assert pickle.loads(pickle.dumps(judge.config)).rules == judge.rules


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "give one of pattern"),
        ('pattern = "a"\nexpression = "num_chars > 3"', "give one of pattern"),
        ('pattern = "(a"', "no regular expression of RE2"),
        (r"pattern = '(a)\1'", "no regular expression of RE2"),
        ("pattern = '(?=a)'", "no regular expression of RE2"),
        (f'pattern = "{"(" * 9}a{"{99})" * 9}"', "no regular expression of RE2"),
        (f'pattern = "{"a" * 1001}"', "at most 1000"),
        ('expression = "num_chars / (2 - 2) > 1"', "divides by zero"),
        ('expression = "num_chars + 1"', "needs min, max"),
        ('expression = "1 < 2"', "names no statistic"),
        ('expression = "num_char > 1"', "mean num_chars"),
        ('expression = "rules.other > 1"', "rules.other is a rule"),
        ('expression = "rules.mine > 1"', "rules.mine is a rule"),
        ('expression = "num_chars > 1 > 0"', "takes numbers"),
        ('expression = "num_chars and num_lines > 2"', "takes comparisons"),
        ('expression = "num_chars > 1 num_lines"', "expected its end before num_lines"),
        ('expression = "min(num_chars) > 1"', "expected , before"),
        ('expression = "__import__(1) > 1"', "no such statistic"),
        ("expression = \"num_chars > '1'\"", "no part of one"),
        ('expression = "(num_chars > 1"', r"expected \) before its end"),
        ('expression = ""', "expected a number"),
        (f'expression = "{"(" * 40}num_chars{")" * 40} > 1"', "nested deeper than 32"),
        (f'expression = "{"not " * 40}num_chars > 1"', "nested deeper"),
        (f'expression = "{"1+" * 300}num_chars > 1"', "at most 200"),
        (f'expression = "{"1+" * 5000}num_chars > 1"', "at most 1000 characters"),
        ('expression = "num_chars > 1e999"', "no number that a float"),
        ('expression = "num_chars > 1__2"', "no number that a float"),
        ('expression = "num_chars > 1"\nmin = 2', "a comparison drops where it holds, without"),
        ('pattern = "a"\nmax = -1', "nothing could pass"),
        ("pattern = '\\p{Han}{900}x'", "counts more than 100"),
        ('pattern = "(.{0,30}){30}x"', "counts more than 100"),
        (f'expression = "{"a" * 900} > 1"', "a{9,250}[^a]*: no such statistic"),
        ('pattern = "a"\nwhen = { rules.mine = { max = 1 } }', "rules.mine is a rule"),
        ('entry_point = "wenhai_no_such"', "give --allow-code"),
    ],
)
def test_what_is_refused(tmp_path: Path, rule: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"filter.rules.(0|mine).*{words}"):
        load(write(tmp_path, own(rule)))


def test_names_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two are called mine"):
        load(write(tmp_path, own('pattern = "a"') * 2))


def test_the_longest_expression_is_computed(tmp_path: Path) -> None:
    text = "num_chars" + " + 1" * 98 + " > 0"
    assert parse(text).evaluate({"length.num_chars": np.array([1.0])}).tolist() == [1.0]


SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
leaves = st.sampled_from(["num_chars", "num_lines", "2", "0.5"])
numbers = st.recursive(leaves, lambda inner: st.tuples(inner, st.sampled_from([*SIGNS, "max"]), inner), max_leaves=6)
comparisons = st.tuples(numbers, st.sampled_from(["<", ">="]), numbers)
truths = st.recursive(
    comparisons,
    lambda inner: st.one_of(st.tuples(inner, st.sampled_from(["and", "or"]), inner), st.tuples(st.just("not"), inner)),
    max_leaves=5,
)
VALUES = {"num_chars": 3.0, "num_lines": math.nan}


def written(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    if len(tree) == 2:
        return f"not ({written(tree[1])})"
    left, sign, right = written(tree[0]), tree[1], written(tree[2])
    return f"max({left}, {right})" if sign == "max" else f"({left}) {sign}({right})"


def number(tree: Any) -> float:
    if isinstance(tree, str):
        return VALUES.get(tree) or float(tree)
    left, right = number(tree[0]), number(tree[2])
    if tree[1] == "max":
        return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)
    return float(SIGNS[tree[1]](left, right))


def truth(tree: Any) -> bool | None:
    """None: not known."""
    if len(tree) == 2:
        inner = truth(tree[1])
        return None if inner is None else not inner
    if tree[1] in ("and", "or"):
        both, decisive = [truth(tree[0]), truth(tree[2])], tree[1] == "or"
        return decisive if decisive in both else None if None in both else not decisive
    left, right = number(tree[0]), number(tree[2])
    if math.isnan(left) or math.isnan(right):
        return None
    return left < right if tree[1] == "<" else left >= right


@given(truths)
def test_expressions_mean_what_they_say_and_what_is_not_known_passes(tree: Any) -> None:
    assume("num" in written(tree))
    measured = {"length.num_chars": np.array([3.0]), "lines.num_lines": np.array([math.nan])}
    value = np.ravel(parse(written(tree)).evaluate(measured))[0]
    expected = truth(tree)
    assert math.isnan(value) if expected is None else value == expected


def test_what_binds_closer() -> None:
    measured = {"length.num_chars": np.array([3.0])}
    for text, expected in (
        ("num_chars - 1 - 1 == 1", 1), ("2 + num_chars * 2 == 8", 1), ("-num_chars + 4 == 1", 1),
        ("not num_chars < 2 and num_chars < 3", 0), ("num_chars == 3 or num_chars == 4 and num_chars == 5", 1),
        ("12 / num_chars / 2 == 2", 1), ("abs(-1_000 * num_chars) == 3e3", 1),
    ):  # fmt: skip
        assert parse(text).evaluate(measured).tolist() == [expected], text


def test_a_catastrophic_pattern_takes_linear_time(tmp_path: Path) -> None:
    judge = load(write(tmp_path, own(r"pattern = '(a+)+$|(a|aa)*z|(.*)(.*)(.*)y'")))
    (rule,) = judge.config.own

    def count(text: str) -> Any:
        from corpus.filters.statistic import Batch

        return rule.values(Batch(pa.array([text], pa.large_string()), judge.resources), {}, {})

    assert_linear(count, lambda size: "a" * size + "b", 1 << 18)
    assert_linear(count, lambda size: "a\n" * size, 1 << 17)
    assert count("a\nb\naaa").tolist() == [2.0]


FUNCTION = """
import numpy as np

def long(table):
    return np.array([len(text) > 20 for text in table["text"].to_pylist()])

def hosts(table):
    return np.array([float(len(url or "")) for url in table["url"].to_pylist()])

def raises(table):
    raise RuntimeError("电话13800138000")

def short(table):
    return np.zeros(len(table) - 1)

def words(table):
    return ["a"] * len(table)

def late(table):
    print("printed")
    if any(len(text) > 50 for text in table["text"].to_pylist()):
        raise RuntimeError("长")
    return np.zeros(len(table))

breaks = 3
"""
NAMES = ("long", "hosts", "raises", "short", "words", "breaks", "late")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution on the path with entry points of our group."""
    site = tmp_path / "site"
    (site / "our_rules-1.2.dist-info").mkdir(parents=True)
    (site / "our_rules-1.2.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: our-rules\nVersion: 1.2\n")
    lines = [f"{name} = our_rules_module:{name}" for name in (*NAMES, "missing")]
    (site / "our_rules-1.2.dist-info/entry_points.txt").write_text("\n".join(["[wenhai.filters]", *lines]))
    (site / "our_rules_module.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(__import__("sys").modules, "our_rules_module", raising=False)
    code.load_function.cache_clear()
    yield site
    code.load_function.cache_clear()


def with_code(folder: Path, body: str) -> Filter:
    return load(write(folder, own(body)), allow_code=True)


def test_an_installed_function_measures(tmp_path: Path, installed: Path) -> None:
    recipe = write(
        tmp_path, own('entry_point = "long"') + own('entry_point = "hosts"\nmax = 15').replace("mine", "url")
    )
    with pytest.raises(UsageError, match="give --allow-code"):
        load(recipe)
    judge = load(recipe, allow_code=True)
    table = pa.table({"text": ["短", document(1), "短"], "url": ["https://a.example/", "", None]})
    assert judge.apply(table).table["rule"].to_pylist() == ["rules.url", "rules.mine", None]
    assert judge.apply(["短"]).table["rules.url"].to_pylist() == [0.0]
    meaning = judge.config.meaning()
    assert meaning["code"]["long"].startswith("our-rules 1.2 ")
    code.load_function.cache_clear()
    (installed / "our_rules_module.py").write_text(FUNCTION + "# changed\n")
    assert load(recipe, allow_code=True).config.meaning() != meaning
    assert pickle.loads(pickle.dumps(judge.config)).load_code().keys() == {"long", "hosts"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raises raised RuntimeError: 电话<MOBILE>"),
        ("short", r"short returned float64\[1\] for 2 documents"),
        ("words", "words returned <U1"),
        ("breaks", "breaks raised TypeError"),
    ],
)
def test_a_function_that_fails_loses_no_document(tmp_path: Path, installed: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"filter.rules.mine: {words}"):
        with_code(tmp_path, f'entry_point = "{name}"')


def test_a_function_that_fails_later_stops_there_and_prints_nothing_among_the_data(
    tmp_path: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = with_code(tmp_path, 'entry_point = "late"')
    assert judge.apply(["一", "二"]).kept.tolist() == [True, True]
    with pytest.raises(WenhaiError, match="late raised RuntimeError: 长"):
        judge.apply(["一" * 100])
    assert capsys.readouterr().out == ""


def test_a_function_that_is_not_there(tmp_path: Path, installed: Path) -> None:
    for name, words in (("missing", "cannot be loaded"), ("other", "0 entry points.*installed: breaks, hosts")):
        with pytest.raises(UsageError, match=words):
            with_code(tmp_path, f'entry_point = "{name}"')

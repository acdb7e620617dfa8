"""Conditions: the first range whose condition holds judges, labelled statistics too, and what cannot be meant is
refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.errors import UsageError
from corpus.filters import STATISTICS, Rule, filter, load, measure, stage
from corpus.filters.decide import PASSES, first_failed, limits, read_rules
from corpus.filters.measure import stored
from corpus.filters.rules.conditions import Clause
from corpus.filters.statistic import Batch, Floats, Statistic
from corpus.report.html import write_report
from corpus.retune.command import retune
from tests.corpus.retune.conftest import run_filter
from tests.corpus.texts import document, write_records

LABELS = ("prose", "verse", "code")
LISTED = """
[filter.characters]
han_ratio = [
    { min = 0.02, when = { latin_ratio = { min = 0.4 } } },
    { when = { "length.num_chars" = { max = 200 }, script.kana_ratio = { max = 0.1 } } },
    { min = 0.5, max = 0.9 },
]
"""


def write(folder: Path, text: str) -> Path:
    (folder / "recipe.toml").write_text(text, encoding="utf-8")
    return folder / "recipe.toml"


def toy_genre(batch: Batch) -> Floats:
    """Verse where lines are short, code where there is a brace; of an empty text nothing is known."""
    texts = batch.texts.to_pylist()
    return np.array([np.nan if not text else 2.0 if "{" in text else float("\n" in text[:20]) for text in texts])


@pytest.fixture
def genre(monkeypatch: pytest.MonkeyPatch) -> str:
    """A labelled statistic in the place of `url.blocked`, in the tables of every module."""
    key = "url.blocked"
    monkeypatch.setitem(STATISTICS, key, Statistic("label", "A toy.", toy_genre, False, LABELS))
    names = ((filter, "VERDICT_SCHEMA"), (stage, "STATISTICS_SCHEMA"), (stage, "SAMPLES_SCHEMA"))
    for module, name in names:
        schema = getattr(module, name)
        monkeypatch.setattr(module, name, schema.set(schema.get_field_index(key), STATISTICS[key].field(key)))
    return key


def test_the_first_range_whose_condition_holds_judges(tmp_path: Path) -> None:
    rules = [rule for rule in load(write(tmp_path, LISTED)).rules if rule.key == "characters.han_ratio"]
    tried = limits(rules)
    assert [limit.name for limit in tried] == [f"characters.han_ratio.{name}" for name in ("0.min", "2.min", "2.max")]
    measured = {
        "characters.han_ratio": np.array([0.01, 0.03, 0.01, 0.01, 0.01, 0.95, np.nan]),
        "characters.latin_ratio": np.array([0.4, 0.5, 0.0, 0.0, np.nan, 0.0, 0.0]),
        "length.num_chars": np.array([900, 900, 100, 100, 900, 900, 900.0]),
        "script.kana_ratio": np.array([0, 0, 0, np.nan, 0, 0, 0.0]),
    }
    # below 0.02; above it; exempt; not known to be exempt; not known to be Latin; above 0.9; not measured
    assert first_failed(measured, tried, 7).tolist() == [0, PASSES, PASSES, 1, 1, 2, PASSES]


def test_verdicts_say_which_range_judged(tmp_path: Path) -> None:
    code = "def main():\n    return value + other_value_of_the_function\n" * 9
    verdicts = load(write(tmp_path, LISTED)).apply([code, document(1), "短", "a" * 150 + document(2), "かな" * 300])
    found = verdicts.table.select(["kept", "rule", "threshold", "bound", "detail"]).to_pylist()
    assert found[0] == {
        "kept": False, "rule": "characters.han_ratio", "threshold": 0.02, "bound": "min",
        "detail": "where characters.latin_ratio >= 0.4",
    }  # fmt: skip
    assert [row["kept"] for row in found[1:]] == [True, True, True, False]
    assert (found[4]["threshold"], found[4]["detail"]) == (0.5, None)


def test_a_condition_is_part_of_what_a_recipe_means_and_is_read_back(tmp_path: Path) -> None:
    judge = load(write(tmp_path, LISTED))
    assert read_rules(judge.config.meaning()["rules"]) == judge.rules
    assert {judge.config: 1}  # a key of caches
    other = load(write(tmp_path, LISTED), ["filter.characters.han_ratio.0.min=0.03"])
    assert other.limits[1].threshold == 0.03 and other.config.meaning() != judge.config.meaning()
    plain = load(write(tmp_path, "[filter.characters]\nhan_ratio = { min = 0.1 }"))
    assert plain.config.meaning()["rules"][-1] == ["characters.han_ratio", 0.1, None]


def test_an_extending_recipe_replaces_the_whole_list_or_drops_it(tmp_path: Path) -> None:
    write(tmp_path, LISTED).rename(tmp_path / "base.toml")
    head = 'extends = "base.toml"\n[filter.characters]\nhan_ratio = '
    (_, rule) = load(write(tmp_path, head + "{ min = 0.1, when = { num_lines = { max = 3 } } }")).rules
    assert rule == Rule(key="characters.han_ratio", min=0.1, max=None, when=(Clause(key="lines.num_lines", max=3),))
    assert [rule.key for rule in load(write(tmp_path, head + '"off"')).rules] == ["length.num_chars"]


def test_an_empty_document_passes_no_list(tmp_path: Path) -> None:
    for ranges in (
        "[{ when = { num_lines = { max = 3 } } }, { min = 9 }]",
        "{ min = 9, when = { num_han = { min = 1 } } }",
    ):
        judge = load(write(tmp_path, f"[filter.length]\nnum_chars = {ranges}"))
        assert [verdict.kept for verdict in judge.apply(["", "学而时习之，不亦说乎"])] == [False, True]


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ("{ min = 0.1, when = { num_line = { max = 3 } } }", "han_ratio.when: num_line: no such stat.*mean num_lines"),
        ("{ min = 0.1, when = { lines = { num_line = { max = 3 } } } }", "lines.num_line: no such"),
        ("{ min = 0.1, when = { rules.mine = { max = 3 } } }", "rules.mine is a rule"),
        ("{ min = 0.1, when = {} }", "a condition says what"),
        ("{ min = 0.1, when = { num_lines = 3 } }", "when: lines.num_lines takes a range"),
        ("{ min = 0.1, when = { num_lines = { mim = 3 } } }", "when: lines.num_lines: mim is not as it should be"),
        ("{ min = 0.1, when = { genre = { labels = ['verse'] } } }", "blocks.genre: labels is not as it should be"),
        ("{ min = 0.1, when = { num_lines = {} } }", "holds always"),
        ("{ min = 0.1, when = { num_lines = { min = true } } }", "lines.num_lines: min is not as it should be"),
        ("{ min = 0.1, when = { num_lines = { min = 5, max = 3 } } }", "min 5 is above max 3"),
        ("{ min = 0.1, when = { latin_ratio = { min = 20 } } }", "no value of it.*did you mean 0.2"),
        ("{ min = 0.1, when = { latin_ratio = { min = 0 } } }", "holds always"),
        ("{ min = 0.1, when = { num_lines = { max = 3 }, lines.num_lines = { min = 1 } } }", "asked for twice"),
        ("{ when = { num_lines = { max = 3 } } }", "han_ratio: judges nothing"),
        ("[]", "judges nothing"),
        (
            "[{ min = 0.1, when = { num_lines = { max = 3 } } }, { when = { num_lines = { min = 9 } } }]",
            "exempts from n",
        ),
        ("[" + "{ min = 0.1, when = { num_lines = { max = 3 } } }," * 40 + "]", "at most 32 items"),
        ("[{ when = { num_lines = { max = 3 } } }]", "judges nothing"),
        ("[{ min = 0.1 }]", "a list of one range"),
        ("[{ min = 0.1 }, { min = 0.2, when = { num_lines = { max = 3 } } }]", "range 1: never reached: range 0"),
        (
            "[{ min = 0.1, when = { num_lines = { max = 9 } } }, "
            "{ min = 0.2, when = { num_lines = { max = 3 }, latin_ratio = { min = 0.5 } } }]",
            "range 1: never reached",
        ),
        ("{ min = 0.1, when = { han_ratio = { min = 0.2 } } }", "never drops anything"),
        ("{ min = 0.1, when = { han_ratio = { max = 0.05 } } }", "drops every document"),
        ("[{ min = 0.1, when = { num_lines = { max = 9 } } }, { min = 3 }]", "range 1: min 3 is no value"),
        ("[{ mn = 0.1 }]", "han_ratio.0.mn: unknown key; did you mean min"),
        ("[3]", "han_ratio.0"),
        ("{ min = 0.1, when = { quality.score = { min = 0.5 } } }", "needs a model"),
        ("{ min = 0.1, when = { language_model_perplexity = { min = 5 } } }", "needs a model"),
    ],
)
def test_what_is_refused(tmp_path: Path, ranges: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)filter.*{words}"):
        load(write(tmp_path, f"[filter.characters]\nhan_ratio = {ranges}"))


def test_an_ambiguous_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATISTICS, "other.num_lines", STATISTICS["lines.num_lines"])
    with pytest.raises(UsageError, match=r"lines.num_lines and other.num_lines: write which"):
        load(write(tmp_path, "[filter.characters]\nhan_ratio = { min = 0.1, when = { num_lines = { max = 3 } } }"))


TEXTS = ["", "床前明月光\n疑是地上霜", "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？人不知而不愠", "if (a) { b(); }"]


def test_a_labelled_statistic_is_strings_in_tables_and_conditions(tmp_path: Path, genre: str) -> None:
    assert measure(genre, TEXTS[1:]).tolist() == ["verse", "prose", "code"]
    recipe = write(
        tmp_path,
        """
        [filter.length]
        num_chars = [
            { min = 10, when = { blocked = ["verse", "code"] } },
            { min = 20, when = { url.blocked = "prose" } },
        ]
        """,
    )
    judge = load(recipe)
    verdicts = judge.apply(TEXTS)
    assert verdicts.table[genre].to_pylist() == [None, "verse", "prose", "code"]
    assert verdicts.table["kept"].to_pylist() == [False, True, True, True]
    assert stored(verdicts.table, [genre])[genre].tolist()[1:] == [1.0, 0.0, 2.0]
    assert judge.limits[1].detail == "where url.blocked is verse or code"
    for wanted, words in (('"poem"', "never 'poem'"), ("[]", "takes a label"), ("{ min = 1 }", "takes a label")):
        with pytest.raises(UsageError, match=words):
            load(recipe, [f"filter.length.num_chars.0.when.blocked={wanted}"])
    with pytest.raises(UsageError, match="holds always"):
        load(recipe, [f"filter.length.num_chars.0.when.blocked={list(LABELS)}"])


def test_a_build_tells_and_retunes_by_label(tmp_path: Path, genre: str) -> None:
    texts = [*TEXTS[1:], "{" + document(1), "短诗一行\n" + document(2), document(3)]
    write_records(
        tmp_path / "in.jsonl", [{"url": f"https://a.example/{row}", "text": text} for row, text in enumerate(texts)]
    )
    recipe = write(
        tmp_path,
        """
        [filter.length]
        num_chars = [{ min = 100, when = { blocked = ["verse", "code"] } }, { min = 5 }]
        """,
    )
    run_filter(tmp_path, tmp_path / "out", str(recipe))
    page = Path(write_report(str(tmp_path / "out"))).read_text(encoding="utf-8")
    assert "<td><code>url.blocked</code></td><td>verse</td>" in page.replace("\n", "")
    sets = ["filter.length.num_chars.0.when={ blocked = 'code' }"]
    prediction, _ = retune(str(tmp_path / "out"), sets, [], None)
    again = run_filter(tmp_path, tmp_path / "again", str(recipe), sets)
    assert prediction.after.documents == again.counts.documents_out == prediction.before.documents + 1 == 5


numbers = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
bounds = st.tuples(numbers, numbers).filter(lambda pair: None in pair or pair[0] <= pair[1])
ranges = st.fixed_dictionaries({"range": bounds, "when": bounds})


@given(st.lists(ranges, min_size=1, max_size=4), st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5))
def test_it_decides_as_a_loop_over_documents_would(listed: list[dict[str, Any]], values: list[Any]) -> None:
    key, other = "characters.han_ratio", "quality.bigram_association"
    rules = []
    for place, one in enumerate(listed):
        low, high = one["when"]
        when = (Clause(key=other, min=low, max=high),) if (low, high) != (None, None) else ()
        rules.append(Rule(key=key, min=one["range"][0], max=one["range"][1], when=when, place=place))
    tried = limits(rules)
    columns = [
        np.array([np.nan if value is None else value for value in column]) for column in zip(*values, strict=True)
    ]
    found = first_failed(dict(zip((key, other), columns, strict=True)), tried, len(values))

    def judge(value: float | None, by: float | None) -> str | None:
        for place, one in enumerate(listed):
            low, high = one["when"]
            if (low is None or (by is not None and by >= low)) and (high is None or (by is not None and by <= high)):
                for bound, limit, sign in zip(("min", "max"), one["range"], (1, -1), strict=True):
                    if None not in (value, limit) and sign * value < sign * limit:
                        return f"{key}.{place}.{bound}"
                return None
        return None

    assert [tried[index].name if index != PASSES else None for index in found] == [judge(*pair) for pair in values]

"""Under conditions `retune` foretells a run to the document, and report, explain and ledger say which range judged."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.build import stages
from corpus.document import read_table
from corpus.engine.errors import UsageError
from corpus.engine.run import current, run_stages
from corpus.engine.stage import Folder
from corpus.engine.storage import fetch
from corpus.recipe import load_recipe
from corpus.report.distributions import measure
from corpus.report.html import write_report
from corpus.report.ledger import rules
from corpus.retune.command import retune
from corpus.sources.packing import find_sources
from tests.corpus.retune.conftest import RECIPE, run_filter
from tests.corpus.retune.test_retune import kept_characters

CONDITIONS = """
[filter.script]
kana_ratio = { max = 0.5 }

[filter.quality]
bigram_association = { min = -3.5, when = { num_lines = { min = 3 } } }
"""
OWN = """
[[filter.rules]]
name = "servers"
reason = "lines of numbers"
pattern = "^[0-9]+$"
max = 2
when = { num_chars = { min = 200 } }

[[filter.rules]]
name = "numbers"
reason = "numbers"
expression = "digit_ratio + script.kana_ratio > 0.08"
"""
LISTED = RECIPE.replace(
    "latin_ratio = { max = 0.20 }",
    "latin_ratio = [{ when = { num_lines = { max = 2 } } }, "
    '{ max = 0.04, when = { "length.num_chars" = { min = 500 }, lines.num_lines = { min = 3 } } }, { max = 0.1 }]',
)
CHANGES = [
    (["filter.characters.latin_ratio.1.max=0.15"], []),
    (["filter.characters.latin_ratio.max=0.3"], []),
    (["filter.characters.latin_ratio.1.when={ num_chars = { min = 300 } }"], ["filter.characters.latin_ratio.0"]),
    ([], ["filter.characters.latin_ratio.1.max", "filter.length.num_chars.min"]),
    ([], ["filter.characters.latin_ratio.0", "filter.characters.latin_ratio.0"]),
    (["filter.characters.latin_ratio={ max = 0.02, when = { num_lines = { min = 6 } } }"], []),
    (["filter.characters.latin_ratio=off", "filter.quality.bigram_association.when={ num_han = { min = 500 } }"], []),
    (
        ["filter.length.num_chars=[{ min = 400, when = { latin_ratio = { min = 0.1 } } }, { min = 20, max = 600 }]"],
        ["filter.quality.bigram_association.min"],
    ),
]
OWN_CHANGES = [
    (["filter.rules.servers.max=0"], ["filter.characters.latin_ratio"]),
    (
        ["filter.rules.servers.when={ num_lines = { min = 2 } }", "filter.rules.servers.max=0"],
        ["filter.rules.numbers.max"],
    ),
    (["filter.rules.numbers=off", "filter.rules.servers.min=1"], ["filter.rules.servers.max"]),
    ([], ["filter.rules.servers", "filter.length.num_chars.max"]),
]


@pytest.fixture(scope="module")
def listed(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder of a recipe with conditions, not to be changed."""
    folder = tmp_path_factory.mktemp("conditions")
    (folder / "listed.toml").write_text(LISTED + CONDITIONS, encoding="utf-8")
    run_filter(inputs, folder / "out", str(folder / "listed.toml"))
    return folder / "out"


@pytest.fixture(scope="module")
def own(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with rules of one's own."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "listed.toml").write_text(
        LISTED.replace("[filter.length]", OWN + "[filter.length]") + CONDITIONS, encoding="utf-8"
    )
    run_filter(inputs, folder / "out", str(folder / "listed.toml"))
    return folder / "out"


def by_rule(prediction: object, side: str) -> dict[str, int]:
    """Documents by the statistic that drops them."""
    counts: Counter[str] = Counter()
    for rule in prediction.rules:  # type: ignore[attr-defined]
        counts[rule.rule] += getattr(rule, f"dropped_{side}")
    return dict(+counts)


def foretell(listed: Path, inputs: Path, tmp_path: Path, sets: list[str], unsets: list[str]) -> None:
    target = tmp_path / "new.toml"
    prediction, thresholds = retune(str(listed), sets, unsets, str(target))
    again = run_filter(inputs, tmp_path / "out", str(target))
    assert load_recipe(str(target)).filter.rules == thresholds.after
    assert load_recipe(str(listed.parent / "listed.toml"), thresholds.overrides).filter.rules == thresholds.after
    assert prediction.after.documents == again.counts.documents_out
    assert prediction.after.text_bytes == again.counts.bytes_out
    assert prediction.after.characters == kept_characters(again)
    assert by_rule(prediction, "after") == again.counts.dropped
    assert by_rule(prediction, "before") == current(str(listed), "filter").counts.dropped
    assert prediction.kept_anew + prediction.dropped_anew > 0


@pytest.mark.parametrize(("sets", "unsets"), CHANGES)
def test_it_foretells_a_new_run_exactly(
    listed: Path, inputs: Path, tmp_path: Path, sets: list[str], unsets: list[str]
) -> None:
    foretell(listed, inputs, tmp_path, sets, unsets)


@pytest.mark.parametrize(("sets", "unsets"), OWN_CHANGES)
def test_it_foretells_one_with_rules_of_ones_own(
    own: Path, inputs: Path, tmp_path: Path, sets: list[str], unsets: list[str]
) -> None:
    foretell(own, inputs, tmp_path, sets, unsets)


def test_a_build_without_a_recipe_keeps_its_conditions(listed: Path, tmp_path: Path) -> None:
    expected, _ = retune(str(listed), *CHANGES[0], None)
    (listed / "recipe.json").rename(tmp_path / "recipe.json")
    try:
        assert retune(str(listed), *CHANGES[0], None)[0].after == expected.after
    finally:
        (tmp_path / "recipe.json").rename(listed / "recipe.json")


@pytest.mark.parametrize(
    ("sets", "unsets", "words"),
    [
        (["filter.characters.latin_ratio.3.max=0.1"], [], "a number below 3"),
        (["filter.characters.latin_ratio.1.when={ num_line = { min = 3 } }"], [], "mean num_lines"),
        (["filter.characters.latin_ratio.2.when={ num_lines = { max = 1 } }"], [], "range 2: never reached"),
        ([], ["filter.characters.latin_ratio.0.max"], "no such limit"),
        ([], ["filter.characters.latin_ratio.7"], "no such limit"),
        ([], ["filter.rules.servers.min"], "no such limit"),
        (["filter.rules.none.max=3"], [], "no statistic has this name"),
        (["filter.rules.servers.pattern=a"], [], "no statistic has this name"),
    ],
)
def test_what_it_refuses(own: Path, sets: list[str], unsets: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        retune(str(own), sets, unsets, None)


def test_ledger_and_explain_say_which_range_judged(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    where = "rule = 'characters.latin_ratio'"
    assert main(["ledger", str(listed), "--where", where, "--columns", "shard,row,detail", "--format", "csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.replace('"', "").splitlines()[1:]]
    details = {detail for _, _, detail in rows}
    assert details == {"", "where length.num_chars >= 500 and lines.num_lines >= 3"}
    shard, row, detail = next(one for one in rows if one[2])
    assert main(["explain", str(listed), f"{shard}:{row}"]) == 0
    shown = capsys.readouterr().out
    assert f"> max 0.04 {detail}" in shown  # the verdict
    assert f"max 0.04 {detail}" in shown.partition("measured")[2]
    shard, row, _ = next(one for one in rows if not one[2])
    assert main(["explain", str(listed), f"{shard}:{row}"]) == 0
    assert "> max 0.1\n" in capsys.readouterr().out


def test_the_report_has_a_slider_for_each_range_over_its_documents(listed: Path) -> None:
    page = Path(write_report(str(listed))).read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    names = [one["name"] for one in data["statistics"]]
    assert "characters.latin_ratio" not in names and "characters.latin_ratio.0" not in names
    one, two = (data["statistics"][names.index(f"characters.latin_ratio.{place}")] for place in (1, 2))
    assert one["grid"][one["max"]] == 0.04 and two["grid"][two["max"]] == 0.1
    assert "where length.num_chars &gt;= 500 and lines.num_lines &gt;= 3" in page
    # what one slider would keep is what retune says
    for chart, place in ((one, 1), (two, 2)):
        value = chart["grid"][1]
        prediction, _ = retune(str(listed), [f"filter.characters.latin_ratio.{place}.max={value}"], [], None)
        change = -sum(chart["up_to"][2 : chart["max"] + 1])
        assert prediction.after.documents - data["kept"] == change < 0 and data["kept"] == prediction.before.documents
    folder = Folder.open(str(next(listed.glob("filter-*"))))
    assert data["kept"] == folder.counts.documents_out


def test_rules_of_ones_own_are_told_with_their_reasons(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(write_report(str(own))).read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert {"rules.servers", "rules.numbers"} <= {one["name"] for one in data["statistics"]}
    assert "lines of numbers; where length.num_chars &gt;= 200" in page
    rows = [
        row for file in current(str(own), "filter").files("fates") for row in read_table(fetch(file.url)).to_pylist()
    ]
    (first, *_) = (row for row in rows if row["rule"] == "rules.servers")
    assert first["detail"] == "lines of numbers; where length.num_chars >= 200" and first["value"] > 2
    assert main(["explain", str(own), f"{first['shard']}:{first['row']}"]) == 0
    assert f"dropped by rules.servers: {first['value']:.0f} > max 2 ({first['detail']})" in capsys.readouterr().out


def test_samples_of_a_range_are_documents_that_it_judges(listed: Path) -> None:
    files = current(str(listed), "filter").files("samples")
    rows = [row for file in files for row in read_table(fetch(file.url)).to_pylist()]
    chosen = [row for row in rows if "characters.latin_ratio.1.max" in row["chosen_for"]]
    assert {row["failed"] for row in chosen} == {"characters.latin_ratio.1.max", None}
    assert all(row["length.num_chars"] >= 500 and row["lines.num_lines"] >= 3 for row in chosen)


def test_a_source_with_rules_of_its_own_measures_no_others(inputs: Path, tmp_path: Path) -> None:
    sources = "".join(f'[[sources]]\npath = "{inputs}/{part}.jsonl"\nname = "{part}"\n' for part in (0, 1))
    theirs = 'filter = { rules = [{ name = "mail", reason = "mail", pattern = "邮箱" }] }\n'
    (tmp_path / "two.toml").write_text(sources + theirs + OWN + "[filter.length]\nnum_chars = { min = 9 }\n")
    recipe = load_recipe(str(tmp_path / "two.toml"))
    run_stages(stages(recipe, find_sources(recipe.sources, []))[:2], str(tmp_path / "out"), workers=0)
    folder = current(str(tmp_path / "out"), "filter")
    first, second = (read_table(fetch(file.url)) for file in folder.files("statistics"))
    own = [[name for name in table.column_names if name.startswith("rules.")] for table in (first, second)]
    assert own == [["rules.mail"], ["rules.servers", "rules.numbers"]] or own[::-1] == [["rules.mail"], own[0]]
    assert folder.counts.dropped["rules.mail"] and folder.counts.dropped["rules.servers"]
    assert {limit.name for tried in rules(folder).values() for limit in tried} >= {
        "rules.mail.max",
        "rules.servers.max",
    }
    assert measure(folder.files("statistics"), rules(folder)).kept == folder.counts.documents_out


def test_a_rule_that_a_source_gains_changes_its_files_alone(inputs: Path, tmp_path: Path) -> None:
    def run(out: str, own: str, parts: tuple[int, ...] = (0, 1)) -> Path:
        named = {part: f'[[sources]]\npath = "{inputs}/{part}.jsonl"\nname = "{part}"\n' for part in parts}
        tables = "".join(table + own * (part == 1) for part, table in named.items())
        (tmp_path / "two.toml").write_text(tables + "[filter.length]\nnum_chars = { min = 9 }\n[dedup]\n")
        assert main(["run", "--recipe", str(tmp_path / "two.toml"), "--out", str(tmp_path / out)]) == 0
        return Path(current(str(tmp_path / out), "filter").url)

    rule = 'filter = { rules = [{ name = "mail", reason = "mail", pattern = "邮箱" }] }\n'
    run("grown", "")
    grown, fresh, turned = run("grown", rule), run("fresh", rule), run("turned", rule, (1, 0))
    assert grown.name == fresh.name == turned.name
    for file in fresh.rglob("*.parquet"):
        other = file.relative_to(fresh)
        assert file.read_bytes() == (grown / other).read_bytes() == (turned / other).read_bytes()


def test_a_rule_of_ones_own_is_taken_out_of_a_run(inputs: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "own.toml"
    recipe.write_text(RECIPE + OWN)
    arguments = ["--recipe", str(recipe), "--input", f"{inputs}/*.jsonl", "--out", str(tmp_path / "out")]
    for name, other in (("servers", "numbers"), ("numbers", "servers")):
        assert main(["run", *arguments, "--set", f"filter.rules.{name}=off"]) == 0
        prediction, _ = retune(str(tmp_path / "out"), [f"filter.rules.{other}=off"], [], None)
        assert f"rules.{other}" in {change.rule for change in prediction.rules}
        with pytest.raises(UsageError, match="measures another thing then"):
            retune(str(tmp_path / "out"), [f'filter.rules.{other}={{ name = "{other}", pattern = "x" }}'], [], None)


def test_places_are_those_before_anything_is_taken_out(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "listed.toml").write_text(LISTED)
    run_filter(inputs, tmp_path / "out", str(tmp_path / "listed.toml"))
    key = "filter.characters.latin_ratio"
    found = [
        retune(str(tmp_path / "out"), [], [f"{key}.{place}" for place in places], None)[0] for places in ("01", "10")
    ]
    assert found[0].after == found[1].after
    assert [change.limits_after for change in found[0].rules if change.rule.endswith("latin_ratio")][-1] == {"max": 0.1}

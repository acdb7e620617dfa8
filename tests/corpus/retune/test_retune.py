"""`retune` foretells what a new run does, to the document, and refuses what only a new run can answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from corpus.__main__ import main
from corpus.document import read_table, write_table
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.run import current
from corpus.engine.stage import Folder
from corpus.engine.storage import fetch
from corpus.recipe import load_recipe
from corpus.retune import predict, read_thresholds
from corpus.retune.command import retune
from tests.corpus.retune.conftest import MAIL, MOBILE, run_filter

CHANGES = [
    (["filter.length.num_chars.min=60"], []),
    (["filter.length.num_chars.min=400", "filter.characters.latin_ratio.max=0.01"], []),
    (["filter.characters.digit_ratio.max=0.001"], ["filter.length.num_chars.max"]),
    (["filter.script.kana_ratio.max=0.2", "filter.lines.num_lines.max=4"], ["filter.lines.duplicate_line_char_ratio"]),
    (["filter.length.num_chars=off", "filter.repetition.top_2_gram_ratio={ max = 0.05 }"], []),
    ([], ["filter.length.num_chars", "filter.characters.latin_ratio.max", "filter.repetition.top_2_gram_ratio"]),
]


def kept_characters(folder: Folder) -> int:
    total = 0
    for file in folder.files("statistics"):
        table = read_table(fetch(file.url), ["kept", "length.num_chars"])
        total += int(pc.sum(table.filter(table["kept"])["length.num_chars"]).as_py() or 0)
    return total


@pytest.mark.parametrize(("sets", "unsets"), CHANGES)
def test_it_foretells_a_new_run_exactly(
    built: Path, inputs: Path, tmp_path: Path, sets: list[str], unsets: list[str]
) -> None:
    target = tmp_path / "new.toml"
    prediction, thresholds = retune(str(built), sets, unsets, str(target))
    assert load_recipe(str(target)).filter.rules == thresholds.after
    again = run_filter(inputs, tmp_path / "out", str(target))
    counts = again.counts
    assert prediction.measured == counts.documents_in == 240
    assert (prediction.after.documents, prediction.after.text_bytes) == (counts.documents_out, counts.bytes_out)
    assert prediction.after.characters == kept_characters(again)
    assert {rule.rule: rule.dropped_after for rule in prediction.rules if rule.dropped_after} == counts.dropped
    old = current(str(built), "filter").counts
    assert {rule.rule: rule.dropped_before for rule in prediction.rules if rule.dropped_before} == old.dropped
    assert prediction.before.documents == old.documents_out
    assert prediction.after.documents - prediction.before.documents == prediction.kept_anew - prediction.dropped_anew
    assert prediction.kept_anew + prediction.dropped_anew > 0
    # the --set values that `next` shows mean the same rules
    assert load_recipe(str(inputs / "small.toml"), thresholds.overrides).filter.rules == thresholds.after


def test_examples_change_their_fate_and_are_masked(built: Path) -> None:
    prediction, _ = retune(
        str(built), ["filter.length.num_chars.min=60", "filter.characters.digit_ratio.max=0.05"], [], None
    )
    assert len(prediction.examples_kept) == 10 and len(prediction.examples_dropped) == 10
    assert all(one.limit.name == "length.num_chars.min" and 60 <= one.value < 150 for one in prediction.examples_kept)
    assert all(
        one.limit.name == "characters.digit_ratio.max" and one.value > 0.05 for one in prediction.examples_dropped
    )
    assert all(one.id and one.url for one in prediction.examples_kept)
    shown = json.dumps(prediction.as_json(), ensure_ascii=False)
    assert MOBILE not in shown and MAIL not in shown and "手机=" not in shown


def test_the_written_recipe_keeps_its_comments_and_is_never_overwritten(built: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.toml"
    retune(str(built), ["filter.length.num_chars.min=60", "filter.script.kana_ratio.max=0.5"], [], str(target))
    text = target.read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("num_chars = {min = 60, max = 900} "))
    assert line.endswith(" # short and long ones go")
    assert text.startswith("# 只是一个例子") and "[filter.script]\nkana_ratio = {max = 0.5}" in text
    with pytest.raises(UsageError, match="exists already"):
        retune(str(built), ["filter.length.num_chars.min=61"], [], str(target))
    assert target.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("sets", "unsets", "words"),
    [
        (["dedup.threshold=0.7"], [], "not a range of the filter.*--set dedup.threshold=0.7"),
        (["filter.edit.boilerplate_lines=false"], [], "changes the texts or what is measured"),
        (["filter.blocklist.lists=[]"], [], "only a new run can"),
        (["filter.length.num_char.min=5"], [], "did you mean filter.length.num_chars"),
        (["filter.length.num_chars.min=many"], [], "length.num_chars.min: Input should be a valid number"),
        (["filter.length.num_chars.min=901"], [], "min 901 is above max 900"),
        (["filter.length.num_chars.min"], [], "expected KEY=VALUE"),
        ([], ["filter.lines.num_lines"], "no such limit"),
        ([], ["filter.characters.latin_ratio.min"], "no such limit"),
        ([], [], "at least one"),
    ],
)
def test_what_it_refuses(built: Path, sets: list[str], unsets: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        retune(str(built), sets, unsets, None)


def test_a_statistic_that_was_not_measured_is_refused(built: Path, tmp_path: Path) -> None:
    """All NaN means not measured, for example the score of a model that the recipe does not name."""
    out = Path(shutil.copytree(built, tmp_path / "out"))
    folder = current(str(out), "filter")
    for file in folder.files("statistics"):
        table = read_table(fetch(file.url))
        index = table.schema.get_field_index("lines.num_lines")
        write_table(
            fetch(file.url), table.set_column(index, table.schema.field(index), pa.array(np.full(len(table), np.nan)))
        )
    thresholds = read_thresholds(str(out), folder, ["filter.lines.num_lines.max=4"], [])
    with pytest.raises(UsageError, match=r"did not measure lines\.num_lines"):
        predict(folder, thresholds)
    predict(folder, read_thresholds(str(out), folder, ["filter.length.num_chars.min=4"], []))  # others still can


def test_a_build_without_a_recipe_can_be_retuned_but_not_written(built: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(built, tmp_path / "out"))
    (out / "recipe.json").unlink()
    expected, _ = retune(str(built), ["filter.length.num_chars.min=60"], [], None)
    prediction, thresholds = retune(str(out), ["filter.length.num_chars.min=60"], [], None)
    assert prediction.after == expected.after and thresholds.recorded is None
    with pytest.raises(UsageError, match="keeps no recipe"):
        retune(str(out), ["filter.length.num_chars.min=60"], [], str(tmp_path / "x.toml"))


@pytest.mark.parametrize(
    "change",
    [{"values": "a = "}, {"values": "a = " + "[" * 5000}, {"base": 3}, {"overrides": 5}, {"name": None}],
    ids=["cut", "deep", "type", "overrides", "missing"],
)
def test_a_damaged_record_is_named(built: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    out = Path(shutil.copytree(built, tmp_path / "out"))
    record = json.loads((out / "recipe.json").read_text(encoding="utf-8"))
    (out / "recipe.json").write_text(json.dumps(record | change), encoding="utf-8")
    with pytest.raises(WenhaiError, match=r"recipe\.json: damaged .* Remove it"):
        retune(str(out), ["filter.length.num_chars.min=60"], [], None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 1}, "made by version 1 of the filter"),
        ({"config": None}, "its rules cannot be read"),
        ({"config": {"rules": 3}}, "its rules cannot be read"),
    ],
)
def test_a_build_of_another_version_is_named(built: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    out = Path(shutil.copytree(built, tmp_path / "out"))
    path = next(out.glob("filter-*")) / "stage.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(WenhaiError, match=message):
        retune(str(out), ["filter.length.num_chars.min=60"], [], None)


def test_the_command_says_what_to_do_next(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retune", str(built), "--set", "filter.length.num_chars.min=60"]) == 0
    text = capsys.readouterr().out
    assert "min 150, max 900 -> min 60, max 900" in text
    assert f"retune {built} --set filter.length.num_chars.min=60 --write my.toml" in text
    assert main(["retune", str(built), "--unset", "filter.length.num_chars", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["set"] == ["filter.length.num_chars={min = 1}"]
    assert value["kept_anew"] == value["after"]["documents"] - value["before"]["documents"] > 0

"""Which stages a recipe has, and what becomes of those that it no longer has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpus import build
from corpus.__main__ import main
from corpus.build import OPTIONAL_STAGES, stages
from corpus.engine.run import read_run
from corpus.engine.stage import Stage
from corpus.recipe import load_recipe
from corpus.report.status import status
from tests.corpus.texts import document, write_records
from tokenizer.__main__ import main as tokenizer

OPTIONS = [
    "dedup.contamination.files=['items.jsonl']",
    "dedup.repeated_lines={}",
    "dedup.substrings={}",
    "mixture.sources.web=2",
]

NONE = [f"dedup.{name}=off" for name in ("contamination", "repeated_lines", "substrings")]  # web_zh has them


def names(*overrides: str) -> list[str]:
    return [stage.name for stage in stages(load_recipe("web_zh", list(overrides)), ())]


def test_the_optional_stages_are_those_that_some_recipe_has_and_the_plain_one_has_not() -> None:
    plain, full = names(*NONE), names(*OPTIONS)
    assert set(full) - set(plain) == set(OPTIONAL_STAGES)
    assert set(plain) < set(full) and len(set(full)) == len(full)
    known = {
        value.name
        for value in vars(build).values()
        if isinstance(value, type) and issubclass(value, Stage) and value is not Stage
    }
    assert known == set(full)  # no recipe knows of more: one would have to import them there


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = ({"text": document(seed), "url": f"https://example.org/{seed}", "source": "web"} for seed in range(30))
    write_records(tmp_path / "in" / "web.jsonl", records)
    write_records(tmp_path / "items.jsonl", [{"text": document(3)[:80]}])
    return tmp_path


def run(folder: Path, *overrides: str) -> dict[str, Any]:
    """One run with the stages of this recipe; returns what is current then."""
    options = [word for override in overrides for word in ("--set", override)]
    files = ["--input", str(folder / "in"), "--out", str(folder / "out"), "--workers", "0", "--quiet"]
    assert main(["run", "--recipe", str(recipe(folder)), *files, *options]) == 0
    current: dict[str, Any] = read_run(str(folder / "out"))["stages"]
    return current


def recipe(folder: Path, more: str = "") -> Path:
    path = folder / f"recipe{len(more)}.toml"
    path.write_text(f'extends = "web_zh"\n{more}\n[tokenizer]\nvocab_size = 600\nnum_threads = 1\n')
    return path


@pytest.mark.long
def test_stages_that_are_taken_out_of_the_recipe_are_no_longer_current(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run(folder, "dedup.contamination=off")  # web_zh has it
    mixed = run(folder, f"dedup.contamination.files=['{folder}/items.jsonl']", "mixture.sources.web=2")
    assert {"contamination", "mixture_totals", "mixture"} == mixed.keys() - plain.keys()
    with_mixture = recipe(folder, "[mixture]\nsources = { web = 2 }\n")
    encode = ["run", "--recipe", str(with_mixture), "--out", str(folder / "out"), "--workers", "0", "--quiet"]
    assert tokenizer(encode) == 0
    encoded = read_run(str(folder / "out"))["stages"]
    assert encoded["tokens"]["upstream"].keys() >= {"mixture"}

    clean = run(
        folder, f"dedup.contamination.files=['{folder}/items.jsonl']"
    )  # the text is the same, its copies are not
    assert clean.keys() == encoded.keys() - {"mixture_totals", "mixture", "tokens"}
    assert run(folder, "dedup.contamination=off") == plain
    states = {one.stage: one.state for one in status(str(folder / "out")) if one.stage in ("contamination", "tokens")}
    assert states == {"contamination": "unreferenced", "tokens": "unreferenced"}
    capsys.readouterr()
    assert main(["mixture", str(folder / "out")]) == 1
    assert "has no mixture" in capsys.readouterr().err
    assert "contamination" not in (folder / "out" / "report.md").read_text().lower()

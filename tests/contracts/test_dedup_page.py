"""docs/dedup.md: its crawls are built as it says, its recipe is mixed, and what it says of the defaults is so."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from corpus.__main__ import main
from corpus.dedup import DedupConfig
from corpus.dedup.config import ContaminationConfig, EvaluationSet
from corpus.dedup.records import RECORD_DTYPE
from corpus.dedup.text.keys import KEY_DTYPE
from corpus.engine.config import parse
from tests.contracts.test_readme import blocks, commands
from tests.corpus.texts import document

PAGE = "docs/dedup.md"
ROOT = Path(__file__).resolve().parents[2]
AGAIN = "https://crawl.example/again"
BUILDS = [line for line in commands(PAGE) if "-m corpus run" in line]
NEEDED = ("run.json", "signatures-", "clusters-")  # of an earlier build, the page says


def run(command: str, *more: str) -> int:
    """A command of the page, in this process."""
    words = shlex.split(command)
    assert words[:3] == [".venv/bin/python", "-m", "corpus"]
    return main([*words[3:], *more, *(["--workers", "0", "--quiet"] if words[3] == "run" else [])])


def write(folder: str, pages: dict[str, str], source: str) -> None:
    Path(folder).mkdir()
    rows = [{"text": text, "url": url, "source": source} for url, text in pages.items()]
    Path(folder, "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The crawls of three years; the second and third have a page of the first with a word changed."""
    place: Path = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for year in (2025, 2026, 2027):
            pages = {f"https://crawl.example/{year}/{number}": document(10 * year + number, 30) for number in range(4)}
            if year > 2025:
                pages[AGAIN] = document(20250, 30).replace("前后", "总共", 1)
            write(str(year), pages, "wiki-zh" if year == 2025 else "forum")
        assert [run(command) for command in BUILDS] == [0, 0]
    return place


def test_a_new_crawl_falls_to_the_earlier_build(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    [explain] = [line for line in commands(PAGE) if "-m corpus explain" in line]
    assert run(explain.replace("URL", AGAIN)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "near duplicate" in last and "https://crawl.example/2025/0" in last and last.endswith("build/2025")
    assert "a build of all documents together" in Path("build/2026/report.md").read_text()


def test_a_third_build_needs_of_the_others_what_the_page_says(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [listed] = re.findall(r"`(dedup\.earlier=\[[^`]*, [^`]*\])`", (ROOT / PAGE).read_text())
    shutil.copytree(place, place / "less", ignore=shutil.ignore_patterns("less"))
    monkeypatch.chdir(place / "less")
    for path in Path("build").glob("*/*"):
        if not path.name.startswith(NEEDED):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run(f"{BUILDS[0].replace('2025', '2027')} --set {shlex.quote(listed)}") == 0
    assert "| `dedup.near` | max 0.75 | 1 |" in re.sub(r"\| text \|", "|", Path("build/2027/report.md").read_text())


def test_the_recipe_is_mixed(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)
    ranks, items, section = blocks(PAGE, "toml")
    assert parse(DedupConfig, tomllib.loads(ranks)["dedup"], PAGE).prefer_sources == ("paper", "wiki*")
    assert parse(DedupConfig, tomllib.loads(items)["dedup"], PAGE).contamination == ContaminationConfig(
        files=("eval/*/test.jsonl", "exam.txt"), sets=get_args(EvaluationSet)
    )
    Path("mixed.toml").write_text('extends = "web_zh"\n' + section)
    inputs = "--input '202[56]/*.jsonl' --set 'dedup.keep=\"all_with_size\"'"
    assert run(f".venv/bin/python -m corpus run --recipe mixed.toml {inputs} --out build/mixed") == 0
    assert run(".venv/bin/python -m corpus mixture build/mixed", "--json") == 0
    groups = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert groups["wiki-zh"]["copies"] == 3 * 3 + 3 * 2  # three pages alone, one of a cluster of two
    assert groups["2 to 5"]["documents"] == 2 and groups["below 2"]["documents"] == 7


def test_the_defaults_are_those_told() -> None:
    config = DedupConfig()
    table = dict(re.findall(r"^\| `(\w+)` \| `?([\w.]+)`? \| [A-Za-z]", (ROOT / PAGE).read_text(), re.MULTILINE))
    assert table == {name: str(getattr(config, name)) for name in table} and len(table) == 5
    a_document = KEY_DTYPE.itemsize + 4 * config.num_permutations + RECORD_DTYPE.itemsize * (config.bands + 1)
    assert f": {a_document} bytes." in (ROOT / PAGE).read_text()

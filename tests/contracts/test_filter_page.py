"""docs/filter.md: its commands are run as they stand, in a folder that has what they name."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpus.__main__ import main
from corpus.filters import load
from tests.contracts.test_readme import blocks, commands
from tests.corpus.texts import document

PAGE = "docs/filter.md"
PEER = "build/peers/datatrove/bin/python"  # `python -m tools.bench filters --peers` makes it
ROWS = 8  # every second one is too short


@pytest.fixture(scope="module")
def place(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inputs, lists and recipes that the page names, and our interpreter as .venv."""
    folder = tmp_path_factory.mktemp("page")
    rows = [{"text": document(row) if row % 2 else "短", "page": row} for row in range(ROWS)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "in.jsonl").write_text(lines)
    (folder / "in.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    for name in ("data", "lines"):
        (folder / name).mkdir()
    (folder / "lines/a.jsonl").write_text(lines)
    pq.write_table(pa.Table.from_pylist(rows), folder / "data/a.parquet")
    for recipe in blocks(PAGE, "toml"):
        (folder / recipe.split()[1]).write_text(recipe)  # its first line is its name
    for name, entry in {"my_words": "某某网址", "bad_hosts": "bad.example", "bad_paths": "bet"}.items():
        (folder / f"{name}.txt").write_text(entry + "\n")
    for name, seeds in {"good": range(80), "bad": range(1, 81)}.items():
        texts = [document(seed) if name == "good" else "加微信送彩金，" * seed for seed in seeds]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / ".venv/bin").mkdir(parents=True)
    script = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(repository))} exec {shlex.quote(sys.executable)} "$@"\n'
    (folder / ".venv/bin/python").write_text(script)
    (folder / ".venv/bin/python").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def made(place: Path) -> Path:
    """The folder after the page's builds and trainings, in the page's order."""
    pytest.importorskip("sklearn")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for command in (line for line in commands(PAGE) if re.search("-m corpus (run|retune|quality)", line)):
            words = shlex.split(command)[3:]
            assert main([*words, *(["--workers", "0", "--quiet"] if words[0] == "run" else [])]) == 0, command
    return place


def test_what_the_page_makes(made: Path) -> None:
    for name in ("build/sample/report.html", "tuned.toml", "quality.model"):
        assert (made / name).exists()


def test_the_lists_and_policies_are_those_described(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    judge = load("lists.toml")
    card, plate = "身份证号11010519491231002X。", "车牌京A12345。"
    urls = ["https://a.example/", "https://www.bad.example/", "https://a.example/bet365", "https://a.example/", None]
    texts = [document(1), document(2), document(3), document(4) + card, document(5) + plate]
    verdicts = judge.apply(pa.table({"text": texts, "url": urls}))
    assert verdicts.table["rule"].to_pylist() == [None, "url.blocked", "url.blocked", "personal.id_card", None]
    assert "京A12345" in verdicts.table["text"][4].as_py()
    assert judge.apply(["某某网址：" + document(6)]).table["blocklist.blocklist_words"].to_pylist() == [1]


def test_the_conditions_and_the_rules_of_ones_own_judge(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    code = "\n".join(f"result_{line} = compute(values, {line})" for line in range(30))
    ended = load("conditions.toml").apply([code, "a" * 500]).table
    assert ended["detail"][0].as_py() == "where characters.latin_ratio >= 0.4 and lines.num_lines >= 20"
    assert (ended["threshold"].to_pylist(), ended["detail"][1].as_py()) == ([0.02, 0.08], None)
    numbers = "\n".join(str(pow(7, power, 10**40)) for power in range(80, 85))
    texts = [document(1, 40) + "\n送彩金" * 3, f"{document(2)}\n{numbers}", document(3)]
    rows = load("rules.toml").apply(texts).table.select(["rule", "detail"]).to_pylist()
    assert [row["rule"] for row in rows] == ["rules.casino", "rules.numbers", None]
    assert rows[1]["detail"] == "mostly numbers; where length.num_chars >= 200"


@pytest.mark.long
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", [line for line in commands(PAGE) if "-m corpus filter" in line])
def test_the_command_does_what_it_says(place: Path, command: str) -> None:
    if "zstdcat" in command and not shutil.which("zstdcat"):
        pytest.skip("no zstdcat here")
    done = subprocess.run(["bash", "-c", command], cwd=place, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    if "--input" in command:
        out = place / command.split("--out ")[1].split()[0]
        assert pq.read_table(out / "a.parquet")["page"].to_pylist() == [1, 3, 5, 7]
    else:
        written = place / command.split("> ")[1].split()[0]
        expected = list(range(ROWS)) if "--pii-only" in command else [1, 3, 5, 7]
        assert [json.loads(line)["page"] for line in written.read_text().splitlines()] == expected


@pytest.mark.slow
def test_the_other_tools_answer(repository: Path) -> None:
    for command in commands(PAGE):
        if "-m tools." in command:
            words = [sys.executable, *shlex.split(command)[1:3], "--help"]
            subprocess.run(words, cwd=repository, capture_output=True, timeout=250, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["datasets", "datatrove"])
def test_the_code_for_other_libraries_runs(repository: Path, place: Path, number: int) -> None:
    python = repository / PEER
    if not python.exists():
        pytest.skip("no peers here: `python -m tools.bench filters --peers` installs them")
    shutil.rmtree(place / "kept", ignore_errors=True)
    shutil.rmtree(place / "dropped", ignore_errors=True)
    (place / "code.py").write_text(blocks(PAGE, "py")[number])
    environment = os.environ | {"PYTHONPATH": str(repository), "HF_HOME": str(place / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(python), "code.py"], cwd=place, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    if number == 0:
        kept = [json.loads(line)["page"] for line in (place / "kept.jsonl").read_text().splitlines()]
    else:
        command = ["bash", "-c", "zcat kept/*.gz"]
        lines = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout.splitlines()
        kept = [json.loads(line)["metadata"]["page"] for line in lines]
    assert kept == [1, 3, 5, 7]

"""CONTRIBUTING.md: each of its six changes touches at most three places, and works as the page has it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"^## To add (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PLACE = re.compile(r"^\d\. (`[^\n]*)\n\n?((?:```\w+\n.*?^```\n\n?)*)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def apply(place: str, blocks: list[str], root: Path) -> None:
    """Do what a place of the page says: a new file, or each block at the end or behind the line that it names."""
    path = root / place.split("`")[1]
    if not blocks:
        assert path.is_file(), place  # a page to write, by hand
        return
    if "a new file" in place:
        assert not path.exists()
        path.write_text(blocks[0])
        return
    text = path.read_text()
    path.unlink()  # it may be a link
    anchors = re.findall(r"(?:after|'s) `([^`]+)`", place)
    if "at the end" in place:
        text, blocks = f"{text}\n\n{blocks[-1]}", blocks[:-1]
    anchors = [anchor for anchor in anchors if not anchor.startswith("def ")]
    for anchor, block in zip(anchors, blocks, strict=True):
        assert text.count(f"\n{anchor}") == 1, f"{place}: {anchor}"
        before, line, after = text.partition(f"\n{anchor}")
        rest, _, after = after.partition("\n")
        text = f"{before}{line}{rest}\n{block}{after}"
    path.write_text(text)


@pytest.mark.long
@pytest.mark.parametrize("walk", WALKS)
def test_a_change_works_as_the_page_has_it(walk: str, repository: Path, tmp_path: Path) -> None:
    for package in ("corpus", "tokenizer", "pretrain", "tests", "docs"):
        shutil.copytree(
            repository / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__"),
            copy_function=os.link,
        )
    change, check = WALKS[walk].split("\nCheck")
    places = PLACE.findall(change)
    assert 1 <= len(places) <= 3
    assert len(BLOCK.findall(change)) == sum(len(BLOCK.findall(blocks)) for _, blocks in places)
    for place, blocks in places:
        apply(place, BLOCK.findall(blocks), tmp_path)
    (code,) = BLOCK.findall(check)
    (tmp_path / "check.py").write_text(f"if __name__ == '__main__':\n    {code.replace(chr(10), chr(10) + '    ')}")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "check.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_six_changes() -> None:
    assert len(WALKS) == 6

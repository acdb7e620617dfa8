"""docs/api.md: every name it lists can be imported, and every old name still can, with a warning."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api.md").read_text()
PUBLIC = re.findall(r"^\| `from ([\w.]+) import ([\w, ]+)`", PAGE, re.MULTILINE)
MOVED = [
    pair
    for row in re.findall(r"^\| (`[a-z].+?) \| (`[a-z].+?) \|$", PAGE.partition("## Moved")[2], re.MULTILINE)
    for pair in zip(*(re.findall(r"`([\w.]+)`", cell) for cell in row), strict=True)
]


@pytest.mark.parametrize(("module", "names"), PUBLIC)
def test_a_public_name_is_there(module: str, names: str) -> None:
    if module.endswith(".datatrove"):  # imports what the tests need not have
        body = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text()).body
        there = {getattr(statement, "name", "") for statement in body}
    else:
        there = set(dir(importlib.import_module(module)))
    assert set(names.split(", ")) <= there


@pytest.mark.parametrize(("old", "new"), MOVED)
def test_an_old_name_warns_and_is_the_new_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(FutureWarning, match=f"{old} is {new} now"):
        assert importlib.import_module(old) is importlib.import_module(new)

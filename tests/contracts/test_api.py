"""docs/api.md: every name it lists can be imported, and every old name still can, with a warning."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
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
    if module.startswith("tools."):  # imports what the tests need not have
        body = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text()).body
        there = {getattr(statement, "name", "") for statement in body}
    else:
        there = set(dir(importlib.import_module(module)))
    assert set(names.split(", ")) <= there


def test_an_old_name_warns_and_is_the_new_module() -> None:
    code = (
        "import importlib, sys, warnings\n"
        "for old, new in zip(sys.argv[1::2], sys.argv[2::2], strict=True):\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.simplefilter('always')\n"
        "        assert importlib.import_module(old) is importlib.import_module(new)\n"
        "    assert f'{old} is {new} now' in str(caught[0].message), old\n"
    )
    assert MOVED
    words = [name for pair in MOVED for name in pair]
    subprocess.run([sys.executable, "-c", code, *words], check=True)

"""The evaluation counts right: shares by kind, what each rule removes first, at all, and alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus.filters import load
from tests.corpus.texts import document
from tools.evaluate.filters import apply_filter, by_kind, by_rule, wilson

DIGITS = "1234567890" * 60


def page(text: str, label: str, kind: str, derived: bool = False) -> dict[str, Any]:
    return {"text": text, "label": label, "kind": kind, "derived": derived}


ITEMS = [
    *(page(document(seed), "good", "news") for seed in range(9)),
    page("短", "good", "news"),
    *(page(f"{seed}", "bad", "tiny") for seed in range(4)),
    *(page(document(seed) + DIGITS, "bad", "numbers", True) for seed in range(4)),
    page(document(99), "bad", "numbers", True),
]
RULES = ["filter.length.num_chars.min=50", "filter.characters.digit_ratio.max=0.3"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    recipe = tmp_path_factory.mktemp("recipe") / "two.toml"
    recipe.write_text("[filter.length]\nnum_chars = { min = 50 }\n[filter.characters]\ndigit_ratio = { max = 0.3 }\n")
    return apply_filter(load(recipe), ITEMS)


def test_shares_by_kind(found: Any) -> None:
    rows = {(row[0], row[1], row[2]): row for row in by_kind(found)}
    assert rows["good", "news", "real"][3:6] == ["10", "9", "90.0%"]
    assert rows["good", "news", "real"][8] == "length.num_chars 1"
    assert rows["bad", "tiny", "real"][3:6] == ["4", "4", "100.0%"]
    assert rows["bad", "numbers", "derived"][3:6] == ["5", "4", "80.0% (below 98%)"]
    assert rows["good", "ALL", "good"][5] == "90.0% (below 99%)"
    assert rows["bad", "ALL", "bad, real"][3:5] == ["4", "4"]


def test_what_rules_remove(found: Any) -> None:
    rows = {row[0]: row[1:] for row in by_rule(found)}
    # four tiny bad pages are digits too: both rules fail, so only the short good page is for length alone
    assert rows["length.num_chars min"] == ["4", "1", "4", "1", "0", "0", "1"]
    assert rows["characters.digit_ratio max"] == ["4", "0", "8", "0", "0", "4", "0"]


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [(0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (5, 10, 0.237, 0.763), (0, 0, 0.0, 1.0)],
)
def test_wilson(hits: int, total: int, low: float, high: float) -> None:
    assert wilson(hits, total) == pytest.approx((low, high), abs=0.001)


@pytest.mark.long
def test_the_command(repository: Path, tmp_path: Path) -> None:
    for name, items in (("labelled/pages_dev", ITEMS), ("text/news", [{"text": document(1)}, {"text": "短"}])):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    command = [sys.executable, "-m", "tools.evaluate.filters", "--data", str(tmp_path)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=250, check=True)
    assert "web_zh on labelled pages, by kind" in done.stdout
    [row] = [line for line in done.stdout.splitlines() if line.startswith("news ")]
    assert "50.0%" in row
    done = subprocess.run([*command[:-1], "nowhere"], cwd=repository, capture_output=True, text=True, timeout=250)
    assert done.returncode == 2

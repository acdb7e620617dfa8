"""A small build by the real stages, with documents on both sides of every limit of a small recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from corpus.build import stages
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from corpus.recipe import load_recipe, record_recipe
from corpus.sources.packing import find_sources
from tests.corpus.texts import document, write_records

RECIPE = """\
# 只是一个例子
description = "for tests"

[filter.length]
num_chars = { min = 150, max = 900 }                  # short and long ones go

[filter.characters]
latin_ratio = { max = 0.20 }                          # 半数以上是外文的不要
digit_ratio = { max = 0.10 }

[filter.lines]
duplicate_line_char_ratio = { max = 0.30 }

[filter.repetition]
top_2_gram_ratio = { max = 0.20 }
"""
MOBILE, MAIL = "13800138000", "wang@example.com"


def texts() -> list[str]:
    """Documents of all lengths, some with repeated lines, Latin words, digits or personal data."""
    made = []
    for seed in range(240):
        text = document(seed, 1 + seed % 20)
        text += "\n" + f"联系电话{MOBILE}，邮箱{MAIL}。" * (seed % 5 == 0)
        if seed % 3 == 0:
            text += " configuration of the server" * (seed % 7)
            text += f"\n{seed}{seed}{seed}" * (seed % 11)
            text += f"\n{document(seed, 2)}" * (seed % 4)
        made.append(text)
    return made


def run_filter(folder: Path, out: Path, recipe: str, sets: Sequence[str] = ()) -> Folder:
    """Extract and filter the documents below `folder` into `out`."""
    loaded = load_recipe(recipe, sets)
    run_stages(stages(loaded, find_sources(loaded.sources, [str(folder / "*.jsonl")]))[:2], str(out), workers=0)
    record_recipe(str(out), recipe, sets)
    return Folder.open(str(next(out.glob("filter-*"))))


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("retune-inputs")
    (folder / "small.toml").write_text(RECIPE, encoding="utf-8")
    for part in range(2):
        records = (
            {"url": f"https://site{seed % 3}.example/{seed}?手机={MOBILE}", "text": text}
            for seed, text in enumerate(texts())
            if seed % 2 == part
        )
        write_records(folder / f"{part}.jsonl", records)
    return folder


@pytest.fixture(scope="session")
def built(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An output folder, not to be changed."""
    out = tmp_path_factory.mktemp("retune") / "out"
    run_filter(inputs, out, str(inputs / "small.toml"))
    return out

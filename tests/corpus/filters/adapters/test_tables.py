"""Tables and datasets: what goes in comes out, but for dropped rows and edited texts."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from corpus.engine.errors import UsageError
from corpus.filters import load
from corpus.filters.adapters.tables import for_datasets, judge_in_order, kept_rows
from tests.corpus.texts import document

PEER = Path("build/peers/datatrove/bin/python")  # `python -m tools.bench filters --peers` makes it
IN_DATASETS = """
import json, sys
import pyarrow as pa
from datasets import Dataset
from corpus.filters.adapters.tables import for_datasets
dataset = Dataset(pa.table({"content": json.load(sys.stdin), "page": list(range(30))}))
f = for_datasets("web_zh", column="content")
plain = dataset.map(f, batched=True, batch_size=7)
arrow = dataset.with_format("arrow").map(f, batched=True, batch_size=7).with_format(None)
spread = dataset.map(f, batched=True, num_proc=2)
only = dataset.filter(f.keeps, batched=True)
assert plain.features == arrow.features == dataset.features
assert plain.to_list() == arrow.to_list() == spread.to_list()
assert plain._fingerprint == dataset.map(f, batched=True, batch_size=7)._fingerprint  # so that its cache works
print(json.dumps([plain["page"][:], only["page"][:], plain["content"][-1][-8:]]))
"""


def texts(count: int) -> list[str]:
    return ["短" if row % 3 == 1 else document(row) + "电话13800138000" for row in range(count)]


def test_a_batch_of_lists() -> None:
    f = for_datasets("web_zh", column="content")
    batch = {"content": texts(6), "page": list(range(6)), "nested": [{"a": [row]} for row in range(6)]}
    found = f(batch)
    assert found["page"] == [0, 2, 3, 5]
    assert found["nested"] == [{"a": [row]} for row in (0, 2, 3, 5)]
    assert all(text.endswith("电话<MOBILE>") for text in found["content"])
    assert f.keeps(batch) == [True, False, True, True, False, True]
    table = pa.table(batch)
    assert f(table).to_pydict() == found
    with pytest.raises(UsageError, match=r"no column 'content'; it has text"):
        f({"text": ["甲"]})


def test_an_untouched_table_is_not_copied() -> None:
    table = pa.table({"text": pa.array([document(1), document(2)])})
    kept = kept_rows(table, load("web_zh").apply(table))
    assert kept.equals(table)
    assert kept["text"].chunk(0).buffers()[2].size == table["text"].chunk(0).buffers()[2].size


def test_it_travels_and_hashes_as_its_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "my.toml"
    recipe.write_text("[filter.length]\nnum_chars = { min = 5 }\n")
    first = for_datasets(recipe)
    assert pickle.loads(pickle.dumps(first))({"text": ["学而时习之", "短"]}) == {"text": ["学而时习之"]}
    recipe.write_text("[filter.length]\nnum_chars = { min = 6 }\n")
    changed = for_datasets(recipe, ["filter.length.num_chars.min=6"])
    assert pickle.dumps(first) != pickle.dumps(changed)
    with pytest.raises(UsageError, match="num_charz"):
        for_datasets("web_zh", ["filter.length.num_charz.min=6"])


def test_batches_come_back_in_order_and_few_are_held() -> None:
    taken = 0

    def batches() -> Iterator[int]:
        nonlocal taken
        for number in range(12):
            taken += 1
            yield number

    judge = load("web_zh")
    given = 0
    for number, verdicts in judge_in_order(
        judge, batches(), lambda n: pa.table({"text": texts(6)[: n % 6]}), "text", 2
    ):
        assert number == given
        assert len(verdicts) == number % 6
        given += 1
        assert taken - given <= 3
    assert given == 12


@pytest.mark.slow
def test_in_datasets_itself(repository: Path, tmp_path: Path) -> None:
    python = repository / PEER
    if not python.exists():
        pytest.skip("no datasets: `python -m tools.bench filters --peers` installs it")
    environment = {
        "PYTHONPATH": str(repository),
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [str(python), "-c", IN_DATASETS],
        input=json.dumps(texts(30)),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kept = [row for row in range(30) if row % 3 != 1]
    assert json.loads(done.stdout.splitlines()[-1]) == [kept, kept, "<MOBILE>"]

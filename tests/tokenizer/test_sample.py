"""The sample: which documents, in which order, cut where; the balance of sources as it comes out."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import opencc
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from tests.tokenizer.texts import LINES, document, documents
from tokenizer.config import TokenizerConfig
from tokenizer.documents import UNIT, is_below, text_files
from tokenizer.sample import (
    MARGIN,
    SCHEMA,
    SampleStage,
    by_source,
    cut_sample,
    places,
    read_sample,
    texts_of_sources,
    traditional_ratio,
)
from tokenizer.sources import SharesStage, SourcesStage

TO_TRADITIONAL = opencc.OpenCC("s2t").convert
SIMPLIFIED = [line for line in LINES if "鳥" not in line]


@cache
def corpus() -> list[tuple[str, str]]:
    """(source, text): much of the web, some books, a few poems; a tenth of the web Traditional."""
    rows = []
    for number in range(2000):
        text = f"{number}" + SIMPLIFIED[number % len(SIMPLIFIED)]
        rows.append(("web", TO_TRADITIONAL(text) if number % 10 == 0 else text))
    rows += [("books", f"卷{number}" + SIMPLIFIED[number % 7] * 2) for number in range(200)]
    rows += [("poems", f"{number}床前明月光，疑是地上霜。") for number in range(20)]
    return rows


def sample(folder: Path, rows: list[tuple[str, str]], files: int, **options: Any) -> dict[str, Folder]:
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        part = rows[number::files]
        table = pa.table({"text": [text for _, text in part], "source": [source for source, _ in part]})
        pq.write_table(table, folder / "in" / f"{number}.parquet")
    recipe, inputs = TokenizerConfig(**options), tuple(text_files([str(folder / "in")]))
    stages = [SourcesStage(recipe, inputs), SharesStage(recipe), SampleStage(recipe, inputs)]
    return run_stages(stages, str(folder / "out"), workers=0)


def kept(folders: dict[str, Folder], num_bytes: int) -> pa.Table:
    return cut_sample(read_sample(folders["sample"].files()), num_bytes)[0]


def bytes_by_source(table: pa.Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for source, text in zip(table["source"].to_pylist(), table["text"].to_pylist(), strict=True):
        found[source] += len(text.encode())
    return found


def test_a_sample_depends_on_documents_and_not_on_shards_or_order(tmp_path: Path) -> None:
    options = {"sample_bytes": 30_000, "source_exponent": 0.5, "traditional_ratio": 0.3}
    one = sample(tmp_path / "a", corpus(), 2, **options)
    other = sample(tmp_path / "b", corpus()[::-1], 7, **options)
    assert read_sample(one["sample"].files()).equals(read_sample(other["sample"].files()))
    counts = one["sample"].counts
    assert (counts.documents_in, counts.documents_out) == (2220, 2220 - counts.dropped["sample.not_chosen"])


def test_documents_of_one_id_are_sampled_alike_in_any_order_of_files(tmp_path: Path) -> None:
    """Others' files may give many documents the same 16 bytes."""
    kinds = pa.schema([("id", pa.binary(16)), ("text", pa.string())])
    found = []
    for name, texts in (("a", documents(6)), ("b", documents(6)[::-1])):
        (tmp_path / name).mkdir()
        for number in range(2):
            table = pa.table({"id": [b"\1" * 16] * 3, "text": texts[number::2]}, schema=kinds)
            pq.write_table(table.append_column("source", pa.array(["x"] * 3)), tmp_path / name / f"{number}.parquet")
        recipe, inputs = TokenizerConfig(), tuple(text_files([str(tmp_path / name)]))
        stages = [SourcesStage(recipe, inputs), SharesStage(recipe), SampleStage(recipe, inputs)]
        found.append(read_sample(run_stages(stages, str(tmp_path / f"{name}-out"), workers=0)["sample"].files()))
    assert found[0].num_rows == 6
    assert found[0].equals(found[1])


def test_a_shard_is_written_in_parts_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_sample(sample(tmp_path / "a", corpus(), 1)["sample"].files())
    monkeypatch.setattr("tokenizer.sample.ROW_GROUP_BYTES", 1000)
    folders = sample(tmp_path / "b", corpus(), 1)
    [file] = folders["sample"].files()
    assert pq.read_metadata(file.url).num_row_groups == 3  # one a batch
    assert file.rows == whole.num_rows
    assert read_sample([file]).equals(whole)


def test_sources_are_balanced_by_the_exponent(tmp_path: Path) -> None:
    sizes = bytes_by_source(pa.table({"source": [s for s, _ in corpus()], "text": [t for _, t in corpus()]}))
    for exponent in (1.0, 0.3):
        folders = sample(tmp_path / str(exponent), corpus(), 3, sample_bytes=40_000, source_exponent=exponent)
        found = bytes_by_source(kept(folders, 40_000))
        assert 39_000 < found.total() <= 40_000
        expected = (sizes["web"] / sizes["books"]) ** exponent
        assert found["web"] / found["books"] == pytest.approx(expected, rel=0.3)
        if exponent == 0.3:
            assert found["poems"] == sizes["poems"]  # all it has, in spite of the cut


def test_a_ratio_of_traditional_documents_comes_out(tmp_path: Path) -> None:
    folders = sample(tmp_path, corpus(), 3, sample_bytes=40_000, source_exponent=0.5, traditional_ratio=0.25)
    table = kept(folders, 40_000)
    traditional = [TO_TRADITIONAL(text) == text for text in table["text"].to_pylist()]
    sizes = pc.binary_length(table["text"]).to_numpy()
    assert traditional_ratio(table) == pytest.approx(sizes[traditional].sum() / sizes.sum(), abs=1e-6)
    assert traditional_ratio(table) == pytest.approx(0.25, abs=0.05)
    assert traditional_ratio(table.slice(0, 0)) is None


def test_a_small_corpus_is_taken_whole(tmp_path: Path) -> None:
    folders = sample(tmp_path, corpus(), 3, source_exponent=0.2)
    assert sorted(read_sample(folders["sample"].files())["text"].to_pylist()) == sorted(text for _, text in corpus())
    assert folders["sample"].counts.dropped == {}


@given(st.lists(st.integers(0, UNIT - 1), min_size=1, max_size=30), st.floats(1e-9, 1.0))
def test_places_below_one_are_keys_below_the_ratio(keys: list[int], ratio: float) -> None:
    """With equal ratios the order of places is the order of keys, and the threshold is the one of the split."""
    values = np.array(keys, np.uint64)
    found = places(values, [ratio] * len(keys))
    assert (np.diff(found[np.argsort(values)]) >= 0).all()
    near = np.abs(found - 1) < 1e-9
    assert ((found < 1) == is_below(values, ratio))[~near].all()
    assert (found < MARGIN).all() or ratio * MARGIN < 1


def table_of(sizes: list[int], sources: list[str] | None = None) -> pa.Table:
    count = len(sizes)
    columns = [
        np.arange(count) / 10,
        np.arange(count, dtype=np.uint64),
        sources or ["x"] * count,
        ["a" * n for n in sizes],
    ]
    return pa.table(columns, schema=SCHEMA)


@given(st.lists(st.integers(0, 20), max_size=12), st.integers(1, 100))
def test_a_cut_keeps_as_many_first_documents_as_there_is_room_for(sizes: list[int], room: int) -> None:
    found, counts = cut_sample(table_of(sizes), room)
    expected = max((n for n in range(len(sizes) + 1) if sum(sizes[:n]) <= room), default=0)
    expected = max(expected, min(1, len(sizes)))
    assert found.num_rows == counts.documents_out == expected
    assert (counts.bytes_in, counts.bytes_out) == (sum(sizes), sum(sizes[:expected]))
    counts.check("here")


def test_the_report_draws_the_same_of_each_source() -> None:
    table = table_of([60, 60, 5, 60, 60], ["web", "web", "poems", "web", "web"])
    assert {key: [len(text) for text in texts] for key, texts in texts_of_sources(table, 200).items()} == {
        "poems": [5],
        "web": [60, 40],
    }
    assert texts_of_sources(table_of([]), 200) == {}


def test_only_the_largest_sources_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenizer.sample.REPORT_SOURCES", 2)
    found = texts_of_sources(table_of([5, 9, 1, 7], ["a", "b", "c", "d"]), 10)
    assert found == {"b": ["a" * 5], "d": ["a" * 5]}


def test_sources_of_the_corpus_and_of_the_sample_stand_side_by_side(tmp_path: Path) -> None:
    folders = sample(tmp_path, corpus(), 2, sample_bytes=30_000, source_exponent=0.3)
    table = kept(folders, 30_000)
    found = by_source(table, folders["shares"].files("shares")[0])
    assert list(found) == ["web", "books", "poems"]
    for source, size in bytes_by_source(table).items():
        rows = [text for name, text in corpus() if name == source]
        assert found[source]["bytes"] == size
        assert (found[source]["corpus_documents"], found[source]["corpus_bytes"]) == (
            len(rows),
            sum(len(text.encode()) for text in rows),
        )
    for key in ("ratio", "corpus_ratio"):
        assert sum(row[key] for row in found.values()) == pytest.approx(1, abs=1e-5)


def test_equal_texts_of_files_without_a_source_are_told_apart_by_file(tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"text": documents(3)}), tmp_path / f"{name}.parquet")
    recipe, inputs = TokenizerConfig(), tuple(text_files([str(tmp_path)]))
    stages = [SourcesStage(recipe, inputs), SharesStage(recipe), SampleStage(recipe, inputs)]
    table = read_sample(run_stages(stages, str(tmp_path / "out"), workers=0)["sample"].files())
    assert Counter(table["source"].to_pylist()) == {"a.parquet": 3, "b.parquet": 3}
    assert table["text"].to_pylist().count(document(1)) == 2

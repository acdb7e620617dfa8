"""Arrow IPC files and streams: rows, damage, lies about offsets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from corpus.sources.formats import arrow, parquet
from corpus.sources.formats.parquet import rows_of
from tests.corpus.sources.files import read_all

TABLE = pa.table({"text": [f"第{index}篇：学而时习之。" for index in range(60)], "url": ["u"] * 60, "n": range(60)})


def saved(path: Path, form: str, table: pa.Table = TABLE) -> bytes:
    new = pa.ipc.new_stream if form == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["stream", "file"])
def test_rows_become_records(tmp_path: Path, form: str) -> None:
    path = tmp_path / "data-00000-of-00001.arrow"
    good, bad = read_all(path, saved(path, form))
    assert [(record.offset, record.text, record.url) for record in good] == [
        (index, f"第{index}篇：学而时习之。", "u") for index in range(60)
    ]
    assert good[7].fields == {"n": 7} and not bad
    _, bad = read_all(path, saved(path, form, pa.table({"body": ["x"]})))
    assert [(error.kind, error.detail) for error in bad] == [("field", "no field 'text'; fields: body")]


def test_a_text_that_is_not_utf_8_costs_its_row(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    raw = pa.array(["好".encode(), b"\xff\xfe", b"x"], pa.binary())
    good, bad = read_all(
        path, saved(path, "file", pa.table({"text": pa.Array.from_buffers(pa.string(), 3, raw.buffers())}))
    )
    assert [record.text for record in good] == ["好", "x"]
    assert [(error.kind, error.offset) for error in bad] == [("charset", 1)]


@pytest.mark.parametrize("form", ["stream", "file"])
def test_a_file_that_was_cut(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.arrow"
    data = saved(path, form)
    good, (error,) = read_all(path, data[: len(data) * 2 // 3])
    assert error.kind == "arrow" and (len(good) in (20, 40) if form == "stream" else not good)


@pytest.mark.parametrize("form", ["stream", "file"])
def test_flipped_bytes_never_crash_and_invent_no_rows(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.arrow"
    data, rng = saved(path, form), random.Random(1)
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 20)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        good, bad = read_all(path, bytes(damaged))
        assert len(good) + len(bad) <= 63


def test_a_value_that_many_rows_share_is_not_copied_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def counted(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[dict[str, object]]:
        sizes.append(batch.num_rows)
        yield from rows_of(batch, names)

    monkeypatch.setattr(arrow, "rows_of", counted)
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 20, pa.int32()), pa.array(["学" * 1_500_000]))
    path = tmp_path / "a.arrow"
    good, bad = read_all(path, saved(path, "file", pa.table({"text": shared})))
    assert len(good) == 20 and not bad
    assert max(sizes) * 4_500_000 <= parquet.MAX_LIST_BYTES

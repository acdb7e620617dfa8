"""The document table: row groups that are bounded and the same whatever batches the rows came in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus import document
from corpus.document import TableWriter, document_id

SCHEMA = pa.schema([pa.field("text", pa.large_string(), nullable=False), pa.field("n", pa.int64())])
SIZES = [0, 1, 5, 20, 60, 150, 99, 1, 1, 30]


@pytest.mark.parametrize("limit", [1, 10, 100, 1_000])
def test_row_groups_are_bounded_and_do_not_depend_on_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(document, "ROW_GROUP_ROWS", 7)
    monkeypatch.setattr(document, "ROW_GROUP_BYTES", limit)
    rows = [{"text": "x" * SIZES[index * index % 10], "n": index} for index in range(90)]
    written = set()
    for step in (1, 13, 90):
        path = tmp_path / f"{step}.parquet"
        with TableWriter(path, SCHEMA) as writer:
            for start in range(0, 90, step):
                writer.write(pa.Table.from_pylist(rows[start : start + step], schema=SCHEMA))
        written.add(path.read_bytes())
        file = pq.ParquetFile(path)
        assert file.read().to_pylist() == rows
        for group in range(file.num_row_groups):
            texts = file.read_row_group(group)["text"].to_pylist()
            assert len(texts) <= 7 and (len(texts) == 1 or sum(map(len, texts)) <= limit)
    assert len(written) == 1


def test_an_identity_tells_its_parts_apart() -> None:
    parts = [("a", "b", b"c"), ("ab", "", b"c"), ("a", "", b"bc"), ("", "ab", b"c"), ("a", "b\ud800", b"c")]
    assert len({document_id(*part) for part in parts}) == len(parts)

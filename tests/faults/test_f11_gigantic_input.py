"""FAULTS row 11: a file, line or document of any size is read within a fixed memory, and costs itself only."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpus.texts import document

READ = """
import json, resource, sys
from collections import Counter
from corpus.sources import BadRecord, SourcesConfig, read
import corpus.sources.formats.parquet, corpus.sources.formats.warc
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
kinds = Counter()
for record in read(sys.argv[1], SourcesConfig(**json.loads(sys.argv[2]))):
    kinds[record.kind if isinstance(record, BadRecord) else "good"] += 1
print(json.dumps([kinds, peak() - before]))
"""


def read_in_a_child(path: Path, **config: object) -> tuple[dict[str, int], int]:
    """Counts of records by kind, and by how many MiB reading raised the peak of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), json.dumps(config)],
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    kinds, growth = json.loads(done.stdout)
    return kinds, growth


def line(index: int) -> bytes:
    return json.dumps({"text": document(index, 1)}, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("kind", ["jsonl", "text", "html", "warc"])
def test_one_line_of_128_megabytes(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"WARC/1.1\r\n" if kind == "warc" else b'{"text": "')
        file.truncate(1 << 27)  # a hole: zeros that take no room
        file.seek(0, os.SEEK_END)
        if kind == "jsonl":
            file.write(b'"}\n' + line(1))
    kinds, growth = read_in_a_child(path, kind=kind)
    assert kinds == ({"too_long": 1, "good": 1} if kind == "jsonl" else {"warc" if kind == "warc" else "too_long": 1})
    assert growth < 60


@pytest.mark.long
def test_a_compressed_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    noise = os.urandom(1 << 18).hex().encode()  # repeats beyond gzip's window: no bomb, and soon made
    packed = gzip.compress(noise, 1)
    with (tmp_path / "a.jsonl.gz").open("wb") as file:
        file.write(gzip.compress(b'{"text": "'))
        for _ in range(200):
            file.write(packed)
        file.write(gzip.compress(b'"}\n' + line(1)))
    kinds, growth = read_in_a_child(tmp_path / "a.jsonl.gz")
    assert kinds == {"too_long": 1, "good": 1} and growth < 60


@pytest.mark.long
def test_a_million_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes("".join(f'{{"text": "学{index}"}}\n' for index in range(100)).encode() * 10_000)
    kinds, growth = read_in_a_child(tmp_path / "a.jsonl")
    assert kinds == {"good": 1_000_000} and growth < 60


@pytest.mark.long
def test_parquet_cells_and_pages_far_above_the_cap(tmp_path: Path) -> None:
    """One cell of 150 MB, and one of 9 MB that a dictionary page repeats a hundred times."""
    path = tmp_path / "a.parquet"
    small = pa.table({"text": pa.array([document(index) for index in range(100)], pa.large_string())})
    huge = pa.table({"text": pa.array(["学" * 50_000_000], pa.large_string())})
    repeated = pa.array(["学" * 3_000_000], pa.large_string()).dictionary_encode().take(pa.array([0] * 100))
    with pq.ParquetWriter(path, small.schema, compression="zstd", dictionary_pagesize_limit=1 << 30) as writer:
        for table in (small, huge, small):
            writer.write_table(table)
    kinds, growth = read_in_a_child(path)
    assert kinds == {"good": 200, "too_large": 1} and growth < 100
    pq.write_table(pa.table({"text": repeated}), path, compression="zstd", dictionary_pagesize_limit=1 << 30)
    kinds, growth = read_in_a_child(path)
    assert kinds == {"good": 100} and growth < 300

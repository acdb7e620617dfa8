"""FAULTS row 7: a flipped bit in a text shard, a token shard or a checkpoint is found before it is used, by file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from corpus.document import DOCUMENT_SCHEMA, document_id, read_batches, read_table, write_table
from corpus.engine.errors import WenhaiError
from corpus.report.verify import verify
from pretrain import checkpoint
from pretrain.data import ShardReader
from tests.corpus.sources.test_stage import extract
from tests.corpus.texts import document
from tests.pretrain.data.test_reader import numbered, write_folder
from tests.pretrain.test_checkpoint import save
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps
from tokenizer.shards import open_split
from tokenizer.shards.record import ShardError

FOOTER_BYTES = 8  # of Parquet: the length of its metadata and the magic number


@contextmanager
def flipped(path: Path, position: int) -> Iterator[None]:
    """The file with one other bit at a byte; which one depends on the byte."""
    data = path.read_bytes()
    path.write_bytes(data[:position] + bytes([data[position] ^ 1 << position % 8]) + data[position + 1 :])
    try:
        yield
    finally:
        path.write_bytes(data)


def test_text_is_never_read_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [document(index) for index in range(40)]
    columns = {
        "id": [document_id("test", "", text.encode()) for text in texts],
        "row": range(len(texts)),
        "source": ["test"] * len(texts),
        "text": texts,
    }
    nothing = [None] * len(texts)
    good = pa.table({name: columns.get(name, nothing) for name in DOCUMENT_SCHEMA.names}, DOCUMENT_SCHEMA)
    write_table(path, good)
    data = path.read_bytes()
    metadata = len(data) - FOOTER_BYTES - int.from_bytes(data[-8:-4], "little")
    found = 0
    for position in range(4, metadata, max(1, metadata // 150)):
        for read in (read_table, lambda path: pa.concat_tables(read_batches(path))):
            with flipped(path, position):
                try:
                    assert read(path).equals(good), position  # the bit says nothing about a value
                except WenhaiError as error:
                    assert str(path) in str(error)
                    found += 1
    assert found > 250


def test_verify_finds_every_flip_in_a_text_shard_and_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(document(1), "utf-8")
    extract(tmp_path / "in", tmp_path / "out")
    assert verify(str(tmp_path / "out")) == []
    paths = sorted((tmp_path / "out").rglob("*.parquet"))
    assert {path.parent.name for path in paths} == {"data", "fates", "places"}
    for path in paths:
        size = path.stat().st_size
        for position in range(0, size, size // 12):
            with flipped(path, position):
                (problem,) = verify(str(tmp_path / "out"))
                assert (problem.kind, Path(problem.path).name) == ("sha256", path.name)


def test_token_shards(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokens", {"00000-00-train": numbered(300, 1)})
    (shard,) = open_split(folder, "train")
    shard.verify()
    for path in (shard.bin_path, shard.idx_path, shard.meta_path):
        size = path.stat().st_size
        for position in range(0, size, max(1, size // 60)):
            with flipped(path, position), pytest.raises(WenhaiError, match=re.escape(path.name)):
                open_split(folder, "train")[0].verify()
    for position in range(0, shard.bin_path.stat().st_size, 97):
        with flipped(shard.bin_path, position), pytest.raises(ShardError, match=r"\.bin: offset 0: the checksum"):
            ShardReader(open_split(folder, "train")[0]).tokens(0, 9)


def test_checkpoints(tmp_path: Path) -> None:
    with tiny_run(tiny_config()) as run:
        train_steps(run, 1)
        save(run, tmp_path)
    folder = checkpoint.newest(tmp_path)
    assert folder is not None
    checkpoint.load_model(folder)
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        for position in range(0, size, max(1, size // 25)):
            with flipped(path, position), pytest.raises(WenhaiError, match=re.escape(path.name)):
                checkpoint.load_model(folder)

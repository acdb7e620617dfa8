"""bzip2 under the contracts of gzip and zstd: every good byte, the damage by name, one bad stream costs itself."""

from __future__ import annotations

import bz2
import io
import tracemalloc
from pathlib import Path

import pytest

from corpus.sources import kind_of
from corpus.sources.compression import (
    FREE_BYTES,
    MAX_RATIO,
    PIECE_BYTES,
    compression_of,
    next_member,
)
from tests.corpus.sources.files import read_all, warc_record
from tests.corpus.sources.test_compression import TEXT, unpack

PACKED = bz2.compress(TEXT)


@pytest.mark.long
def test_a_bomb_is_stopped_and_a_small_file_of_one_character_is_not() -> None:
    assert unpack(bz2.compress(bytes(FREE_BYTES)), "bzip2") == (bytes(FREE_BYTES), None)
    bomb = bz2.compress(bytes(300_000_000))
    tracemalloc.start()
    out, damage = unpack(bomb, "bzip2")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert damage == "bomb" and len(out) <= FREE_BYTES + MAX_RATIO * len(bomb) + PIECE_BYTES
    assert peak_bytes < 20_000_000


def test_streams_are_found_by_their_head_and_by_nothing_shorter() -> None:
    data = b"BZh BZh9 1AY&SY" + PACKED + b"BZh91AY&S" + bz2.compress(b"")
    starts = []
    start: int | None = 0
    while (start := next_member(io.BytesIO(data), "bzip2", start, bool)) is not None:
        starts.append(start)
        start += 1
    assert starts == [15, 15 + len(PACKED) + 9]


def test_every_kind_of_file_may_be_bzip2(tmp_path: Path) -> None:
    lines = b'{"text": "\xe5\xad\xa6"}\n' * 3
    good, bad = read_all(tmp_path / "a.jsonl.bz2", bz2.compress(lines))
    assert len(good) == 3 and not bad
    records = [bz2.compress(warc_record(index)) for index in range(3)]
    records[1] = records[1][:60] + b"\0\0\0" + records[1][63:]
    good, bad = read_all(tmp_path / "a.warc.bz2", b"".join(records))
    assert [str(record.url)[-1] for record in good] == ["0", "2"] and [error.kind for error in bad] == ["corrupt"]
    path = tmp_path / "noname"
    path.write_bytes(bz2.compress(lines))
    assert compression_of(path) == "bzip2" and kind_of(path) == "jsonl"
    path.write_bytes("BZh9：一篇短文。".encode())
    assert compression_of(path) == "none" and kind_of(path) == "text"

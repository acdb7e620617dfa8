"""FAULTS row 12: decompression bombs are stopped at 200 times their size, beyond the first MiB, wherever they hide."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from corpus.sources.compression import FREE_BYTES, MAX_RATIO, Compression
from tests.corpus.sources.files import members, read_all, warc_record
from tests.corpus.sources.test_compression import pack, unpack

ZEROS = bytes(30_000_000)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_bombs_are_stopped_and_small_files_of_one_character_are_not(kind: Compression) -> None:
    assert unpack(pack(bytes(FREE_BYTES), kind), kind) == (bytes(FREE_BYTES), None)
    out, damage = unpack(pack(bytes(8 << 20), kind), kind)
    assert damage == "bomb"
    assert len(out) < FREE_BYTES + MAX_RATIO * 10_000


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.html"])
def test_a_file_that_is_a_bomb_costs_no_memory(tmp_path: Path, name: str, suffix: str) -> None:
    data = (gzip.compress if suffix == "gz" else zstandard.compress)(b"x" * 30_000_000)
    tracemalloc.start()
    good, bad = read_all(tmp_path / f"{name}.{suffix}", data)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not good and [error.kind for error in bad] == ["bomb"]
    assert peak_bytes < 20_000_000  # a line may be held up to its cap of 10 MB


def test_a_bomb_in_a_warc_costs_its_own_record(tmp_path: Path) -> None:
    packed: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.compress}
    for suffix, pack_one in packed.items():
        parts = [pack_one(record) for record in (warc_record(0), warc_record(1) + ZEROS, warc_record(2))]
        good, bad = read_all(tmp_path / f"a.warc.{suffix}", b"".join(parts))
        assert [str(record.url)[-1] for record in good] == ["0", "2"] and len(bad) == 1
        assert bad[0].kind in ("bomb", "warc")


@pytest.mark.parametrize("names", ["gzip", "gzip, gzip", "deflate, gzip", "gzip, deflate, gzip"])
def test_bodies_packed_once_and_again(tmp_path: Path, names: str) -> None:
    body = ZEROS
    for name in names.split(", "):
        body = gzip.compress(body) if name == "gzip" else zlib.compress(body)
    record = warc_record(0, body, http=f"Content-Encoding: {names}\r\n")
    good, bad = read_all(tmp_path / "a.warc.gz", gzip.compress(record) + members(2)[1])
    assert [str(record.url)[-1] for record in good] == ["1"] and [error.kind for error in bad] == ["too_long"]


def test_a_packed_file_in_a_packed_file_is_not_unpacked(tmp_path: Path) -> None:
    nested = gzip.compress(gzip.compress(b'{"text": "x"}\n' * 9))
    good, bad = read_all(tmp_path / "a.jsonl.gz", nested)
    assert not good and {error.kind for error in bad} <= {"charset", "json"}

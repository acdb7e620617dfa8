from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.dedup.records import (
    NUM_SLOTS,
    RECORD_DTYPE,
    Array,
    Runs,
    array_rows,
    band_slots,
    bases,
    cuts_of,
    key_ranges,
    map_array,
    partition_bits,
    partition_records,
    sections,
    spread,
    write_array,
    write_bands,
    write_sections,
)
from corpus.engine import overlap, storage
from corpus.engine.errors import WenhaiError
from corpus.engine.storage import File


def file_of(path: Path, rows: int = 0) -> File:
    return File(str(path), path.stat().st_size, "", rows)


def bands_file(path: Path, keys: list[int]) -> File:
    write_bands(path, np.array(keys, np.uint64), np.arange(len(keys), dtype=np.uint32))
    return file_of(path, len(keys))


def read_bands(file: File, partition: int, bits: int) -> Array:
    return sections([file], *band_slots(partition, bits), RECORD_DTYPE).read()


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.sampled_from([0, 1, 5]))
def test_partitions_cut_the_records_by_key_range(tmp_path: Path, keys: list[int], bits: int) -> None:
    file = bands_file(tmp_path / "bands", keys)
    expected = sorted((key, row) for row, key in enumerate(keys))
    parts: list[Array] = [read_bands(file, p, bits) for p in range(1 << bits)]
    assert [tuple(record) for record in np.concatenate(parts).tolist()] == expected
    for p, part in enumerate(parts):
        assert all(key >> (64 - bits) == p for key in part["key"].tolist())


def test_the_bytes_do_not_depend_on_the_order_of_the_records(tmp_path: Path) -> None:
    keys, rows = np.array([5, 2**63, 5, 0], np.uint64), np.array([3, 1, 0, 2], np.uint32)
    write_bands(tmp_path / "a", keys, rows)
    write_bands(tmp_path / "b", keys[::-1].copy(), rows[::-1].copy())
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert data[:8] == b"WHCUTS01" and len(data) == 8 + 8 * (NUM_SLOTS + 2) + 4 * 12


@pytest.mark.parametrize("damage", ["empty", "magic", "header", "offset", "cut"])
def test_a_damaged_band_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "bands.bin"
    bands_file(path, [1, 2, 2**64 - 1])
    data = bytearray(path.read_bytes())
    if damage == "magic":
        data[0] ^= 1
    elif damage == "offset":
        data[8 + 8 * (NUM_SLOTS + 1) + 4] = 1
    data = {"empty": bytearray(), "header": data[:500], "cut": data[:-12]}.get(damage, data)
    path.write_bytes(data)
    with pytest.raises(WenhaiError, match=r"bands\.bin"):
        read_bands(file_of(path, 3), 0, 0)


@pytest.mark.parametrize("content", [b"", b"not an array", b"\x93NUMPY\x01\x00\x06\x00{]"])
def test_a_damaged_array_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(WenhaiError, match=r"x\.npy"):
        map_array(file_of(tmp_path / "x.npy"))


def test_an_array_of_objects_is_never_unpickled(tmp_path: Path) -> None:
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(WenhaiError, match=r"x\.npy"):
        map_array(file_of(tmp_path / "x.npy"))


def test_the_number_of_partitions_follows_the_number_of_records() -> None:
    sizes = [0, 1, 1 << 20, 1 << 21, 1 << 28, 1 << 40]
    assert [partition_bits(size) for size in sizes] == [0, 0, 1, 2, 9, 14]


def test_a_partition_grows_with_the_number_of_files_so_that_reads_do_not_shrink() -> None:
    assert [partition_records(files) for files in (1, 192, 383, 20_000)] == [1 << 20, 1 << 20, 1 << 20, 1 << 26]
    assert partition_records(384) == 1 << 21
    for files, size in ((2_000, 3e9), (10_000, 15e9), (20_000, 30e9), (1 << 20, 1e12)):
        partitions = 1 << partition_bits(int(size), files)
        assert size / partitions <= 1 << 26
        assert size / partitions / files * RECORD_DTYPE.itemsize >= 16 << 10 or files > 20_000


@pytest.mark.parametrize(
    ("rows", "sections"), [([], 1), ([0], 1), ([8, 4], 1), ([9, 9], 2), ([16, 17], 2), ([70, 30], 8)]
)
def test_members_are_spread_over_sections_of_a_bounded_size(
    monkeypatch: pytest.MonkeyPatch, rows: list[int], sections: int
) -> None:
    monkeypatch.setattr("corpus.dedup.records.MAX_MEMBERS", 8)
    assert spread([File(str(i), 0, "", count) for i, count in enumerate(rows)]) == sections


@pytest.mark.parametrize("block_bytes", [1, 48, 4 << 20])
def test_rows_are_taken_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr("corpus.dedup.records.BLOCK_BYTES", block_bytes)
    sizes, dtype = [3, 0, 4, 1], np.dtype(("<i8", (2,)))
    files = []
    for i, size in enumerate(sizes):
        write_array(tmp_path / f"{i}.npy", np.arange(size)[:, None] + 10 * i + np.zeros(2, np.int64))
        files.append(file_of(tmp_path / f"{i}.npy", size))
    rows = Runs([array_rows(file, dtype) for file in files], dtype)
    everything = [0, 1, 2, 20, 21, 22, 23, 30]
    assert rows.read()[:, 1].tolist() == everything
    for ordinals in ([], [0], [2, 3], [7], [1, 3, 6, 7], list(range(8))):
        assert rows.take(np.array(ordinals, np.int64))[:, 0].tolist() == [everything[o] for o in ordinals]


def test_sections_are_ranges_of_one_file(tmp_path: Path) -> None:
    dtype = np.dtype("<u4")
    write_sections(tmp_path / "x.bin", cuts_of(np.array([2, 0, 3])), [np.arange(4, dtype=dtype), np.array([9], dtype)])
    file = file_of(tmp_path / "x.bin", 5)
    ranges = {(0, 1): [0, 1], (1, 2): [], (2, 3): [2, 3, 9], (0, 3): [0, 1, 2, 3, 9]}
    for (first, last), expected in ranges.items():
        assert sections([file], first, last, dtype).read().tolist() == expected
    for first, last, other in ((2, 4, dtype), (0, 3, np.dtype("<u8"))):
        with pytest.raises(WenhaiError, match=r"x\.bin"):
            sections([file], first, last, other)


def test_an_array_cut_short_is_named(tmp_path: Path) -> None:
    dtype = np.dtype("<u4")
    write_array(tmp_path / "x.npy", np.arange(9, dtype=dtype))
    file = file_of(tmp_path / "x.npy", 9)
    run = array_rows(file, dtype)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-4])
    with pytest.raises(WenhaiError, match=r"x\.npy"):
        Runs([run], dtype).read()
    with pytest.raises(WenhaiError, match=r"x\.npy"):
        array_rows(File(file.url, 20, "", 9), dtype)


def test_ordinals_are_wider_than_32_bits() -> None:
    shards = [File(f"{i}", 0, "", 2**31) for i in range(5)]
    assert bases(shards).tolist() == [i * 2**31 for i in range(6)]


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=5), st.integers(1, 8))
def test_ranges_of_keys_hold_each_key_whole(runs: list[list[int]], at_once: int) -> None:
    records = np.zeros(sum(map(len, runs)), RECORD_DTYPE)
    records["key"], records["row"] = list(itertools.chain(*map(sorted, runs))), np.arange(len(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpus.dedup.records.PARTITION_RECORDS", at_once)
        patch.setattr("corpus.dedup.records.SAMPLES", min(4, at_once))
        parts = list(key_ranges(records, cuts_of(np.array(list(map(len, runs)), np.int64))))
    assert sorted(np.concatenate(parts).tolist()) == sorted(records.tolist())
    keys = [set(part["key"].tolist()) for part in parts]
    assert all(max(below) < min(above) for below, above in itertools.pairwise(keys) if below and above)
    most = max(Counter(itertools.chain(*runs)).values(), default=0)
    assert all(len(part) <= 4 * at_once + 8 + most for part in parts)


def test_ranges_are_read_from_an_object_store(tmp_path: Path) -> None:
    dtype = np.dtype("<u4")
    write_sections(tmp_path / "x.bin", cuts_of(np.array([2, 0, 3])), [np.arange(5, dtype=dtype)])
    with storage.create("memory://records/x.bin") as path:
        path.write_bytes((tmp_path / "x.bin").read_bytes())
    file = File("memory://records/x.bin", (tmp_path / "x.bin").stat().st_size, "", 5)
    found = [sections([file], first, first + 1, dtype).read().tolist() for first in range(3)]
    assert found == [[0, 1], [], [2, 3, 4]]
    runs = sections([file] * 2, 0, 3, dtype)
    assert [part.tolist() for part in runs.parts()] == [[*range(5)]] * 2
    assert runs.take(np.array([1, 3, 5, 9])).tolist() == [1, 3, 0, 4]
    with storage.create(file.url) as path:
        path.write_bytes((tmp_path / "x.bin").read_bytes()[:-4])
    with pytest.raises(WenhaiError, match=r"memory://records/x\.bin: ends too early"):
        runs.read()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 1 << 32), st.sampled_from([1, 64, 400]))
def test_a_store_gives_what_a_disk_gives(tmp_path: Path, sizes: list[int], seed: int, block_bytes: int) -> None:
    """Pieces of many files, and of one file near to each other or not, any number of bytes at once."""
    dtype, generator = np.dtype([("x", "<i8"), ("y", "u1")]), np.random.default_rng(seed)
    files, remote = [], []
    for i, size in enumerate(sizes):
        records = np.zeros(size, dtype)
        records["x"] = generator.integers(0, 1 << 60, size)
        write_array(tmp_path / f"{i}.npy", records)
        files.append(file_of(tmp_path / f"{i}.npy", size))
        storage.put(f"memory://both/{i}.npy", (tmp_path / f"{i}.npy").read_bytes())
        remote.append(File(f"memory://both/{i}.npy", files[-1].bytes, "", size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpus.dedup.records.BLOCK_BYTES", block_bytes)
        patch.setattr("corpus.dedup.records.GAP_BYTES", block_bytes // 4)
        patch.setattr("corpus.dedup.records.BLOCK_RECORDS", 7)
        near, far = (Runs([array_rows(file, dtype) for file in where], dtype) for where in (files, remote))
        numbers = np.flatnonzero(generator.random(len(near)) < 0.3)
        assert near.read().tobytes() == far.read().tobytes() == b"".join(block.tobytes() for block in far.blocks())
        assert near.take(numbers).tobytes() == far.take(numbers).tobytes() == near.read()[numbers].tobytes()


def test_a_store_is_asked_for_many_pieces_at_once_and_for_near_ones_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits until as many as may be are under way; each piece is asked for once."""
    dtype = np.dtype("<u4")
    write_sections(tmp_path / "x.bin", cuts_of(np.full(300, 1000)), [np.arange(300_000, dtype=dtype)])
    storage.put("memory://many/x.bin", (tmp_path / "x.bin").read_bytes())
    file = File("memory://many/x.bin", (tmp_path / "x.bin").stat().st_size, "", 300_000)
    lock, asked, under_way, most = threading.Condition(), [], 0, 0
    plain = storage.read_into

    def counted(url: str, offset: int, target: memoryview) -> int:
        nonlocal under_way, most
        with lock:
            asked.append(len(target))
            under_way += 1
            most = max(most, under_way)
            lock.notify_all()
            lock.wait_for(lambda: under_way == overlap.IN_FLIGHT or len(asked) > 128 - overlap.IN_FLIGHT, timeout=10)
        found = plain(url, offset, target)
        with lock:
            under_way -= 1
        return found

    monkeypatch.setattr(storage, "read_into", counted)
    runs = sections([file] * 128, 7, 8, dtype)
    assert asked == [16] * 128 and most == overlap.IN_FLIGHT  # two offsets of each file
    asked.clear()
    assert (runs.read().reshape(128, -1) == np.arange(7000, 8000)).all()
    assert asked == [4000] * 128 and most == overlap.IN_FLIGHT
    asked[:] = [0] * 128
    whole = sections([file], 0, 300, dtype)
    wanted = np.array([0, 60_000, 130_000, 130_001, 299_999])
    assert whole.take(wanted).tolist() == wanted.tolist()
    assert sorted(asked[129:]) == [4, 8, 240_004]  # 240 KB lie between the first two, 280 KB and more between others
    monkeypatch.setattr(overlap, "IN_FLIGHT_BYTES", 8000)
    asked[:], most = [0] * 128, 0
    runs.read()
    assert most <= 2

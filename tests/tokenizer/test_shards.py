"""The token shards: bytes frozen by hand, and everything that can be wrong with them refused."""

from __future__ import annotations

import json
import pickle
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpus.engine import durable
from tests.examples import examples
from tests.tokenizer.shard_files import EOD, write
from tokenizer.shards import TokenShard, megatron_index
from tokenizer.shards import writer as shard_writer
from tokenizer.shards.megatron_index import index_parts
from tokenizer.shards.record import BLOCK_BYTES, ShardError, dtype_name, shard_paths
from tokenizer.shards.writer import narrow


def edit_meta(prefix: Path, **changes: Any) -> None:
    path = shard_paths(prefix)[2]
    path.write_bytes(durable.canonical_json(durable.read_json(path) | changes))


def test_bytes_are_megatron_version_1(tmp_path: Path) -> None:
    tokens, idx, _ = shard_paths(write(tmp_path / "a", [[5, 6, 7], [], [999]]))
    assert tokens.read_bytes() == struct.pack("<7H", 5, 6, 7, 1, 1, 999, 1)
    assert idx.read_bytes() == (
        b"MMIDIDX\x00\x00"
        + struct.pack("<Q", 1)
        + struct.pack("<B", 8)
        + struct.pack("<QQ", 3, 4)
        + struct.pack("<3i", 4, 1, 2)
        + struct.pack("<3q", 0, 8, 10)
        + struct.pack("<4q", 0, 1, 2, 3)
    )


def test_int32_bytes(tmp_path: Path) -> None:
    tokens, idx, _ = shard_paths(write(tmp_path / "a", [[70_000], [2]], vocab_size=70_001))
    assert tokens.read_bytes() == struct.pack("<4i", 70_000, 1, 2, 1)
    assert idx.read_bytes()[17] == 4
    assert idx.read_bytes()[34:] == struct.pack("<2i", 2, 2) + struct.pack("<2q", 0, 8) + struct.pack("<3q", 0, 1, 2)


def test_record_is_frozen(tmp_path: Path) -> None:
    meta = durable.read_json(shard_paths(write(tmp_path / "a", [[5, 6, 7], []]))[2])
    assert meta == {
        "format": "wenhai.tokens",
        "version": 1,
        "split": "train",
        "dtype": "uint16",
        "vocab_size": 1000,
        "eod": 1,
        "tokenizer_sha256": "5e" * 32,
        "recipe": "r",
        "num_sequences": 2,
        "num_documents": 2,
        "num_tokens": 5,
        "num_characters": 3,
        "max_id": 7,
        "bin_bytes": 10,
        "idx_bytes": 34 + 8 + 16 + 24,
        "idx_sha256": durable.sha256_file(tmp_path / "a.idx"),
        "block_bytes": 4194304,
        "block_sha256": [durable.sha256_file(tmp_path / "a.bin")],
    }


@given(st.lists(st.lists(st.integers(2, 999), max_size=9), max_size=20), st.sampled_from([1000, 65_499, 65_500, 2**31]))
def test_what_is_written_is_read(documents: list[list[int]], vocab_size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shard = TokenShard(write(Path(folder, "a.b"), documents, vocab_size))
        shard.verify()
        expected = [[*ids, EOD] for ids in documents]
        stream = [token for ids in expected for token in ids]
        assert [shard.sequence(index).tolist() for index in range(shard.num_sequences)] == expected
        assert shard.tokens(0, shard.num_tokens).tolist() == stream
        assert shard.dtype == (np.uint16 if vocab_size < 65_500 else np.int32)
        owners = [index for index, ids in enumerate(expected) for _ in ids]
        assert [shard.sequence_of(offset) for offset in range(shard.num_tokens)] == owners


def test_empty_shard_is_valid(tmp_path: Path) -> None:
    shard = TokenShard(write(tmp_path / "a", []))
    shard.verify()
    assert (shard.num_tokens, shard.num_sequences, shard.tokens(0, 0).tolist()) == (0, 0, [])
    with pytest.raises(IndexError):
        shard.sequence(0)


def test_reading_outside_is_refused(tmp_path: Path) -> None:
    shard = TokenShard(write(tmp_path / "a", [[5, 6]]))
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(IndexError):
            shard.tokens(start, stop)
    for read in (shard.sequence, shard.sequence_of):
        for offset in (-1, 3):
            with pytest.raises(IndexError):
                read(offset)
    with pytest.raises(ValueError, match="read-only"):
        shard.tokens(0, 1)[0] = 3


def test_pickling_carries_the_path_and_not_the_tokens(tmp_path: Path) -> None:
    shard = TokenShard(write(tmp_path / "a", [list(range(2, 900))] * 50))
    data = pickle.dumps(shard)
    assert len(data) < 1000
    assert pickle.loads(data).sequence(49).tolist() == shard.sequence(49).tolist()


@given(
    st.one_of(st.integers(65_490, 65_545), st.integers(-3, 3), st.integers(2**31 - 3, 2**31 + 3), st.integers()),
    st.sampled_from([10, 65_499, 65_500, 65_536, 65_537, 2**31]),
)
@examples(200)
def test_an_id_is_kept_or_refused_but_never_wrapped(id: int, vocab_size: int) -> None:
    for ids in ([id], [0, id]):
        if 0 <= id < vocab_size:
            assert narrow(ids, vocab_size, "document x").tolist() == ids
        else:
            with pytest.raises(ShardError, match="document x"):
                narrow(ids, vocab_size, "document x")


@given(st.lists(st.lists(st.integers(2, 999), max_size=9), max_size=20), st.data())
def test_many_documents_are_written_as_one_after_another(documents: list[list[int]], data: st.DataObject) -> None:
    ids = np.array([id for some in documents for id in (*some, EOD)], np.uint16)
    lengths = np.array([len(some) + 1 for some in documents], np.int64)
    cut = data.draw(st.integers(0, len(documents)))
    split = int(lengths[:cut].sum())
    with tempfile.TemporaryDirectory() as folder:
        identity = {"split": "train", "vocab_size": 1000, "eod": EOD, "tokenizer_sha256": "5e" * 32, "recipe": "r"}
        write(Path(folder, "a"), documents)
        with shard_writer.create_shard(Path(folder, "b"), **identity) as writer:
            writer.add_many(ids[:split], lengths[:cut], sum(map(len, documents[:cut])))
            writer.add_many(ids[split:].astype(np.int64), lengths[cut:], sum(map(len, documents[cut:])))
        for one, other in zip(shard_paths(Path(folder, "a")), shard_paths(Path(folder, "b")), strict=True):
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("ids", "lengths"),
    [
        ([5, EOD, 6, 1000, EOD], [2, 3]),
        ([5, EOD, -1, EOD], [2, 2]),
        ([5, EOD, 6, EOD], [3, 1]),  # an end inside a document, and none at its own
        ([5, EOD, 6, 7], [2, 2]),
        ([5, EOD, EOD, 6, EOD], [2, 3]),
        ([5, EOD, 6, EOD], [2, 1]),
        ([5, EOD, 6, EOD], [2, 3]),
        ([5, EOD, 6, EOD], [2, 0, 2]),
        ([5, EOD, 6, EOD], [4, -2, 2]),
        ([5, EOD, 6], [2]),
        ([5, EOD], []),
        ([], [1]),
        ([5.0, EOD], [2]),
    ],
)
def test_many_documents_that_are_not_what_they_say_are_refused(
    tmp_path: Path, ids: list[int], lengths: list[int]
) -> None:
    with (
        pytest.raises(ShardError, match="documents 1 to"),
        shard_writer.create_shard(tmp_path / "a", split="", vocab_size=1000, eod=EOD, tokenizer_sha256="") as writer,
    ):
        writer.add([7])
        writer.add_many(np.array(ids), np.array(lengths, np.int64))
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_beyond_int32_is_refused() -> None:
    with pytest.raises(ShardError, match="int32"):
        narrow([5], 2**31 + 1, "document x")


def test_wide_arrays_are_checked_before_the_cast() -> None:
    for dtype in (np.int64, np.uint64, np.uint32):
        with pytest.raises(ShardError, match="70000"):
            narrow(np.array([3, 70_000], dtype=dtype), 65_499, "document x")
    for ids in ([1.5], [True], [[1]], ["1"], 3):
        with pytest.raises(ShardError, match="not a list of integers"):
            narrow(ids, 100, "document x")


def test_writer_names_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ShardError, match="document doc1: token id 1000"):
        write(tmp_path / "a", [[5], [1000]])
    with pytest.raises(ShardError, match="document doc0: holds the end-of-document token"):
        write(tmp_path / "a", [[5, EOD, 6]])
    monkeypatch.setattr(shard_writer, "MAX_LENGTH", 4)
    with pytest.raises(ShardError, match="document doc1: 4 tokens"):
        write(tmp_path / "a", [[5] * 3, [5] * 4])
    assert list(tmp_path.iterdir()) == []  # nothing half made stays behind


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shard whose index tests damage and mend again."""
    return write(tmp_path_factory.mktemp("small") / "a", [[5, 6, 7], [], [8]])


USES: list[Callable[[TokenShard], object]] = [
    lambda shard: shard.lengths,
    lambda shard: shard.pointers,
    lambda shard: shard.documents,
    lambda shard: shard.sequence(0),
    lambda shard: shard.bounds(0),
    lambda shard: shard.sequence_of(0),
    lambda shard: shard.verify(),
]


@given(changes=st.lists(st.tuples(st.integers(0, 34 + 3 * 4 + 3 * 8 + 4 * 8 - 1), st.integers(1, 255)), max_size=3))
@examples(150)
def test_any_changed_byte_of_an_index_is_refused_before_it_is_used(small: Path, changes: list[tuple[int, int]]) -> None:
    """The header at open, the tables at first use, by whichever method comes first."""
    path = shard_paths(small)[1]
    clean = path.read_bytes()
    index = bytearray(clean)
    for position, bits in changes:
        index[position] ^= bits
    try:
        path.write_bytes(index)
        if bytes(index) == clean:
            assert TokenShard(small).sequence(2).tolist() == [8, EOD]
        elif index[:34] != clean[:34]:
            with pytest.raises(ShardError, match=r"a\.idx: offset \d+"):
                TokenShard(small)
        else:
            for use in USES:
                shard = TokenShard(small)
                for _ in range(2):  # what was refused once is refused again
                    with pytest.raises(ShardError, match=r"a\.idx: offset \d+"):
                        use(shard)
    finally:
        path.write_bytes(clean)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_index(small: Path, junk: bytes) -> None:
    paths = shard_paths(small)[1:]
    clean = [path.read_bytes() for path in paths]
    try:
        paths[0].write_bytes(junk)
        paths[1].write_bytes(durable.canonical_json(json.loads(clean[1]) | {"idx_bytes": len(junk)}))
        with pytest.raises(ShardError):
            TokenShard(small)
    finally:
        for path, data in zip(paths, clean, strict=True):
            path.write_bytes(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_sequences": 2**62, "num_documents": 2**62, "idx_bytes": 34 + 8 + 2**62 * 20},  # counts x size overflow
        {"num_sequences": 2**60, "num_documents": 2**60},
        {"num_tokens": 2**63 - 1, "bin_bytes": -2},
        {"num_tokens": 2**62, "bin_bytes": 2**63},
        {"num_tokens": -1},
        {"num_tokens": True},
        {"num_tokens": 6.0},
        {"num_tokens": "6"},
        {"num_characters": -1},
        {"dtype": "int32"},
        {"dtype": "float64"},
        {"vocab_size": 70_000},
        {"vocab_size": 0},
        {"eod": 1000},
        {"eod": -1},
        {"max_id": 1000},
        {"max_id": -1},
        {"block_bytes": 0},
        {"block_bytes": 1},
        {"block_sha256": []},
        {"block_sha256": [1]},
        {"block_sha256": "5e"},
        {"format": "other"},
        {"version": 2},
        {"unknown": 1},
        {"num_documents": 2},
    ],
)
def test_a_record_that_lies_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    prefix = write(tmp_path / "a", [[5, 6, 7], [], [8]])
    TokenShard(prefix)
    edit_meta(prefix, **changes)
    with pytest.raises(ShardError, match=r"a\.(meta\.json|bin|idx): offset"):
        TokenShard(prefix)


def test_records_that_are_not_records(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", [[5]])
    meta = shard_paths(prefix)[2]
    good = json.loads(meta.read_bytes())
    for bad in (b"", b"[]", b"3", b'{"a": NaN}', b"[" * 100_000, json.dumps({"format": "wenhai.tokens"}).encode()):
        meta.write_bytes(bad)
        with pytest.raises(durable.WenhaiError, match=r"a\.meta\.json"):
            TokenShard(prefix)
    del good["eod"]
    meta.write_text(json.dumps(good))
    with pytest.raises(ShardError, match="eod"):
        TokenShard(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx", ".meta.json"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    prefix = write(tmp_path / "a", [[5, 6, 7]])
    (tmp_path / f"a{suffix}").unlink()
    with pytest.raises(ShardError, match=rf"a{suffix}"):
        TokenShard(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
@pytest.mark.parametrize("change", [-1, -8, 1, 8])
def test_truncated_and_extended_files_are_refused(tmp_path: Path, suffix: str, change: int) -> None:
    prefix = write(tmp_path / "a", [[5, 6, 7], [8, 9]])
    path = tmp_path / f"a{suffix}"
    data = path.read_bytes()
    path.write_bytes(data[:change] if change < 0 else data + bytes(change))
    with pytest.raises(ShardError, match=rf"a{suffix}: offset \d+: .* bytes"):
        TokenShard(prefix)


def test_verify_names_the_block_of_a_flipped_bit(tmp_path: Path) -> None:
    ids = np.arange(2, 800).repeat(9000)  # 3.4 blocks
    prefix = write(tmp_path / "a", [ids, [5]])
    TokenShard(prefix).verify()
    clean = (tmp_path / "a.bin").read_bytes()
    for position in (0, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7, len(clean) - 1):
        damaged = bytearray(clean)
        damaged[position] ^= 4
        (tmp_path / "a.bin").write_bytes(damaged)
        shard = TokenShard(prefix)  # opening does not read tokens
        with pytest.raises(ShardError, match=rf"a\.bin: offset {position // BLOCK_BYTES * BLOCK_BYTES}:"):
            shard.verify()


def test_verify_finds_ids_outside_the_vocabulary(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", [[5, 900]])
    edit_meta(prefix, vocab_size=600, max_id=599)
    with pytest.raises(ShardError, match=r"outside 0\.\.599"):
        TokenShard(prefix).verify()
    edit_meta(prefix, vocab_size=1000, max_id=999)
    with pytest.raises(ShardError, match="max_id"):
        TokenShard(prefix).verify()


def test_verify_checks_the_index(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", [[5, 900]])
    edit_meta(prefix, idx_sha256="00" * 32)
    with pytest.raises(ShardError, match=r"a\.idx"):
        TokenShard(prefix).verify()


def sparse_shard(prefix: Path, lengths: NDArray[np.int64], vocab_size: int, index: bytes) -> TokenShard:
    """A shard of zeros that takes a few pages on disk, with the given index; its last eleven tokens are 10 to 20."""
    write(prefix, [], vocab_size)
    tokens, idx, _ = shard_paths(prefix)
    itemsize, total = (2 if vocab_size < 65_500 else 4), int(lengths.sum())
    idx.write_bytes(index)
    with open(tokens, "wb") as file:
        file.truncate(itemsize * total)
        file.seek(itemsize * (total - 11))
        file.write(np.arange(10, 21, dtype=f"<i{itemsize}").tobytes())
    counts = {"num_sequences": len(lengths), "num_documents": len(lengths), "num_tokens": total, "max_id": 20}
    sizes = {"bin_bytes": itemsize * total, "idx_bytes": len(index), "idx_sha256": durable.sha256_file(idx)}
    edit_meta(prefix, **counts, **sizes, block_sha256=["00" * 32] * -(-itemsize * total // BLOCK_BYTES))
    return TokenShard(prefix)


@pytest.mark.parametrize("vocab_size", [1000, 70_000])
def test_more_tokens_than_int32_counts(tmp_path: Path, vocab_size: int) -> None:
    """2^31 + 10 tokens: 4.3 GB of uint16, 8.6 GB of int32."""
    lengths = np.array([2**31 - 1, 2, 9])
    total = int(lengths.sum())
    index = b"".join(index_parts(lengths, dtype_name(vocab_size)))
    shard = sparse_shard(tmp_path / "a", lengths, vocab_size, index)
    assert shard.num_tokens == total > 2**31
    assert shard.pointers.tolist() == [0, shard.dtype.itemsize * (2**31 - 1), shard.dtype.itemsize * (2**31 + 1)]
    assert shard.sequence(1).tolist() == [10, 11]
    assert shard.sequence(2).tolist() == list(range(12, 21))
    assert shard.bounds(2) == (2**31 + 1, total)
    assert shard.tokens(total - 3, total).tolist() == [18, 19, 20]
    assert [shard.sequence_of(offset) for offset in (0, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, total - 1)] == [
        *[0, 0, 1, 1, 2, 2]
    ]


def test_pointers_that_wrapped_at_32_bits_are_refused(tmp_path: Path) -> None:
    """What writers made that summed lengths as int32."""
    lengths = np.array([2**31 - 1, 2, 9])
    index = bytearray(b"".join(index_parts(lengths, "uint16")))
    place = 34 + 3 * 4 + 2 * 8
    [pointer] = struct.unpack_from("<q", index, place)
    struct.pack_into("<q", index, place, pointer - 2**32)
    shard = sparse_shard(tmp_path / "a", lengths, 1000, bytes(index))
    with pytest.raises(ShardError, match=rf"a\.idx: offset {place}: a pointer"):
        shard.sequence(2)


def test_an_index_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.arange(1, 12)
    whole = b"".join(index_parts(lengths, "int32"))
    for rows in (1, 3, 11):
        monkeypatch.setattr(megatron_index, "CHUNK_ROWS", rows)
        assert b"".join(index_parts(lengths, "int32")) == whole
    assert np.frombuffer(whole, "<i8", 11, 34 + 44).tolist() == (4 * (np.cumsum(lengths) - lengths)).tolist()

"""The loader over real shard files: a flipped bit stops it, memory stays flat, and what it gives is what was written.

`write_folder` makes a small folder of token shards as the tokens stage leaves it; other tests use it too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.engine import durable
from corpus.engine.manifest import commit_files
from pretrain.data import Loader, ShardReader, data_digest
from pretrain.data import reader as reader_module
from pretrain.data.reader import FilePool
from tests.pretrain.data.shards import needs_proc, stream_of
from tokenizer.shards import TokenShard, open_split
from tokenizer.shards.provenance import SCHEMA
from tokenizer.shards.record import BLOCK_BYTES, ShardError
from tokenizer.shards.writer import create_shard

EOD = 1
BLOCK_TOKENS = BLOCK_BYTES // 2

Document = tuple[str, str | None, Sequence[int]]  # id in hexadecimal, URL, tokens without the end


def write_folder(
    folder: Path,
    shards: dict[str, list[Document]],
    vocab_size: int = 100,
    eod: int = EOD,
    tokenizer_sha256: str = "0" * 64,
) -> Path:
    """Shards by name (`00000-00-train`), their document tables and the manifest that lists them."""
    (folder / "data").mkdir(parents=True)
    for name, documents in shards.items():
        split = name.rsplit("-", 1)[1]
        identity: dict[str, Any] = {"vocab_size": vocab_size, "eod": eod, "tokenizer_sha256": tokenizer_sha256}
        with create_shard(folder / "data" / name, split=split, **identity) as writer:
            for _, _, tokens in documents:
                writer.add(np.asarray(tokens, dtype=np.int64), num_characters=len(tokens))
        columns = {
            "sequence": range(len(documents)),
            "id": [bytes.fromhex(key) for key, _, _ in documents],
            "url": [url for _, url, _ in documents],
            "source": [name[:5]] * len(documents),
            "num_tokens": [len(tokens) + 1 for _, _, tokens in documents],
        }
        pq.write_table(
            pa.table(columns, schema=SCHEMA),
            folder / "data" / f"{name}.docs.parquet",
            row_group_size=3,
            write_page_checksum=True,
        )
    files = {
        f"data/{path.name}": {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path)}
        for path in sorted((folder / "data").iterdir())
    }
    commit_files(str(folder), files, "tokens")
    return folder


def numbered(num_documents: int, seed: int, max_tokens: int = 12) -> list[Document]:
    """Documents of random tokens and lengths, some of them empty."""
    rng = np.random.default_rng(seed)
    return [
        (f"{seed:016x}{number:016x}", None, rng.integers(2, 100, rng.integers(0, max_tokens)).tolist())
        for number in range(num_documents)
    ]


def test_an_epoch_over_files_is_what_was_written(tmp_path: Path) -> None:
    documents = {f"{shard:05}-00-train": numbered(9, shard) for shard in range(4)}
    folder = write_folder(tmp_path / "tokens", documents | {"00002-00-validation": numbered(3, 9)})
    loader = Loader([stream_of(folder, "train", 5, 3)])
    stream = [token for shard in documents.values() for _, _, tokens in shard for token in [*tokens, EOD]]
    assert loader.num_tokens == len(stream)
    batch = loader.batch(0, loader.num_samples_per_epoch)
    order = np.argsort(stream_of(folder, "train", 5, 3).windows(0, loader.num_samples_per_epoch))
    assert batch.tokens[order].ravel().tolist() == stream[: 5 * loader.num_samples_per_epoch]
    assert batch.targets[order].ravel().tolist() == stream[1 : 5 * loader.num_samples_per_epoch + 1]
    assert batch.tokens.dtype == batch.targets.dtype == np.int64


def one_large_shard(folder: Path) -> Path:
    """A shard of two blocks and a bit of a third."""
    tokens = np.random.default_rng(0).integers(2, 100, 2 * BLOCK_TOKENS + 1000)
    return write_folder(folder, {"00000-00-train": [("00" * 16, None, tokens.tolist())]})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_large_shard(tmp_path_factory.mktemp("large") / "tokens")


def test_a_flipped_bit_is_found_before_its_block_is_used(large: Path) -> None:
    path = large / "data" / "00000-00-train.bin"
    (shard,) = open_split(large, "train")
    for block, offset in ((0, 0), (1, BLOCK_BYTES), (1, 2 * BLOCK_BYTES - 1), (2, 2 * BLOCK_BYTES + 2001)):
        with open(path, "r+b") as file:
            file.seek(offset)
            good = file.read(1)
            file.seek(offset)
            file.write(bytes([good[0] ^ 4]))
        try:
            checked = ShardReader(TokenShard(shard.prefix))
            where = rf"00000-00-train\.bin: offset {block * BLOCK_BYTES}: the checksum of block {block}"
            with pytest.raises(ShardError, match=where):
                checked.tokens(block * BLOCK_TOKENS + 500, block * BLOCK_TOKENS + 501)
            with pytest.raises(ShardError, match=where):
                checked.tokens(0, checked.num_tokens)
            for other in {0, 1, 2} - {block}:
                assert len(checked.tokens(other * BLOCK_TOKENS, other * BLOCK_TOKENS + 900)) == 900
        finally:
            with open(path, "r+b") as file:
                file.seek(offset)
                file.write(good)
    assert len(ShardReader(TokenShard(shard.prefix)).tokens(0, shard.num_tokens)) == shard.num_tokens


def test_a_block_is_hashed_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shard,) = open_split(large, "train")
    checked = ShardReader(shard)
    hashed: list[int] = []
    check = ShardReader._check

    def noted(self: ShardReader, block: int) -> None:
        hashed.append(block)
        check(self, block)

    monkeypatch.setattr(ShardReader, "_check", noted)
    checked.tokens(5, 6)
    checked.tokens(0, BLOCK_TOKENS)
    assert hashed == [0]
    checked.tokens(BLOCK_TOKENS - 1, BLOCK_TOKENS + 1)
    checked.tokens(BLOCK_TOKENS, BLOCK_TOKENS + 1)
    assert hashed == [0, 1]


def test_a_file_truncated_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokens", {"00000-00-train": numbered(50, 0)})
    (shard,) = open_split(folder, "train")
    for verify in (True, False):
        reader = ShardReader(shard, verify)
        whole = shard.bin_path.read_bytes()
        shard.bin_path.write_bytes(whole[:100])
        with pytest.raises(ShardError, match=r"00000-00-train\.bin: ends at offset 100"):
            reader.tokens(40, 60)
        shard.bin_path.write_bytes(whole)
        assert len(reader.tokens(40, 60)) == 20


def test_a_file_that_is_gone_or_unreadable_is_an_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokens", {"00000-00-train": numbered(50, 0)})
    (shard,) = open_split(folder, "train")
    reader = ShardReader(shard)
    shard.bin_path.rename(tmp_path / "elsewhere")
    with pytest.raises(
        ShardError, match=r"00000-00-train\.bin: cannot be read \(No such file or directory\)\. Restore"
    ):
        reader.tokens(0, 9)
    shard.bin_path.mkdir()
    with pytest.raises(ShardError, match=r"00000-00-train\.bin: cannot be read \(Is a directory\)\. Restore"):
        reader.tokens(0, 9)


@pytest.fixture
def readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ShardReader]:
    """Readers of five shards that share room for two open files."""
    monkeypatch.setattr(reader_module, "FILES", FilePool(2))
    folder = write_folder(tmp_path / "tokens", {f"{shard:05}-00-train": numbered(200, shard) for shard in range(5)})
    return [ShardReader(shard) for shard in open_split(folder, "train")]


def open_files(readers: Sequence[ShardReader]) -> set[int]:
    """The numbers of the readers whose files this process has open."""
    paths = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {number for number, reader in enumerate(readers) if str(reader.shard.bin_path) in paths}


@needs_proc
def test_the_least_recently_used_file_is_closed(readers: list[ShardReader]) -> None:
    assert open_files(readers) == set()
    for number, expected in ((0, {0}), (1, {0, 1}), (0, {0, 1}), (2, {0, 2}), (4, {2, 4}), (0, {0, 4})):
        assert len(readers[number].tokens(3, 9)) == 6
        assert open_files(readers) == expected


@needs_proc
def test_a_reader_that_is_gone_leaves_no_file_open(readers: list[ShardReader]) -> None:
    shards = [reader.shard for reader in readers]
    readers[1].tokens(0, 1)
    readers[2].tokens(0, 1)
    del readers[1]
    others = [ShardReader(shard) for shard in shards]
    assert open_files(others) == {2}


@needs_proc
def test_a_file_stays_open_while_it_is_read(readers: list[ShardReader]) -> None:
    """Else its number could be that of another file when the read begins."""
    readers[0].tokens(0, 1)
    file = reader_module.FILES.get(id(readers[0]))
    assert file is not None
    readers[1].tokens(0, 1)
    readers[2].tokens(0, 1)
    assert open_files(readers) == {0, 1, 2}
    del file
    assert open_files(readers) == {1, 2}


def test_threads_that_push_out_each_others_files_read_their_own(readers: list[ShardReader]) -> None:
    whole = [reader.tokens(0, reader.num_tokens).copy() for reader in readers]

    def reads_right(turn: int) -> bool:
        number, start = turn % 5, turn % 300
        return np.array_equal(readers[number].tokens(start, start + 50), whole[number][start : start + 50])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(reads_right, range(2000)))


def test_a_file_replaced_while_it_is_in_use_is_an_error(readers: list[ShardReader]) -> None:
    """Its blocks are checked already: the new one's would be read unchecked."""
    path = readers[0].shard.bin_path
    readers[0].tokens(0, readers[0].num_tokens)
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    os.utime(other, (1, 1))
    other.replace(path)
    assert len(readers[0].tokens(3, 9)) == 6, "the file that was checked is still open"
    readers[1].tokens(0, 1)
    readers[2].tokens(0, 1)
    with pytest.raises(ShardError, match=r"00000-00-train\.bin: was replaced or written to"):
        readers[0].tokens(3, 9)


def test_short_reads_are_read_on(readers: list[ShardReader], monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a signal, or beyond 2 GiB at once."""
    expected = readers[0].tokens(5, 300).copy()
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda file, parts, offset: preadv(file, [memoryview(parts[0]).cast("B")[:7]], offset)
    )
    assert np.array_equal(readers[0].tokens(5, 300), expected)


def test_data_is_known_by_the_checksums_of_its_tokens(tmp_path: Path) -> None:
    def digest_of(folder: str, seeds: list[int]) -> str:
        shards = {f"{number:05}-00-train": numbered(5, seed) for number, seed in enumerate(seeds)}
        return data_digest(open_split(write_folder(tmp_path / folder, shards), "train"))

    first = digest_of("a", [1, 2])
    assert first == digest_of("b", [1, 2])
    assert first != digest_of("c", [2, 1]), "the order of shards is part of it"
    assert first != digest_of("d", [1])

"""The loader over real shard files: a flipped bit stops it, memory stays flat, and what it gives is what was written.

`write_folder` makes a small folder of token shards as the tokens stage leaves it; other tests use it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus.engine import durable
from pretrain.data import ShardReader, data_digest, open_loader
from tests.pretrain.data.test_loader import needs_proc, resident_kib
from tokenizer.encode import DOCS_SCHEMA
from tokenizer.shard_writer import create_shard
from tokenizer.shards import BLOCK_BYTES, ShardError, TokenShard, open_split

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
            pa.table(columns, schema=DOCS_SCHEMA),
            folder / "data" / f"{name}.docs.parquet",
            row_group_size=3,
            write_page_checksum=True,
        )
    files = {
        f"data/{path.name}": {"bytes": path.stat().st_size, "sha256": durable.sha256_file(path)}
        for path in sorted((folder / "data").iterdir())
    }
    durable.write_json(folder / "MANIFEST.json", {"files": files})
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
    loader = open_loader(folder, "train", sequence_length=5, seed=3)
    stream = [token for shard in documents.values() for _, _, tokens in shard for token in [*tokens, EOD]]
    assert loader.num_tokens == len(stream)
    batch = loader.batch(0, loader.num_windows)
    order = np.argsort(loader.windows(0, loader.num_windows))
    assert batch.tokens[order].ravel().tolist() == stream[: 5 * loader.num_windows]
    assert batch.targets[order].ravel().tolist() == stream[1 : 5 * loader.num_windows + 1]
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


def test_open_loader_verifies_unless_told_not_to(large: Path) -> None:
    for verify in (True, False):
        loader = open_loader(large, "train", 128, 0, verify)
        for shard in loader.shards:
            assert isinstance(shard, ShardReader)
            assert list(shard.is_checked) == [not verify] * 3


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


@needs_proc
def test_memory_stays_flat_over_files(large: Path) -> None:
    """All resident memory, that of mapped files included: nothing an epoch touches may stay."""
    loader = open_loader(large, "train", sequence_length=128, seed=0)
    loader.batch(0, loader.num_windows // 8)
    before = resident_kib()
    for start in range(0, 2 * loader.num_windows, 64):
        loader.batch(start, 64)
    assert resident_kib() - before < 4_096, "the tokens are 8 MiB"


def test_data_is_known_by_the_checksums_of_its_tokens(tmp_path: Path) -> None:
    def digest_of(folder: str, seeds: list[int]) -> str:
        shards = {f"{number:05}-00-train": numbered(5, seed) for number, seed in enumerate(seeds)}
        return data_digest(open_split(write_folder(tmp_path / folder, shards), "train"))

    first = digest_of("a", [1, 2])
    assert first == digest_of("b", [1, 2])
    assert first != digest_of("c", [2, 1]), "the order of shards is part of it"
    assert first != digest_of("d", [1])

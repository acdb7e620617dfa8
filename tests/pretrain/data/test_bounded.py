"""Ten corpora of a thousand shards: little is opened, nothing is mapped, and memory does not grow with what is read."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from corpus.engine import durable
from corpus.engine.manifest import commit_files
from pretrain.data import Batch, Blend, Loader, ShardReader, Stream
from pretrain.data.reader import MAX_OPEN_FILES
from tests.pretrain.data.shards import HugeShard, needs_proc, num_descriptors, num_maps, resident_kib
from tests.pretrain.data.test_reader import numbered, write_folder
from tests.pretrain.ranks import run_ranks
from tokenizer.shards import TokenShard, open_split
from tokenizer.shards.manifest import listed_files
from tokenizer.shards.record import BLOCK_BYTES

NUM_CORPORA, NUM_SHARDS = 10, 1000
MAX_GROWTH_KIB = 4_096  # 9,000 samples of 64 tokens take 6,800 and more
SUFFIXES = (".bin", ".idx", ".meta.json", ".docs.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand shards: one written, and its files under other names."""
    folder = write_folder(tmp_path_factory.mktemp("bounded") / "tokens", {"00000-00-train": numbered(300, 0)})
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": sha256}
        for name, sha256 in listed_files(folder).items()
    }
    for number in range(1, NUM_SHARDS):
        for suffix in SUFFIXES:
            name = f"data/{number:05}-00-train{suffix}"
            os.link(folder / f"data/00000-00-train{suffix}", folder / name)
            files[name] = files[f"data/00000-00-train{suffix}"]
    commit_files(str(folder), files, "tokens")
    return folder


def open_corpora(folder: Path, num_corpora: int) -> Loader:
    """The same shards several times, each time with readers of their own."""
    shards = open_split(folder, "train")
    names = [f"corpus{number}" for number in range(num_corpora)]
    streams = [Stream([ShardReader(shard) for shard in shards], 64, seed=1, name=name) for name in names]
    blend = Blend([Fraction(1, number + 1) for number in range(num_corpora)], names)
    return Loader(streams, blend, document_mask=True, reset_positions=True, prefix_lm=True)


@needs_proc
def test_ten_thousand_shards_open_nothing_and_then_few_files(folder: Path) -> None:
    gc.collect()
    descriptors, maps = num_descriptors(), num_maps()
    loader = open_corpora(folder, NUM_CORPORA)
    assert sum(len(stream.shards) for stream in loader.streams) == NUM_CORPORA * NUM_SHARDS
    assert num_descriptors() == descriptors, "opening opens nothing"
    for start in range(0, 2000, 50):
        loader.batch(start, 50)
    assert num_descriptors() == descriptors + MAX_OPEN_FILES, "2,000 samples of ever other shards"
    assert num_maps() < maps + 100, "the allocator's own, not one a shard"
    del loader
    gc.collect()
    assert num_descriptors() == descriptors


def least_growth(batch: Callable[[int, int], Batch], num_samples: int, times: int = 3) -> int:
    """The smallest `growth` of a few: what is kept grows each time, what the allocator of a long process does, does
    not."""
    return min(growth(batch, num_samples) for _ in range(times if num_samples < 100_000 else 1))


def growth(batch: Callable[[int, int], Batch], num_samples: int) -> int:
    """KiB of resident memory that come on with `num_samples` samples, after a third as many to warm up."""
    warm = num_samples // 3
    for start in range(0, warm, 50):
        batch(start, 50)
    before = resident_kib()
    for start in range(warm, warm + num_samples, 50):
        batch(start, 50)
    return resident_kib() - before


NUM_SAMPLES = [
    pytest.param(9_000, id="short"),
    pytest.param(1_000_000, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
]


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("num_samples", NUM_SAMPLES)
def test_memory_is_flat_over_many_samples_of_many_shards(folder: Path, num_samples: int) -> None:
    loader = open_corpora(folder, num_corpora=2)
    for stream in loader.streams:
        for shard in stream.shards:
            shard.tokens(0, 1)  # each block is read once, as in a first epoch
    assert least_growth(loader.batch, num_samples) < MAX_GROWTH_KIB


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("num_samples", NUM_SAMPLES)
def test_memory_is_flat_over_long_windows_of_a_huge_blend(num_samples: int) -> None:
    shards = [HugeShard(2**36 + number) for number in range(2000)]
    streams = [Stream(shards, 256, name=name) for name in ("web", "books", "code")]
    loader = Loader(streams, Blend([Fraction(1, 3), Fraction(1, 5), Fraction(1, 7)]))
    assert least_growth(loader.batch, num_samples) < MAX_GROWTH_KIB


@pytest.mark.long
@needs_proc
def test_a_loader_that_keeps_what_it_read_would_be_seen() -> None:
    (found,) = run_ranks(growth_of_what_is_kept, 1)  # other tests' memory, given back meanwhile, would hide it
    assert found > MAX_GROWTH_KIB


def growth_of_what_is_kept() -> int:
    loader, kept = Loader([Stream([HugeShard(2**40)], 64)]), []

    def batch(start: int, count: int) -> Batch:
        kept.append(loader.batch(start, count))
        return kept[-1]

    return least_growth(batch, 9_000)


def test_the_end_of_a_file_beyond_two_to_the_thirty_two_bytes(tmp_path: Path) -> None:
    """A sparse shard of 2^31 + 4,999 tokens of two bytes: its last window, checksums and all, from the disk."""
    num_tokens, tail = 2**31 + 4_999, np.arange(5_000) % 90 + 2
    folder = write_folder(tmp_path / "tokens", {"00000-00-train": [("00" * 16, None, tail.tolist()[:-1])]}, eod=99)
    prefix = folder / "data" / "00000-00-train"
    with open(f"{prefix}.bin", "r+b") as file:
        file.truncate(0)
        file.truncate(2 * num_tokens)
        file.seek(2 * (num_tokens - len(tail)))
        file.write(tail.astype("<u2").tobytes())
    blocks = [hashlib.sha256(bytes(BLOCK_BYTES)).hexdigest()] * (2 * num_tokens // BLOCK_BYTES)
    last = 2 * num_tokens - len(blocks) * BLOCK_BYTES
    blocks.append(hashlib.sha256((bytes(last) + tail.astype("<u2").tobytes())[-last:]).hexdigest())
    record = durable.read_json(Path(f"{prefix}.meta.json"))
    record |= {"num_tokens": num_tokens, "bin_bytes": 2 * num_tokens, "block_sha256": blocks}
    durable.write_json(Path(f"{prefix}.meta.json"), record)

    stream = Stream([ShardReader(TokenShard(prefix))], 1000, seed=4)
    loader = Loader([stream])
    (sample,) = stream.samples(0, num_tokens - stream.num_dropped_tokens - 1, num_tokens, stream.num_samples)
    ((_, (span,)),) = loader.origins(sample, 1)
    assert span.stop == num_tokens - stream.num_dropped_tokens > 2**31
    batch = loader.batch(sample, 1)
    expected = tail[len(tail) - (num_tokens - span.start) :][:1001]
    assert [*batch.tokens[0].tolist(), batch.targets[0, -1]] == expected.tolist()

"""The loader beside Megatron-Core's GPTDataset: start-up time, memory, reading speed, and memory over a million
samples.

Both read the same shard of half a billion random tokens (1 GB, just written, so in the page cache) in documents of
about a thousand tokens, in runs of 10^6 samples and more of 2,048 tokens, which is as many epochs as it takes. Every
figure is of a process of its own, on one core, beyond what it held after its imports. Start-up ends with the first
sample; the caches of GPTDataset are built in it, as in the first start of a run. Speed is of CPU time, over samples in
the run's order, with every block checked (ours) or every page mapped (GPTDataset) before. Our batches hold tokens,
targets and document ids; its samples tokens, labels, a loss mask and positions.
"""

from __future__ import annotations

import json
import os
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from corpus.engine import durable
from corpus.engine.manifest import commit_files
from pretrain.data import Blend, Loader, ShardReader, Stream
from pretrain.data.megatron import open_megatron
from tokenizer.shards import open_split
from tokenizer.shards.writer import create_shard
from tools.bench import timing
from tools.bench.peers.environment import MEGATRON
from tools.bench.timing import in_child, one_core
from tools.plot import Line, write_lines

NUM_TOKENS = 1 << 29
DOCUMENT_TOKENS = 1_000  # about; their logarithms are normal, as those of web pages are
VOCAB_SIZE = 60_000
EOD = 0
SEQUENCE_LENGTH = 2_048
BATCH = 8  # samples
SEED = 1234
NUM_READ = 20_000  # samples, for the speed
NUM_PLOTTED = 1_000_000  # samples, for the memory
NUM_POINTS = 20
MAX_BUILT_SAMPLES = 10_000_000  # of Megatron's order by us: more takes minutes
MAX_PEER_SAMPLES = 100_000_000  # more would take more memory than this is run with
NUM_CORPORA, NUM_SHARDS = 10, 1_000  # of the corpora that are only opened

Measured = dict[str, Any]


def run(arguments: Namespace) -> None:
    """Print the tables, and draw the memory over samples if asked to; works in a folder below `--data` or TMPDIR."""
    with_peer = has_peer(arguments.peers)
    with tempfile.TemporaryDirectory(prefix="wenhai-bench-", dir=arguments.data) as folder:
        with one_core():
            corpus = write_corpus(Path(folder, "corpus"), NUM_TOKENS)
            compare(corpus, arguments.samples, with_peer)
            many = write_many(Path(folder, "many"))
            print_row(f"{NUM_CORPORA} corpora of {NUM_SHARDS:,} shards", in_child(open_many, many))
        if arguments.plot:
            plot(arguments.plot, corpus, with_peer)


def has_peer(install: bool) -> bool:
    """Whether megatron-core can be run; installs it if asked to."""
    if install:
        MEGATRON.install()
    if MEGATRON.is_installed():
        return True
    print("megatron-core is not installed: --peers installs it below build/peers")
    return False


def compare(corpus: Path, sizes: Sequence[int], with_peer: bool) -> None:
    """A row for each size of run: our order, Megatron's order by us, and by megatron-core."""
    print(f"{'':<44}{'start-up':>10}{'memory':>12}{'speed':>17}")
    for num_samples in sizes:
        print_row(f"ours, {num_samples:,} samples", in_child(read_ours, corpus, num_samples))
    for num_samples in (size for size in sizes if size <= MAX_BUILT_SAMPLES):
        what = f"ours, Megatron's order, {num_samples:,} samples"
        print_row(what, in_child(read_ours, corpus, num_samples, "megatron"))
    for num_samples in (size for size in sizes if size <= MAX_PEER_SAMPLES and with_peer):
        print_row(f"GPTDataset, {num_samples:,} samples", read_peer(corpus, num_samples))


def print_row(what: str, measured: Measured) -> None:
    """A row of the table."""
    row = f"{what:<44}{measured['start_seconds']:>8,.2f} s{measured['start_bytes'] / 1e6:>9,.0f} MB"
    if seconds := measured.get("read_seconds"):
        row += f"{measured['curve'][-1][0] * SEQUENCE_LENGTH / seconds / 1e6:>8,.1f} M tokens/s"
    print(row, flush=True)


def plot(path: Path, corpus: Path, with_peer: bool) -> None:
    """Memory over samples, each reader in a process of its own, side by side: time is not measured here."""
    readers: dict[str, Callable[[], Measured]] = {
        "wenhai": lambda: in_child(read_ours, corpus, NUM_PLOTTED, num_read=NUM_PLOTTED, num_points=NUM_POINTS),
    }
    if with_peer:
        readers["GPTDataset"] = lambda: read_peer(corpus, NUM_PLOTTED, NUM_PLOTTED, NUM_POINTS)
    with ThreadPoolExecutor(len(readers)) as pool:
        measured = dict(zip(readers, pool.map(lambda reader: reader(), readers.values()), strict=True))
    lines = []
    for name, of_reader in measured.items():
        samples, rss, pss = (np.array(column, dtype=np.float64) for column in zip(*of_reader["curve"], strict=True))
        rss -= of_reader["held_bytes"]
        print(
            f"{name}: over {samples[-1]:,.0f} samples RSS {rss[0] / 1e6:,.0f} to {rss[-1] / 1e6:,.0f} MB "
            f"(at most {rss.max() / 1e6:,.0f}) beyond its imports; PSS with them {pss[0] / 1e6:,.0f} to "
            f"{pss[-1] / 1e6:,.0f} MB"
        )
        lines.append(Line(name, samples / 1e3, rss / 1e6))
    write_lines(path, lines, "thousand samples of 2,048 tokens", "MB of resident memory beyond imports")


def read_ours(
    corpus: Path, num_samples: int, order: str = "permuted", num_read: int | None = None, num_points: int = 1
) -> Measured:
    """Open, read a batch of the end of the run, then samples from its start on; with one point, from checked blocks."""

    def begun() -> Loader:
        if order == "megatron":
            loader = Loader(*open_megatron([("", corpus, 1.0)], "train", SEQUENCE_LENGTH, num_samples, SEED))
        else:
            loader = Loader([stream_of(corpus)])
        loader.batch(num_samples - BATCH, BATCH)
        return loader

    loader, measured = timing.run_measured(begun)
    if num_points == 1:
        check_blocks(loader)

    def batches(start: int, stop: int) -> None:
        for first in range(start, stop, BATCH):
            loader.batch(first, min(BATCH, stop - first))

    return measured | timing.watch_reads(batches, num_read or min(NUM_READ, num_samples), num_points)


def stream_of(corpus: Path, name: str = "") -> Stream:
    """The training shards of a corpus."""
    return Stream([ShardReader(shard) for shard in open_split(corpus, "train")], SEQUENCE_LENGTH, SEED, name)


def check_blocks(loader: Loader) -> None:
    """Read a token of every block, so that each has been compared with its checksum."""
    for stream in loader.streams:
        for shard in stream.shards:
            for token in range(0, shard.num_tokens, 1 << 20):
                shard.tokens(token, token + 1)


def read_peer(corpus: Path, num_samples: int, num_read: int | None = None, num_points: int = 1) -> Measured:
    """The same by GPTDataset."""
    case = {"prefixes": [str(corpus / "data/00000-00-train")], "weights": None, "seed": SEED}
    case |= {"sequence_length": SEQUENCE_LENGTH, "num_samples": num_samples, "warm": num_points == 1}
    case |= {"read": num_read or min(NUM_READ, num_samples), "points": num_points}
    path = corpus / f"case-{os.getpid()}-{num_samples}-{num_points}.json"
    path.write_text(json.dumps(case))
    measured: Measured = MEGATRON.run("gpt_dataset.py", "read", str(path))
    return measured


def open_many(corpora: Sequence[Path]) -> Measured:
    """Open every corpus, blend them, and read a batch."""

    def begun() -> Loader:
        streams = [stream_of(corpus, corpus.name) for corpus in corpora]
        loader = Loader(streams, Blend([Fraction(1, len(streams))] * len(streams)))
        loader.batch(0, BATCH)
        return loader

    return timing.run_measured(begun)[1]


def write_corpus(folder: Path, num_tokens: int) -> Path:
    """A folder of one shard of random tokens, as the tokens stage leaves it."""
    rng = np.random.default_rng(0)
    with writing(folder) as prefix:
        identity: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "eod": EOD, "tokenizer_sha256": "0" * 64}
        with create_shard(prefix, split="train", **identity) as writer:
            while num_tokens:
                length = min(num_tokens, max(1, int(rng.lognormal(np.log(DOCUMENT_TOKENS) - 0.5, 1.0))))
                writer.add(rng.integers(EOD + 1, VOCAB_SIZE, length - 1, dtype=np.uint16))
                num_tokens -= length
    return folder


def write_many(folder: Path) -> list[Path]:
    """Corpora of many shards, all of them links to the files of one."""
    first = write_corpus(folder / "shard", 2 * SEQUENCE_LENGTH)
    corpora = [folder / f"corpus{number}" for number in range(NUM_CORPORA)]
    for corpus in corpora:
        with writing(corpus):
            for source in (first / "data").iterdir():
                for number in range(NUM_SHARDS):
                    os.link(source, corpus / "data" / source.name.replace("00000", f"{number:05}", 1))
    return corpora


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """The prefix of a corpus' first shard; the manifest of all its files is written at the end of the block."""
    (folder / "data").mkdir(parents=True)
    yield folder / "data/00000-00-train"
    files, known = {}, dict[int, str]()  # links to one file are read once
    for path in sorted((folder / "data").iterdir()):
        status = path.stat()
        if status.st_ino not in known:
            known[status.st_ino] = durable.sha256_file(path)
        files[f"data/{path.name}"] = {"bytes": status.st_size, "sha256": known[status.st_ino]}
    commit_files(str(folder), files, "tokens")

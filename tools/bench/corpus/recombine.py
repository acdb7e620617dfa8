"""Any amount of text from a few megabytes: documents whose sentences are exchanged for others of their source.

A copy of a document keeps its lines and the order of long and short sentences; half of its sentences of four characters
or more are exchanged for ones of like length (the same power of the square root of two) drawn from the same file. Two
copies of a document then share about a quarter of their sentences, far less than deduplication takes for equal;
statistics, drop rates and compression stay near those of the originals, but the vocabulary is that of the originals
however much is made. One document in twenty is an exact copy of the one before it in its file, and one in twenty that
one with its last sentence gone.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EXCHANGED = 0.5
EXACT = 0.05
NEAR = 0.05
MIN_CHARACTERS = 4
FILE_BYTES = 16_000_000  # of text
DATE = "2024-01-01"
_SENTENCES = re.compile(r"[^。！？!?\n]+[。！？!?\n]*|[。！？!?\n]+")


def write(texts: Sequence[Sequence[str]], folder: Path, num_bytes: int, kind: str, seed: int = 0) -> int:
    """Write about `num_bytes` of text as files of one kind; returns the bytes of text.

    Args:
        texts: documents by source; sentences are exchanged within a source.
        kind: `jsonl.zst` or `parquet`.
        seed: equal seeds give equal files, different ones different text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written, number = 0, 0
    held: list[dict[str, str]] = []
    held_bytes = 0
    for serial, text in enumerate(documents(texts, seed)):
        held.append({"text": text, "url": f"https://site{serial % 997}.example.cn/{kind}/{serial}", "date": DATE})
        held_bytes += len(text.encode())
        done = written + held_bytes >= num_bytes
        if done or held_bytes >= FILE_BYTES:
            _write_file(folder / f"part-{number:05d}.{kind}", held, kind)
            written, number, held, held_bytes = written + held_bytes, number + 1, [], 0
        if done:
            break
    return written


def documents(texts: Sequence[Sequence[str]], seed: int) -> Iterator[str]:
    """Recombined documents without end, all sources mixed by their sizes."""
    random = np.random.default_rng(seed)
    split = [[_SENTENCES.findall(text) for text in source] for source in texts]
    pools = [_pools(source) for source in split]
    places = [(source, row) for source in range(len(split)) for row in range(len(split[source]))]
    before: list[str] = []
    while True:
        for place in random.permutation(len(places)).tolist():
            source, row = places[place]
            fate = random.random()
            if before and fate < EXACT:
                yield "".join(before)
            elif len(before) > 1 and fate < EXACT + NEAR:
                yield "".join(before[:-1])
            else:
                before = _exchanged(split[source][row], pools[source], random)
                yield "".join(before)


def _exchanged(sentences: Sequence[str], pools: dict[int, list[str]], random: np.random.Generator) -> list[str]:
    chosen = random.random(len(sentences)) < EXCHANGED
    draws = random.random(len(sentences))
    found = []
    for sentence, change, draw in zip(sentences, chosen.tolist(), draws.tolist(), strict=True):
        if change and len(sentence) >= MIN_CHARACTERS:
            pool = pools[_size(sentence)]
            sentence = pool[int(draw * len(pool))]
        found.append(sentence)
    return found


def _pools(texts: Sequence[Sequence[str]]) -> dict[int, list[str]]:
    pools: dict[int, list[str]] = defaultdict(list)
    for sentences in texts:
        for sentence in sentences:
            pools[_size(sentence)].append(sentence)
    return pools


def _size(sentence: str) -> int:
    """Sentences that may stand for each other: of like length, and equal in whether they end a line."""
    return 2 * int(2 * math.log2(len(sentence) + 1)) + sentence.endswith("\n")


def _write_file(path: Path, rows: list[dict[str, str]], kind: str) -> None:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd", compression_level=3)
        return
    import zstandard

    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    path.write_bytes(zstandard.ZstdCompressor(level=3, write_checksum=True).compress(lines))

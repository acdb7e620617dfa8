"""What `dedup.substrings` cuts from real text: python -m tools.evaluate.substrings --data FOLDER

FOLDER holds `text/*.jsonl`. Documents of at least `MIN_DOCUMENT` characters are halved into donors and hosts; each host
gets one passage of a donor at the end of one of its sentences, donors outrank hosts. Tables:

1. of the planted characters, how many are removed; beside it what a suffix array would find, every folded substring of
   `min_chars` that a better document has, wherever it begins (computed by hashing all of them);
2. what is cut from the documents as they are, beside the same oracle;
3. the cost: CPU time of both passes over the text and the bytes that go from shards to key ranges.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup.passages import substrings
from corpus.dedup.passages.sentences import Sentences, read_sentences
from corpus.dedup.passages.substrings import Mask, Ranks
from corpus.dedup.records import RECORD_DTYPE
from corpus.dedup.text.fold import Codes, Offsets, fold
from corpus.dedup.text.hashing import GOLDEN, MIX, Keys
from corpus.dedup.text.keys import text_buffers
from corpus.engine.errors import UsageError, WenhaiError
from tools.evaluate.planted_duplicates import convert, full_width
from tools.evaluate.shared import plain, read_texts

MIN_DOCUMENT = 1000  # characters
LENGTHS = (100, 200, 400, 800)  # of passages
MIN_CHARS = (50, 100, 200)


class Collection(NamedTuple):
    """Documents with their ranks, and which of their characters were planted."""

    texts: list[str]
    ranks: Ranks
    planted: Mask  # bool[characters of all texts]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="see above")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    sources = read_texts(options.data / "text")
    if not any(sources.values()):
        raise UsageError(f"{options.data}/text: holds no *.jsonl with documents.")
    long = sorted({text for texts in sources.values() for text in texts if len(text) >= MIN_DOCUMENT})
    _planted_table(long, options.seed)
    for name, texts in (sources | {"all": list(itertools.chain.from_iterable(sources.values()))}).items():
        _natural_table(name, list(dict.fromkeys(texts)))
    _cost_table(long)


def plant(texts: Sequence[str], length: int, change: Callable[[str, random.Random], str], seed: int) -> Collection:
    """Half of the texts as they are, each of the others with a passage of one of them."""
    chance = random.Random(seed)
    chosen = chance.sample(list(texts), len(texts))
    donors, hosts = chosen[::2], chosen[1::2]
    grown, marks = [], [np.zeros(sum(map(len, donors)), bool)]
    for donor, host in zip(itertools.cycle(donors), hosts, strict=False):
        passage = change(_passage(donor, length, chance), chance)
        places = [end for _, end in itertools.pairwise(_ends(host))]
        place = chance.choice(places)
        grown.append(host[:place] + passage + host[place:])
        mark = np.zeros(len(grown[-1]), bool)
        mark[place : place + len(passage)] = True
        marks.append(mark)
    ranks = np.arange(1, len(donors) + len(grown) + 1, dtype=np.uint32)
    return Collection(donors + grown, ranks, np.concatenate(marks))


def whole_sentences(passage: str, _: random.Random) -> str:
    """A passage of whole sentences: what `_passage` gives."""
    return passage


def ragged(passage: str, chance: random.Random) -> str:
    """Begins and ends within a sentence."""
    return passage[chance.randrange(5, 20) : -chance.randrange(5, 20)] + "\n"


def one_edit(passage: str, chance: random.Random) -> str:
    """A character in the middle third replaced."""
    place = chance.randrange(len(passage) // 3, 2 * len(passage) // 3)
    return passage[:place] + chr(chance.randrange(0x4E00, 0x9000)) + passage[place + 1 :]


VARIANTS: dict[str, Callable[[str, random.Random], str]] = {
    "exact": whole_sentences,
    "full width": lambda passage, _: full_width(passage),
    "Traditional": lambda passage, _: convert("s2t", passage),
    "one edit": one_edit,
    "ragged ends": ragged,
}


def cut(texts: Sequence[str], ranks: Ranks, min_chars: int) -> Mask:
    """bool[characters]: what the stages would remove."""
    sentences, data = _read(texts)
    found = substrings.windows(sentences, min_chars)
    best, differ = substrings.best_ranks(found.keys, ranks[found.documents])
    lost, _ = substrings.judge(sentences, found, ranks, best[differ])
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    return np.repeat(lost, np.diff(np.searchsorted(starts, sentences.bounds)))


def oracle(texts: Sequence[str], ranks: Ranks, min_chars: int) -> Mask:
    """bool[characters]: what stands in a folded substring of `min_chars` that a better document has.

    The union of all maximal matches of that length, which is what a suffix array of the folded texts finds.
    """
    offsets, data = text_buffers(pa.array(texts, pa.large_string()))
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    codes, places = fold(np.append(starts, len(data)), data)
    edges = places[np.searchsorted(starts, offsets)]
    documents = np.repeat(np.arange(len(texts)), np.diff(edges))
    keys = _all_hashes(codes, min_chars)
    at = np.flatnonzero(documents[: len(keys)] == documents[len(codes) - len(keys) :])
    best, differ = substrings.best_ranks(keys[at], ranks[documents[at]])
    table = best[differ]
    row, shared = substrings.look_up(table, keys[at])
    begins = at[shared][ranks[documents[at[shared]]] > table["row"][row[shared]]]
    steps = np.bincount(begins, minlength=len(codes) + 1)
    steps[min_chars:] -= np.bincount(begins, minlength=len(codes) + 1)[: len(steps) - min_chars]
    covered = np.append(np.cumsum(steps)[: len(codes)] > 0, False)
    return np.asarray(covered[np.minimum(places[:-1], len(codes))] & (np.diff(places) > 0))


def _all_hashes(codes: Codes, length: int) -> Keys:
    """uint64[n - length + 1]: a hash of every substring, from those of half its length; two overlap at the end."""
    hashes, size = (codes.astype(np.uint64) + GOLDEN) * MIX, 1
    while 2 * size <= length:
        hashes, size = _join(hashes[:-size], hashes[size:]), 2 * size
    rest = length - size
    return _join(hashes[: len(hashes) - rest], hashes[rest:])


def _join(left: Keys, right: Keys) -> Keys:
    state = (left * GOLDEN) ^ (left >> np.uint64(29)) ^ (right * MIX)
    return np.asarray((state ^ (state >> np.uint64(32))) * MIX)


def _planted_table(texts: Sequence[str], seed: int) -> None:
    rows = [["planted", "characters", *(f"{title} {m}" for m in MIN_CHARS for title in ("cut", "oracle", "beside"))]]
    for name, change in VARIANTS.items():
        for length in LENGTHS:
            collection = plant(texts, length, change, seed)
            row = [name, str(length)]
            for min_chars in MIN_CHARS:
                removed = cut(collection.texts, collection.ranks, min_chars)
                found = oracle(collection.texts, collection.ranks, min_chars)
                counted = _counted(collection.texts) & collection.planted
                beside = removed & ~found & ~collection.planted & _counted(collection.texts)
                row += [_share(removed, counted), _share(found, counted), str(int(beside.sum()))]
            rows.append(row)
    print("Share of planted characters removed at each min_chars, by the stages and by the oracle; beside: characters")
    print("cut that were neither planted nor found by the oracle. Characters that folding skips are not counted.")
    print(plain(rows))


def _natural_table(name: str, texts: list[str]) -> None:
    order = sorted(range(len(texts)), key=lambda i: (-len(texts[i]), texts[i]))
    ranks = np.empty(len(texts), np.uint32)
    ranks[order] = np.arange(len(texts))
    rows = [["as it is", "min_chars", "documents", "characters", "cut", "oracle", "cut, not in the oracle"]]
    counted = _counted(texts)
    for min_chars in MIN_CHARS:
        removed, found = cut(texts, ranks, min_chars), oracle(texts, ranks, min_chars)
        shares = [_share(removed, counted), _share(found, counted), str(int((removed & ~found & counted).sum()))]
        rows.append([name, str(min_chars), str(len(texts)), str(int(counted.sum())), *shares])
    print(plain(rows))


def _cost_table(texts: Sequence[str]) -> None:
    rows = [["cost", "windows a sentence", "records, B a byte of text", "passage_keys MB/s", "substrings MB/s"]]
    ranks = np.arange(len(texts), dtype=np.uint32)
    for min_chars in MIN_CHARS:
        times = []
        for _ in range(3):
            started = time.process_time()
            sentences, data = _read(texts)
            found = substrings.windows(sentences, min_chars)
            best, differ = substrings.best_ranks(found.keys, ranks[found.documents])
            middle = time.process_time()
            sentences, data = _read(texts)
            again = substrings.windows(sentences, min_chars)
            lost, _ = substrings.judge(sentences, again, ranks, best[differ])
            list(substrings.without(sentences, lost, data))
            times.append((middle - started, time.process_time() - middle))
        fastest = (len(data) / 1e6 / min(column) for column in zip(*times, strict=True))
        windows = len(found.keys) / (len(sentences.bounds) - 1)
        shuffled = len(best) * RECORD_DTYPE.itemsize / len(data)
        rows.append([str(min_chars), f"{windows:.2f}", f"{shuffled:.3f}", *(f"{speed:.0f}" for speed in fastest)])
    print(plain(rows))


def _passage(text: str, length: int, chance: random.Random) -> str:
    """Whole sentences of a text, of about this length: at least it where the text has so much."""
    ends = _ends(text)
    start = chance.choice([end for end in ends if end <= max(0, len(text) - 2 * length)])
    return text[start : next((end for end in ends if end >= start + length), len(text))]


def _ends(text: str) -> list[int]:
    """Where sentences begin and end, in characters."""
    sentences, data = _read([text])
    starts = np.flatnonzero((data & 0xC0) != 0x80)
    return [int(end) for end in np.searchsorted(starts, sentences.bounds)]


def _read(texts: Sequence[str]) -> tuple[Sentences, npt.NDArray[np.uint8]]:
    offsets, data = text_buffers(pa.array(texts, pa.large_string()))
    return read_sentences(offsets, data), data


def _counted(texts: Sequence[str]) -> Mask:
    """bool[characters]: those that folding keeps."""
    _, data = text_buffers(pa.array(texts, pa.large_string()))
    starts: Offsets = np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))
    return np.asarray(np.diff(fold(starts, data)[1]) > 0)


def _share(mask: Mask, of: Mask) -> str:
    return f"{(mask & of).sum() / max(int(of.sum()), 1):.1%}"


if __name__ == "__main__":
    try:
        main()
    except WenhaiError as error:
        sys.exit(f"evaluate.substrings: {error}")

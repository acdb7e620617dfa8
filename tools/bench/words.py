"""Word lists in a text: our matcher beside hyperscan and ahocorasick_rs, on a few hundred words and on 10,000.

Ours is timed twice: finding the words as they are, which is what the others do, and as the filter does it (half-width and
full-width, both scripts, inserted symbols, whole Latin words). The 10,000 words are three to six Han characters each from
every other document, and the rest is searched: they are of the language, and occur.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus.filters.automaton import Automaton
from corpus.filters.folding import matching_table, skipped_characters
from corpus.filters.statistic import buffers
from tools.bench.peers import environment
from tools.bench.timing import num_bytes, show, speed

ENVIRONMENT = environment.ROOT / "build/peers/words"
REQUIREMENTS = environment.FOLDER / "words.txt"
NUM_DRAWN = 10_000
LENGTHS = (3, 6)
SEED = 0
HAN = re.compile("[\u4e00-\u9fff]+")


def compare(texts: pa.LargeStringArray, words: Sequence[str], install: bool) -> None:
    """Print a block for `words`, the filter's own lists, and one for drawn words."""
    if install:
        try:
            environment.install(ENVIRONMENT, REQUIREMENTS)
        except subprocess.CalledProcessError as error:
            print(f"hyperscan and ahocorasick_rs cannot be installed here (pip ended with {error.returncode})\n")
    documents: list[str] = texts.to_pylist()
    searched = pa.array(documents[::2], pa.large_string())
    for listed in (list(words), draw("\n".join(documents[1::2]))):
        _compare(searched, listed)


def draw(text: str, count: int = NUM_DRAWN) -> list[str]:
    """Different strings of Han characters from random places of a text, sorted; fewer where it has no more."""
    random = np.random.default_rng(SEED)
    drawn: set[str] = set()
    for _ in range(20 * count):
        place, length = int(random.integers(len(text))), int(random.integers(LENGTHS[0], LENGTHS[1] + 1))
        word = text[place : place + length]
        if len(word) == length and HAN.fullmatch(word):
            drawn.add(word)
        if len(drawn) == count:
            break
    return sorted(drawn)


def _compare(texts: pa.LargeStringArray, words: list[str]) -> None:
    size = num_bytes(texts)
    offsets, data = buffers(texts)
    plain, folded = Automaton(words), Automaton(words, matching_table(), skipped_characters(), whole=True)
    hits = len(plain.find(offsets, data).rows)
    print(f"{len(words):,} words in {size / 1e6:,.1f} MB, {hits:,} occurrences:")
    rates = [speed(size, lambda: plain.find(offsets, data))]
    hyperscan = None
    if environment.is_installed(ENVIRONMENT, REQUIREMENTS):
        peers = _peers(texts, words)
        hyperscan = peers["hyperscan"]["mb_a_second"]
        for name, found in peers.items():
            show(name, found["mb_a_second"], note="" if found["hits"] == hits else f"{found['hits']:,} occurrences")
        rates.append(speed(size, lambda: plain.find(offsets, data)))
    show("ours, the words as they are", sum(rates) / len(rates), hyperscan)
    show("ours, folded, symbols skipped, whole words", speed(size, lambda: folded.find(offsets, data)), hyperscan)
    print()


def _peers(texts: pa.LargeStringArray, words: list[str]) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        documents, listed = Path(folder, "documents.jsonl"), Path(folder, "words.txt")
        environment.write_documents(documents, texts.to_pylist())
        listed.write_text("\n".join(words), encoding="utf-8")
        found: dict[str, dict[str, float]] = environment.call(
            "word_lists.py", str(documents), str(listed), folder=ENVIRONMENT
        )
    return found

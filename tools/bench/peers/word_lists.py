"""hyperscan and ahocorasick_rs on documents and a word list; runs in the peers' environment `words`.

    python word_lists.py DOCUMENTS.jsonl WORDS.txt

Both scan the UTF-8 bytes of a document a call and report every occurrence, overlapping ones too. Building is not timed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ahocorasick_rs
import hyperscan

RUNS = 3


def main(documents: str, words: str) -> None:
    """Print the median rate of each and how many occurrences it found."""
    with open(documents, encoding="utf-8") as file:
        texts = [json.loads(line)["text"].encode() for line in file]
    patterns = [word.encode() for word in Path(words).read_text(encoding="utf-8").split("\n")]
    matchers = {"hyperscan": with_hyperscan(patterns), "ahocorasick_rs": with_ahocorasick(patterns)}
    size = sum(map(len, texts))
    found = {}
    for name, count in matchers.items():
        hits = sum(map(count, texts))
        times = []
        for _ in range(RUNS):
            start = time.process_time()
            for text in texts:
                count(text)
            times.append(time.process_time() - start)
        found[name] = {"mb_a_second": size / 1e6 / statistics.median(times), "hits": hits}
    print(json.dumps(found))


def with_hyperscan(patterns: list[bytes]) -> Callable[[bytes], int]:
    """Counts the occurrences in a text; its compiler for literals, which takes no regular expressions."""
    database = hyperscan.Database()
    database.compile(expressions=patterns, ids=list(range(len(patterns))), elements=len(patterns), literal=True)

    def count(text: bytes) -> int:
        hits: list[tuple[int, int]] = []
        database.scan(text, match_event_handler=lambda word, _, end, *rest: hits.append((word, end)))
        return len(hits)

    return count


def with_ahocorasick(patterns: list[bytes]) -> Callable[[bytes], int]:
    """The same with the automaton that it chooses by itself."""
    automaton = ahocorasick_rs.BytesAhoCorasick(patterns)
    return lambda text: len(automaton.find_matches_as_indexes(text, overlapping=True))


if __name__ == "__main__":
    main(*sys.argv[1:])

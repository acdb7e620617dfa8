"""Evaluation items planted in real text, and text without: python -m tools.evaluate.contamination --data FOLDER

FOLDER holds `text/*.jsonl` (prose) and `eval/**/test_public.json` (FewCLUE's test sets). For each n: items that are
long enough to be looked for; planted items found at a share above a half, whole and changed; and documents of the prose
that share some n-gram with an item, or more than half of one.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from corpus.dedup.contamination.overlap import build_index, find, load_index
from corpus.engine.storage import File, list_inputs
from tools.evaluate.planted_duplicates import convert, edited, full_width
from tools.evaluate.shared import plain, read_texts

NGRAMS = (8, 10, 13, 16, 20)
SHARE = 0.5
PLANTED = 300
MIN_CHARS = 8
CONTEXT_CHARS = 400

CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "whole": lambda item, _: item,
    "Traditional": lambda item, _: convert("s2t", item),
    "full width": lambda item, _: full_width(item),
    "edits 3 %": lambda item, chance: edited(item, 0.03, chance),
    "edits 10 %": lambda item, chance: edited(item, 0.10, chance),
    "first third": lambda item, _: item[: len(item) // 3],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="see above")
    options = parser.parse_args(arguments)
    files = tuple(list_inputs([str(path) for path in sorted(options.data.glob("eval/**/test_public.json"))]))
    prose = [text for texts in read_texts(options.data / "text").values() for text in texts]
    rows = [["n", "items", "long enough", *CHANGES, "prose", "any n-gram", f"share > {SHARE}", "MB/s"]]
    chance = random.Random(0)
    whole = [text for text in _sentences(files) if len(text) >= MIN_CHARS]
    planted = chance.sample(whole, min(PLANTED, len(whole)))
    for ngram in NGRAMS:
        index = load_index(files, ngram)
        row = [str(ngram), str(len(index.names)), str(len(index.names) - index.too_short)]
        row += [str(_found(planted, change, prose, ngram)) + f"/{len(planted)}" for change in CHANGES.values()]
        column = pa.array(prose, pa.large_string())
        find(column, index, ngram)
        start = time.process_time()
        matches = find(column, index, ngram)
        rate = column.nbytes / 1e6 / (time.process_time() - start)
        over = sum(match.share > SHARE for match in matches)
        rows.append([*row, str(len(prose)), str(len(matches)), str(over), f"{rate:.0f}"])
    print(plain(rows))


def _sentences(files: Sequence[File]) -> list[str]:
    """The items' longest strings: what a model is asked about."""
    found = []
    for file in files:
        for line in Path(file.url).read_text("utf-8").split("\n"):
            strings = [value for value in (json.loads(line) if line else {}).values() if isinstance(value, str)]
            found += [max(strings, key=len)] if strings else []
    return found


def _found(
    planted: Sequence[str], change: Callable[[str, random.Random], str], prose: Sequence[str], ngram: int
) -> int:
    """How many planted items are found, each in the middle of a page."""
    chance = random.Random(1)
    index = build_index([str(number) for number in range(len(planted))], planted, ngram)
    around = [text[: 2 * CONTEXT_CHARS] for text in chance.sample(prose, len(planted))]
    pages = [
        page[:CONTEXT_CHARS] + change(item, chance) + page[CONTEXT_CHARS:]
        for page, item in zip(around, planted, strict=True)
    ]
    return sum(match.share > SHARE for match in find(pa.array(pages, pa.large_string()), index, ngram))


if __name__ == "__main__":
    main()

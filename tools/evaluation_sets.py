"""Hash the questions of evaluation sets for the built-in decontamination.

    python -m tools.evaluation_sets --folder FOLDER --out corpus/dedup/contamination/sets.table

FOLDER holds a folder for each set, with its files as their authors publish them: CSV, JSON lines or JSON. An item is a
question, of AGIEval also its passage, of C3 the text or dialogue. The old texts and poems that examinations quote are
no items (`READING`, by the file's name).
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from corpus.dedup.config import SET_NGRAM
from corpus.dedup.contamination.overlap import build_index

GRAMS, MIN_GRAMS = 8, 4  # of an item: hashes that are kept, and that it needs
FIELDS = ("question", "Question", "passage")
READING = re.compile(r"gaokao-chinese|Chinese_(?:Language_(?!Language)|Modern_Lit)")


def main() -> None:
    """Write the table and say what is in it."""
    parser = argparse.ArgumentParser(prog="python -m tools.evaluation_sets", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arrays: dict[str, Any] = {}
    for folder in sorted(path for path in arguments.folder.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.iterdir() if not READING.search(path.name))
        texts = list(dict.fromkeys(text for path in files for text in _strings(read(path))))
        index = build_index(texts, texts, SET_NGRAM)
        order = np.lexsort((index.grams & np.uint64(0xFFFFFFFF), index.items))
        items, grams = index.items[order], index.grams[order]
        place = np.arange(len(items)) - np.searchsorted(items, items)
        kept = (place < GRAMS) & (index.sizes[items] >= MIN_GRAMS)
        sizes = np.bincount(items[kept])
        arrays |= {folder.name: grams[kept], f"{folder.name}.sizes": sizes[sizes > 0].astype(np.uint8)}
        print(f"{folder.name}: {len(texts):,} items, {(sizes > 0).sum():,} with {kept.sum():,} hashes")
    with open(arguments.out, "wb") as file:
        np.savez(file, **arrays)


def read(path: Path) -> Any:
    """A file as JSON."""
    text = path.read_text("utf-8-sig")
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    return [json.loads(line) for line in text.split("\n") if line] if path.suffix == ".jsonl" else json.loads(text)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[key] for key in FIELDS if isinstance(value.get(key), str))
        yield from (item for part in value.values() for item in _strings(part))
    elif isinstance(value, list):
        for part in value:
            is_text = isinstance(part, list) and all(isinstance(line, str) for line in part)  # of C3
            yield from ["\n".join(part)] if is_text else _strings(part)


if __name__ == "__main__":
    main()

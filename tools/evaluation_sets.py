"""Hash the questions of evaluation sets for the built-in decontamination.

    python -m tools.evaluation_sets --folder FOLDER --out corpus/dedup/contamination/sets.table

FOLDER holds a folder for each set, with its files as their authors publish them: CSV, JSON lines or JSON. An item is a
question, of AGIEval also its passage, of C3 the text or dialogue. The old texts and poems that examinations quote are
no items (`READING`, by the file's name), nor are the stems that many questions have (以下哪项如果为真，最能削弱上述论证): an
item has `GRAMS` n-grams or more, and `OWN` of its hashes are in no other.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corpus.dedup.config import SET_NGRAM
from corpus.dedup.contamination.overlap import build_index
from corpus.dedup.text.hashing import Keys
from corpus.engine import durable

GRAMS, OWN = 8, 4  # hashes of an item
FIELDS = ("question", "Question", "passage")
READING = re.compile(r"gaokao-chinese|Chinese_(?:Language_(?!Language)|Modern_Lit)")


def main() -> None:
    """Write the table and say what is in it."""
    parser = argparse.ArgumentParser(prog="python -m tools.evaluation_sets", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    sets = {}
    for folder in sorted(path for path in arguments.folder.iterdir() if path.is_dir()):
        files = sorted(path for path in folder.iterdir() if not READING.search(path.name))
        texts = list(dict.fromkeys(text for path in files for text in _strings(read(path))))
        index = build_index(texts, texts, SET_NGRAM)
        order = np.lexsort((index.grams & np.uint64(0xFFFFFFFF), index.items))
        items, grams = index.items[order], index.grams[order]
        place = np.arange(len(items)) - np.searchsorted(items, items)
        kept = (place < GRAMS) & (index.sizes[items] >= GRAMS)
        sets[folder.name] = grams[kept].reshape(-1, GRAMS)
        print(f"{folder.name}: {len(texts):,} items")
    chosen = choose(sets)
    print({name: len(grams) for name, grams in chosen.items()})
    with open(arguments.out, "wb") as file:
        np.savez(file, allow_pickle=False, **chosen)
    print(f"sha256 {durable.sha256_file(arguments.out)}")


def choose(sets: Mapping[str, Keys]) -> dict[str, Keys]:
    """Of the items of all sets, uint64[items, GRAMS], those that copy no other and have OWN hashes of their own."""
    rows = np.concatenate(list(sets.values()))
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(rows, axis=0, return_index=True)[1]] = True
    hashes, counts = np.unique(rows[first], return_counts=True)
    own = (counts[np.minimum(np.searchsorted(hashes, rows), len(hashes) - 1)] == 1).sum(axis=1) >= OWN
    ends = np.cumsum([len(grams) for grams in sets.values()])
    kept = np.split(first & own, ends[:-1])
    return {name: grams[keep] for (name, grams), keep in zip(sets.items(), kept, strict=True)}


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

"""Train the line model of extraction (corpus/extract/lines.table) on pages with hand-made main text.

    python -m tools.line_model FOLDER... --out corpus/extract/lines.table
    python -m tools.line_model FOLDER...                                           F1 on sites that were not trained on

A FOLDER has gold.jsonl (file, gold, optional, title; as in docs/extraction.md) and pages/. A line is of the article
when it stands in the gold text. Each page is also seen without its names (class, id, role), and twice cut to a few of
its paragraphs, once without some of its furniture: what a short article on a large page looks like. Trees are
scikit-learn's; the table holds numbers only. The threshold is part of the bias: `--share` of a line's probability is
enough to stay.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.extract import features, lines, metadata, reader
from corpus.extract.article import Reading, judge, read
from corpus.extract.model import BLOCK, DEPTH, LineModel
from tools.bench.corpus import extraction
from tools.bench.corpus.extraction import FOLDS, GOOD, read_labelled, score

Array = npt.NDArray[Any]

SHARE = 0.25  # chosen on pages of other sites (docs/extraction.md)
TREES = {"max_depth": DEPTH, "max_iter": 100, "learning_rate": 0.1, "l2_regularization": 5.0, "min_samples_leaf": 30}
MAX_SHORT_LINES = 4  # of an article that is cut short
MIN_CUT_LETTERS = 25
LOST_RATIO = 0.06  # of the elements that a cut page loses
PAGE_WEIGHT = 30.0  # of each page, spread over its lines by the root of their length
_NUMBER = re.compile(r"^\s*\d{1,4}\.\s+")

LabelledPage = tuple[dict[str, Any], bytes]  # a row of gold.jsonl, the page in UTF-8


def no_trees(count: int = 0, bias: float = 0.0) -> LineModel:
    """Trees that say nothing."""
    return LineModel(
        np.zeros((count, 2**DEPTH - 1), np.int16),
        np.full((count, 2**DEPTH - 1), np.inf, np.float32),
        np.zeros((count, 2**DEPTH), np.float32),
        np.array([bias], np.float32),
    )


class Examples(NamedTuple):
    """Lines of a page: features float32[lines, NUM_FEATURES], 1 of the article, 0 not, -1 either; weights."""

    x: Array
    y: Array
    weights: Array


def letters(text: str) -> str:
    """Letters and digits of a line, without an item's number and marks of notes."""
    return extraction.letters(_NUMBER.sub("", text))


def labels(row: dict[str, Any], texts: list[str]) -> Array:
    """int64[lines]: 1 where a line stands in the gold text, -1 where it may stay or go, else 0."""
    gold = [text for text in map(letters, row["gold"].split("\n")) if text]
    known, whole = set(gold), "".join(gold)
    either = {letters(line) for line in [*(row.get("optional") or []), row.get("title") or ""]}
    found = []
    for text in map(letters, texts):
        if not text or text in either:
            found.append(-1)
        elif len(text) < 30:
            found.append(int(text in known or (len(text) >= 5 and text in whole)))
        else:
            parts = [text[at : at + 6] for at in range(0, len(text) - 5, 3)]
            found.append(int(text in whole or sum(part in whole for part in parts) > 0.6 * len(parts)))
    y = np.array(found)
    for index in (y == 1).nonzero()[
        0
    ]:  # a short line that stands elsewhere too counts beside other lines of the article
        if len(letters(texts[index])) < 8 and (y[max(0, index - 6) : index + 7] == 1).sum() < 2:
            y[index] = 0
    return y


def page_examples(row: dict[str, Any], page: bytes, chance: random.Random) -> list[Examples]:
    """A page as it is, without names, and twice cut short."""
    reading = read(page)
    title = metadata.headline(page, metadata.head_metas(page))[0]
    texts = [str(reading.out.data[start:end], "utf-8") for start, end in reading.lines[:, :2].tolist()]
    y = labels(row, texts)
    found = [examples(one, y, title, 1.0) for one in (reading, without_names(reading))]
    long = [int(at) for at in (y == 1).nonzero()[0] if reading.lines[at, reader.LINE_READ] >= MIN_CUT_LETTERS]
    for loses in (False, True):
        if len(long) >= MAX_SHORT_LINES:
            size = chance.randint(1, MAX_SHORT_LINES)
            first = chance.randrange(len(long) - size + 1)
            kept = range(long[first], long[first + size - 1] + 1)
            stays = np.array([label != 1 or index in kept for index, label in enumerate(y)])
            if loses:
                stays &= ~_lost(reading, kept, chance)
            cut = reading._replace(lines=np.ascontiguousarray(reading.lines[stays]))
            found.append(examples(without_names(cut) if chance.random() < 0.5 else cut, y[stays], title, 0.5))
    return found


def examples(reading: Reading, y: Array, title: str | None, weight: float) -> Examples:
    """The features of a page's lines."""
    x = np.zeros((len(y) // BLOCK * BLOCK + BLOCK, features.NUM_FEATURES), np.float32)
    judge(reading, title, no_trees(), x)
    weights = np.sqrt(np.minimum(reading.lines[:, reader.LINE_READ], 200) + 1.0)
    return Examples(x[: len(y)], y, weights / max(1.0, weights.sum()) * PAGE_WEIGHT * weight)


def without_names(reading: Reading) -> Reading:
    """The page as if its elements had no class, id or role."""
    nodes = reading.nodes.copy()
    nodes[:, reader.NODE_HINTS] = 0
    return reading._replace(nodes=nodes)


def _lost(reading: Reading, kept: range, chance: random.Random) -> Array:
    """bool[lines]: those in elements drawn to be lost, none of which holds a line that is kept."""
    parents = reading.nodes[:, reader.NODE_PARENT]
    is_lost = np.array([chance.random() < LOST_RATIO for _ in parents])
    holds = np.zeros(len(parents), np.bool_)
    for row in kept:
        node = int(reading.lines[row, reader.LINE_NODE])
        while node > 0 and not holds[node]:
            holds[node] = True
            node = int(parents[node])
    for node in range(1, len(parents)):
        is_lost[node] = (is_lost[node] or is_lost[parents[node]]) and not holds[node]
    is_lost[0] = False
    return np.asarray(is_lost[reading.lines[:, reader.LINE_NODE]])


def page_f1(row: dict[str, Any], page: bytes, model: LineModel) -> float:
    """F1 of the text that a model chooses of a page."""
    reading = read(page)
    title = metadata.headline(page, metadata.head_metas(page))[0]
    result = np.empty(len(reading.out), np.uint8)
    size = lines.join(reading.out, reading.lines, judge(reading, title, model).rules, result)
    return score(row, bytes(result.data[:size]).decode()).f1


def cross_validate(pages: list[LabelledPage], found: list[list[Examples]], share: float) -> list[float]:
    """F1 of each page with gold text by trees that were trained without a fifth of the sites, its own among them."""
    fold_of = [fold(row) for row, _ in pages]
    models = [
        train([one for at, examples in zip(fold_of, found, strict=True) if at != left for one in examples], share)
        for left in range(FOLDS)
    ]
    return [page_f1(row, page, models[at]) for at, (row, page) in zip(fold_of, pages, strict=True) if row["gold"]]


def fold(row: dict[str, Any]) -> int:
    """The fifth of all sites that a page belongs to."""
    return zlib.crc32(row["site"].encode()) % FOLDS


def train(found: list[Examples], share: float, seed: int = 0) -> LineModel:
    """Boosted trees over all examples."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y, weights = (np.concatenate(part) for part in zip(*found, strict=True))
    model = HistGradientBoostingClassifier(**TREES, early_stopping=False, random_state=seed)
    model.fit(x[y >= 0], y[y >= 0], weights[y >= 0])
    bias = float(np.ravel(model._baseline_prediction)[0]) - math.log(share / (1 - share))
    trees = [tree.nodes for (tree,) in model._predictors]  # no public way to the trees
    made = no_trees(len(trees), bias)
    for tree, nodes in enumerate(trees):
        places = [(0, 0, 0)]  # node, its place, its level
        while places:
            node, place, level = places.pop()
            if not nodes[node]["is_leaf"]:
                made.features[tree, place] = nodes[node]["feature_idx"]
                made.thresholds[tree, place] = nodes[node]["num_threshold"]
                places += [
                    (int(nodes[node][side]), 2 * place + way, level + 1) for way, side in ((1, "left"), (2, "right"))
                ]
            else:
                first = ((place + 1) << DEPTH - level) - (1 << DEPTH)
                made.leaves[tree, first : first + (1 << DEPTH - level)] = nodes[node]["value"]
    return made


def main() -> None:
    """Train and write, or cross-validate."""
    parser = argparse.ArgumentParser(prog="python -m tools.line_model", description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="folders with gold.jsonl and pages/")
    parser.add_argument("--out", type=Path, help="where to write the table; without it, F1 by folds of sites")
    parser.add_argument("--share", type=float, default=SHARE, help=f"probability that is enough (default: {SHARE})")
    arguments = parser.parse_args()
    rows = [row for folder in arguments.folders for row in read_labelled(folder)]
    pages = [(row, row["html"].encode()) for row in rows if row["html"]]  # what cannot be decoded is left out
    by_page = [page_examples(*page, random.Random(page[0]["file"])) for page in pages]
    if arguments.out is None:
        values = np.array(cross_validate(pages, by_page, arguments.share))
        print(f"{len(values)} pages: F1 {values.mean():.3f}, {(values > GOOD).mean():.3f} above {GOOD}")
        return
    found = [one for examples in by_page for one in examples]
    model = train(found, arguments.share)
    with arguments.out.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **model._asdict())
    print(f"{len(found):,} pages and variants, {sum(len(one.y) for one in found):,} lines -> {arguments.out}")


if __name__ == "__main__":
    main()

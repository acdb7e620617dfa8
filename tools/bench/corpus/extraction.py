"""Extraction of main text, title, date and author on labelled pages, beside other extractors, and its speed.

    python -m tools.bench extraction --labelled DIR --peers                 DIR: gold.jsonl and pages/NAME (or NAME.gz)

Precision, recall and F1 are of multisets of 4-character shingles of letters and digits, means over the pages with gold
text; a line that is the title or one of the page's `optional` lines counts neither for nor against, as do footnote
marks and the numbers of ordered lists. A sentence (split at 。！？ and line ends) is present when all of it stands in the
output. An author is right when it is the gold or one of several names given; precision is over all that are given.
`folds` are the lowest and highest mean of five groups of sites; rules are not fitted anew for each. The interval is of
a bootstrap over pages, paired. All peers get the page as we decoded it; ms and MB/s are of CPU time, over all pages and
their bytes in UTF-8.
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import time
import zlib
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpus.encoding import UndecodableError, decode
from corpus.engine.errors import UsageError
from corpus.extract import ExtractConfig, RefusedPage, extract_html
from tools.bench.peers.environment import EXTRACTION

NAMES = re.compile(r"""\s(?:class|id)\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
NGRAM, GOOD, FEW_HAN, FOLDS, RESAMPLES = 4, 0.9, 200, 5, 2_000
_NOTE = re.compile(r"\[(?:\d+|注 ?\d+|编辑|編輯)\]")
_NUMBER = re.compile(r"^\s*\d{1,4}\.\s+", re.MULTILINE)
_HAN = re.compile("[\u4e00-\u9fff]")

Row = dict[str, Any]  # a line of gold.jsonl, with the page's text under `html`
Found = dict[str, Any]  # text, title, date, author, ms, error


class Score(NamedTuple):
    """Of one page: precision, recall, F1, sentences present, sentences, whether there is hardly any text."""

    precision: float
    recall: float
    f1: float
    present: int
    sentences: int
    failed: bool


def run(arguments: Namespace) -> None:
    """Print the tables.

    Raises:
        UsageError: no `--labelled`.
    """
    if arguments.labelled is None:
        raise UsageError("extraction needs --labelled: a folder with gold.jsonl and pages/.")
    rows = list(read_labelled(arguments.labelled))
    if arguments.strip_classes:
        rows = [row | {"html": NAMES.sub("", row["html"])} for row in rows]
    results = {"ours": {row["file"]: ours(row["html"]) for row in [rows[0], *rows]}}
    if arguments.peers:
        results |= peers(rows, arguments.out or EXTRACTION.folder)
    report(rows, results, arguments.worst)


def read_labelled(folder: Path) -> Iterator[Row]:
    """The pages of a folder, decoded as ours are; one that is refused is empty."""
    for line in (folder / "gold.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        path = folder / "pages" / row["file"]
        raw = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
        try:
            yield row | {"html": decode(raw).text}
        except UndecodableError:
            yield row | {"html": ""}


def ours(html: str) -> Found:
    """What we find; nothing on a page that we refuse."""
    start = time.process_time()
    try:
        page, error = extract_html(html, ExtractConfig()), None
    except RefusedPage as refused:
        page, error = None, str(refused)
    ms = 1e3 * (time.process_time() - start)
    found = {key: getattr(page, key, None) for key in ("title", "date", "author")}
    return {"text": page.text if page else "", **found, "ms": ms, "error": error}


def peers(rows: list[Row], folder: Path) -> dict[str, dict[str, Found]]:
    """What the others find, in their environment, which is installed unless it stands."""
    EXTRACTION.install()
    pages, out = folder / "pages.jsonl", folder / "results.json"
    pages.write_text("".join(json.dumps({"file": row["file"], "html": row["html"]}) + "\n" for row in rows))
    EXTRACTION.run("extract_pages.py", str(pages), str(out))
    found: dict[str, dict[str, Found]] = json.loads(out.read_text("utf-8"))
    return found


def report(rows: list[Row], results: dict[str, dict[str, Found]], num_worst: int) -> None:
    """Print one line an extractor, F1 by genre, and our worst pages."""
    texts = [row for row in rows if row["gold"]]
    scores = {name: [score(row, found[row["file"]]["text"]) for row in texts] for name, found in results.items()}
    print(
        f"{len(rows)} pages, {len({row['site'] for row in rows})} sites, {len(rows) - len(texts)} of them without gold "
        f"text"
    )
    print(
        f"{'':12} P     R     F1    >0.9  folds        sentences failed title date  author P,R  lists<200     ms   "
        f"MB/s ours-F1 [95%]"
    )
    for name, found in results.items():
        print(f"{name:12} {summary(rows, texts, scores[name], found)} {against(scores['ours'], scores[name])}")
    for genre, count in Counter(row["genre"] for row in texts).most_common():
        chosen = [index for index, row in enumerate(texts) if row["genre"] == genre]
        cells = (f"{name} {statistics.mean(of[index].f1 for index in chosen):.3f}" for name, of in scores.items())
        print(f"  {genre:12} {count:4}  {'  '.join(cells)}")
    worst = sorted(zip(scores["ours"], texts, strict=True), key=lambda pair: pair[0].f1)[:num_worst]
    for one, row in worst:
        print(f"  {one.f1:.3f} P {one.precision:.3f} R {one.recall:.3f} {row['genre']:10} {row['file']}")
    for name, found in results.items():
        errors = [f"{file}: {one['error']}" for file, one in found.items() if one["error"]]
        if errors:
            print(f"  {name}: {len(errors)} errors, the first: {errors[0][:120]}")


def summary(rows: list[Row], texts: list[Row], scores: list[Score], found: dict[str, Found]) -> str:
    """The figures of an extractor, in the order of `report`."""
    p, r, f1 = (statistics.mean(one[column] for one in scores) for column in range(3))
    folds: dict[int, list[float]] = defaultdict(list)
    for row, one in zip(texts, scores, strict=True):
        folds[zlib.crc32(row["site"].encode()) % FOLDS].append(one.f1)
    means = sorted(map(statistics.mean, folds.values()))
    facts = [fact(texts, found, "title", title_is), fact(texts, found, "date", lambda given, gold: given[:10] == gold)]
    given = [row for row in rows if found[row["file"]]["author"]]
    right = sum(author_is(found[row["file"]]["author"], row.get("author") or "") for row in given)
    author = f"{right / max(1, len(given)):.2f},{fact(texts, found, 'author', author_is)}"
    lists = [len(_HAN.findall(found[row["file"]]["text"])) < FEW_HAN for row in rows if not row["gold"]]
    num_bytes, ms = sum(len(row["html"].encode()) for row in rows), sum(found[row["file"]]["ms"] for row in rows)
    return (
        f"{p:.3f} {r:.3f} {f1:.3f} {statistics.mean(one.f1 > GOOD for one in scores):.3f} "
        f"{means[0]:.3f}..{means[-1]:.3f} "
        f"{sum(one.present for one in scores) / max(1, sum(one.sentences for one in scores)):9.3f} "
        f"{sum(one.failed for one in scores):6} {facts[0]:>5} {facts[1]:>5} {author:>11} "
        f"{sum(lists):4}/{len(lists):<4} "
        f"{ms / len(rows):6.1f} {num_bytes / 1e3 / ms:6.1f}"
    )


def fact(rows: Iterable[Row], found: dict[str, Found], key: str, is_right: Callable[[str, str], bool]) -> str:
    """Share of the pages with a gold value on which it is found."""
    right = [is_right(str(found[row["file"]][key] or "")[:300], row[key]) for row in rows if row.get(key)]
    return f"{statistics.mean(right):.2f}" if right else "-"


def title_is(given: str, gold: str) -> bool:
    """Whether a title is the gold, letter by letter."""
    return letters(given) == letters(gold) != ""


def author_is(given: str, gold: str) -> bool:
    """Whether an author is the gold, or one of the names given is."""
    names = [letters(name) for name in re.split(r"[,，、;；/ ]+", given)]
    return letters(gold) != "" and letters(gold) in [letters(given), *names]


def score(row: Row, text: str) -> Score:
    """How well a text agrees with a page's gold.

    >>> score({"gold": "学而时习之。不亦说乎！", "title": "论语"}, "论语\\n学而时习之")[:5]
    (1.0, 0.3333333333333333, 0.5, 1, 2)
    """
    skipped = {letters(line) for line in [*(row.get("optional") or []), row.get("title") or ""]}
    got, gold = shingles(text, skipped), shingles(row["gold"], skipped)
    common = sum((got & gold).values())
    precision, recall = common / max(1, got.total()), common / max(1, gold.total())
    f1 = 2 * precision * recall / (precision + recall) if common else 0.0
    sentences = [part for part in map(letters, re.split(r"[。！？\n]", row["gold"])) if len(part) >= NGRAM]
    whole = letters(text)
    present = sum(sentence in whole for sentence in sentences)
    return Score(precision, recall, f1, present, len(sentences), got.total() < 10 - NGRAM + 1)


def shingles(text: str, skipped: set[str]) -> Counter[str]:
    """The 4-character shingles of a text's letters and digits, without lines to skip."""
    lines = map(letters, _NUMBER.sub("", text).splitlines())
    whole = "".join(line for line in lines if line not in skipped)
    return (
        Counter(whole[start : start + NGRAM] for start in range(max(1, len(whole) - NGRAM + 1))) if whole else Counter()
    )


def letters(text: str) -> str:
    """Letters and digits, without footnote marks."""
    return "".join(filter(str.isalnum, _NOTE.sub("", text)))


def against(ours: list[Score], theirs: list[Score]) -> str:
    """The mean difference of F1, and its 95 % interval by resampling pages."""
    apart = np.array([a.f1 - b.f1 for a, b in zip(ours, theirs, strict=True)])
    picks = np.random.default_rng(0).integers(0, len(apart), (RESAMPLES, len(apart)))
    low, high = np.percentile(apart[picks].mean(axis=1), [2.5, 97.5])
    return f"{apart.mean():+.3f} [{low:+.3f}, {high:+.3f}]"

"""What deduplication finds, what it should find, and what others find: python -m tools.evaluate.dedup --data FOLDER

FOLDER holds `text/*.jsonl` (prose), `dups/*.jsonl` (labelled pairs) and `html/` (pages of a few manuals). Tables:

1. Planted duplicates (planted_duplicates.py) by kind: pairs of which one document is left. "promised" is what the
   theory of MinHash and bands gives for the pairs' exact Jaccards, with its binomial error. With --peers the same
   documents go through datatrove's and text-dedup's MinHash, each in an environment of its own below build/peers.
2. False merges: documents without a duplicate that are gone.
3. Labelled pairs: how many of each label are merged.
4. The choice of shingle, bands and threshold: what each would find and merge, a manual's pages too, whose frame is the
   same and whose content is not.
5. The S-curve: pairs that meet in a band by Jaccard, against 1 - (1 - j^rows)^bands, and those that are then verified.
   --svg FILE draws it for the default shingle.
6. Which copy stays: how often a text outranks the same text with a tail (site_tails.txt) or cut by a tenth.

--seed N takes other passages for other kinds and other edits: what holds for one seed only is chance.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup import DedupConfig, near_duplicates
from corpus.dedup.near.minhash import minhash
from corpus.dedup.near.ranks import rank_words, read_facts
from corpus.dedup.text.fold import fold
from corpus.dedup.text.keys import text_buffers
from corpus.engine.errors import WenhaiError
from tokenizer.report.shown import table
from tools.bench.peers.environment import DATATROVE, TEXT_DEDUP
from tools.evaluate.planted_duplicates import KINDS, Planted, passages, plant
from tools.evaluate.shared import read_rows, read_texts
from tools.plot import Floats, Line, write_lines

PAIRS = 200  # of each kind, and of each step of the S-curve
NGRAMS = range(3, 10)
BANDS = ((14, 8), (16, 7), (20, 6), (9, 12))  # bands x rows
MAX_PERMUTATIONS = 120  # of BANDS: the S-curves are of one signature
CHOSEN_BANDS = 3  # of BANDS, in the table of choices
THRESHOLDS = (0.7, 0.75, 0.8)
CHOICES = (
    "edits 1 %",
    "edits 3 %",
    "edits 5 %",
    "header + footer",
    "truncated 10 %",
    "truncated 30 %",
    "Taiwan's words",
)
STEPS = np.arange(0.5, 1.0001, 0.05)
SIMULATED = 4000  # signatures of each Jaccard
SIGMAS = 3.0
TAILS = Path(__file__).parent / "site_tails.txt"
RANKED_TEXTS, RANKED_CHARS = 60, (300, 6000)  # of each source; a longer text is cut
TAG = re.compile(r"<script.*?</script>|<style.*?</style>|<[^>]*>", re.DOTALL)

Shingles = npt.NDArray[np.uint64]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="see above")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of each kind ({PAIRS})")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument("--peers", action="store_true", help="also run datatrove and text-dedup (installs them)")
    parser.add_argument("--svg", type=Path, help="draw the S-curve into this file")
    options = parser.parse_args(arguments)
    documents = plant(options.data / "text", options.pairs, options.seed)
    kept = {"ours": _kept_by_us(documents)} | (_kept_by_peers(documents) if options.peers else {})
    curves = measure_curves(options.data / "text", options.pairs, options.seed)
    chosen, pages = DedupConfig(), sorted((options.data / "html").rglob("*.html"))  # frame and all
    manuals = [TAG.sub("", page.read_text("utf-8", "replace")) for page in pages]
    tables = [
        recall_table(documents, kept),
        false_merge_table(documents, kept),
        pairs_table(options.data / "dups"),
        choice_table(documents, options.data / "dups", manuals),
        curve_table(curves),
        survivor_table(options.data / "text", options.seed),
    ]
    for rows in tables:
        print(table(rows) + "\n")
    if options.svg:
        shown = [curve for curve in curves if curve.name.startswith(f"n = {chosen.ngram},")]
        mark = (chosen.threshold, f"threshold {chosen.threshold}")
        left = round(min(float(curve.x.min()) for curve in shown), 1)
        write_lines(options.svg, shown, "Jaccard", "share of pairs found", left, mark)


def recall_table(documents: Sequence[Planted], kept: dict[str, set[int]]) -> list[list[str]]:
    """By kind: the pairs' mean Jaccard, what is promised for them, and of how many each program leaves one document."""
    rows = [["planted", "pairs", "mean Jaccard", "promised", *kept]]
    for kind in KINDS:
        clusters = _clusters(documents, kind)
        similarities = jaccards([[documents[i].text for i in pair] for pair in clusters], DedupConfig().ngram)
        chances = expected_recall(similarities, DedupConfig())
        error = SIGMAS * float(np.sqrt((chances * (1 - chances)).sum()))
        row = [kind, str(len(clusters)), f"{similarities.mean():.2f}", f"{chances.sum():.0f} ± {error:.0f}"]
        rows.append(row + [str(sum(len(stay & set(pair)) == 1 for pair in clusters)) for stay in kept.values()])
    return rows


def false_merge_table(documents: Sequence[Planted], kept: dict[str, set[int]]) -> list[list[str]]:
    """Documents that have no duplicate and are gone, and pairs of which both are."""
    rows = [["false merges", "of", *kept]]
    for kind in ("templated", "single"):
        alone = _clusters(documents, kind)
        rows.append(
            [kind, str(len(alone)), *(str(sum(not stay & set(one) for one in alone)) for stay in kept.values())]
        )
    pairs = [pair for kind in KINDS for pair in _clusters(documents, kind)]
    rows.append(["both of a pair", str(len(pairs))])
    rows[-1] += [str(sum(not stay & set(pair) for pair in pairs)) for stay in kept.values()]
    return rows


def pairs_table(folder: Path) -> list[list[str]]:
    """By label: pairs, the range of their Jaccards, and how many are merged, at the default threshold and others."""
    found = _labelled(folder)
    thresholds = (*THRESHOLDS, 0.85)
    rows = [["labelled pairs", "pairs", "Jaccard", *(f"at {threshold}" for threshold in thresholds)]]
    for label, pairs in sorted(found.items()):
        similarities = jaccards(pairs, DedupConfig().ngram)
        merged = [sum(bool(near_duplicates(pair, DedupConfig(threshold=t))) for pair in pairs) for t in thresholds]
        spread = f"{similarities.min():.2f}-{similarities.max():.2f}"
        rows.append([label, str(len(pairs)), spread, *map(str, merged)])
    return rows


def choice_table(documents: Sequence[Planted], folder: Path, manuals: Sequence[str]) -> list[list[str]]:
    """By shingle, bands and threshold: pairs found of each kind that a choice can lose, and what is merged besides.

    "templated" are pages without a duplicate that are dropped; "related" are revisions of one page that share less
    than `near_dup` ones, which a corpus may want merged or not. "manuals" are pages of the manuals that are dropped.
    """
    texts = [document.text for document in documents]
    clusters = {kind: _clusters(documents, kind) for kind in (*CHOICES, "templated")}
    related = _labelled(folder).get("related", [])
    header = [*CHOICES, "templated", "related", "manuals"]
    sizes = [*map(len, clusters.values()), len(related), len(manuals)]
    rows = [["choice", *header], ["of", *map(str, sizes)]]
    for ngram in NGRAMS:
        for bands, band_rows in BANDS[:CHOSEN_BANDS]:
            for threshold in THRESHOLDS:
                config = DedupConfig(
                    ngram=ngram, num_permutations=bands * band_rows, bands=bands, rows=band_rows, threshold=threshold
                )
                gone = {duplicate.index for duplicate in near_duplicates(texts, config)}
                counts = [sum(bool(gone & set(members)) for members in found) for found in clusters.values()]
                counts.append(sum(bool(near_duplicates(pair, config)) for pair in related))
                counts.append(len(near_duplicates(manuals, config)))
                rows.append([f"n = {ngram}, {bands} x {band_rows}, {threshold}", *map(str, counts)])
    return rows


def measure_curves(folder: Path, pairs: int, seed: int = 0) -> list[Line]:
    """For every shingle length and choice of bands: the share of pairs that meet, by Jaccard, and the theory's.

    The last curve is of the pairs that the defaults find, verification and all. A pair is a passage's beginning with
    two other passages' ends, cut so that it has about the wanted Jaccard; it is counted at its exact one.
    """
    taken = list(zip(range(3 * pairs), passages(folder, random.Random(seed + 1)), strict=False))
    thirds = [[text for number, text in taken if number % 3 == part] for part in range(3)]
    texts: list[str] = []
    for step in STEPS.tolist():
        for passage, *ends in zip(*thirds, strict=True):
            length = min(map(len, (passage, *ends)))
            shared = round(length * 2 * step / (1 + step))
            texts += [passage[:shared] + end[: length - shared] for end in ends]
    made, chosen, curves = list(zip(texts[::2], texts[1::2], strict=True)), DedupConfig(), []
    for ngram in NGRAMS:
        signatures = minhash(*fold(*text_buffers(pa.array(texts, pa.large_string()))), ngram, MAX_PERMUTATIONS)
        equal = signatures[::2] == signatures[1::2]
        similarities = jaccards(made, ngram).reshape(len(STEPS), -1)
        for bands, rows in BANDS:
            meets = equal[:, : bands * rows].reshape(len(equal), bands, rows).all(axis=2).any(axis=1)
            chances = 1 - (1 - similarities**rows) ** bands
            curves.append(_curve(f"n = {ngram}, {bands} x {rows}", similarities, meets, chances))
    similarities = jaccards(made, chosen.ngram).reshape(len(STEPS), -1)
    found = np.array([bool(near_duplicates(pair)) for pair in made])
    name = f"n = {chosen.ngram}, {chosen.bands} x {chosen.rows}, verified at {chosen.threshold}"
    return [*curves, _curve(name, similarities, found, expected_recall(similarities, chosen))]


def survivor_table(folder: Path, seed: int) -> list[list[str]]:
    """By source of the texts: the share of pairs of which the clean and whole copy outranks the other."""
    _, known, unseen = re.split(r"^#.*\n(?!#)", TAILS.read_text("utf-8"), flags=re.MULTILINE)
    changes: dict[str, list[str]] = {"tails of the list": known.splitlines(), "tails unseen": unseen.splitlines()}
    rows = [["which copy stays"], *([name] for name in (*changes, "cut by 10 %"))]
    for source, texts in read_texts(folder).items():
        long = [text[: RANKED_CHARS[1]] for text in texts if len(text) >= RANKED_CHARS[0]]
        if not long:
            continue
        drawn = random.Random(seed).sample(long, min(RANKED_TEXTS, len(long)))
        copies = [
            [[text + "\n" + tail.replace("\\n", "\n") for text in drawn] for tail in tails]
            for tails in changes.values()
        ]
        copies.append([[text[: len(text) * 9 // 10] for text in drawn]])
        clean = _ranks(drawn)
        rows[0].append(f"{source} ({len(drawn)})")
        for row, others in zip(rows[1:], copies, strict=True):
            row.append(f"{np.mean([clean > _ranks(other) for other in others]):.2f}")
    return rows


def _ranks(texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    column, nothing = pa.array(texts, pa.large_string()), pa.nulls(len(texts), pa.string())
    documents = pa.table({"text": column, "source": nothing.fill_null(""), "date": nothing})
    _, offsets = fold(*text_buffers(column))
    return rank_words(np.diff(offsets), read_facts(documents, None, DedupConfig()), DedupConfig())


def _curve(name: str, similarities: Floats, found: npt.NDArray[np.bool_], chances: Floats) -> Line:
    error = np.sqrt((chances * (1 - chances)).sum(axis=1)) / similarities.shape[1]
    share = found.reshape(similarities.shape).mean(axis=1)
    return Line(name, similarities.mean(axis=1), chances.mean(axis=1), measured=share, error=error)


def curve_table(curves: Sequence[Line]) -> list[list[str]]:
    """Measured / promised share by Jaccard; the last column is the largest difference in standard errors."""
    rows = [["pairs that meet", *(f"j {step:.2f}" for step in STEPS), "worst"]]
    for curve in curves:
        assert curve.measured is not None and curve.error is not None
        cells = [f"{found:.2f}/{chance:.2f}" for found, chance in zip(curve.measured, curve.y, strict=True)]
        error = np.abs(curve.measured - curve.y) / np.maximum(curve.error, 1 / (2 * PAIRS))
        rows.append([curve.name, *cells, f"{error.max():.1f}"])
    return rows


def jaccards(pairs: Sequence[Sequence[str]], ngram: int) -> Floats:
    """float64[pairs]: the exact Jaccard similarity of the folded n-gram sets.

    >>> jaccards([("學而時習之，不亦說乎", "学而时习之 不亦说乎"), ("学而时习之", "学而时习")], 2)
    array([1.  , 0.75])
    """
    sets = shingles([text for pair in pairs for text in pair], ngram)
    shared = [len(np.intersect1d(a, b, assume_unique=True)) for a, b in zip(sets[::2], sets[1::2], strict=True)]
    whole = [max(1, len(a) + len(b)) for a, b in zip(sets[::2], sets[1::2], strict=True)]
    return np.array([common / max(1, total - common) for common, total in zip(shared, whole, strict=True)])


def shingles(texts: Sequence[str], ngram: int) -> list[Shingles]:
    """The set of 64-bit hashes of each text's folded n-grams, sorted."""
    codes, offsets = fold(*text_buffers(pa.array(texts, pa.large_string())))
    factors = np.random.default_rng(0).integers(1, 1 << 63, ngram, np.uint64) * np.uint64(2) + np.uint64(1)
    found = []
    for start, end in pairwise(offsets):
        count = max(0, end - start - ngram + 1)
        hashes = np.zeros(count, np.uint64)
        for place, factor in enumerate(factors):
            hashes += codes[start + place : start + place + count].astype(np.uint64) * factor
        found.append(np.unique(hashes))
    return found


def expected_recall(similarities: Floats, config: DedupConfig) -> Floats:
    """P(some band is equal and enough minima are) of each Jaccard, each minimum equal with that chance: by
    simulation."""
    generator = np.random.default_rng(0)
    grid = np.linspace(0, 1, 101)
    chances = np.empty(len(grid))
    for index, similarity in enumerate(grid):
        equal = generator.random((SIMULATED, config.num_permutations)) < similarity
        bands = equal[:, : config.bands * config.rows].reshape(SIMULATED, config.bands, config.rows)
        chances[index] = (bands.all(axis=2).any(axis=1) & (equal.mean(axis=1) >= config.threshold - 1e-9)).mean()
    return np.asarray(np.interp(similarities, grid, chances))


def _labelled(folder: Path) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        for pair in read_rows(path):
            found[pair["label"]].append((pair["a"], pair["b"]))
    return found


def _clusters(documents: Sequence[Planted], kind: str) -> list[tuple[int, ...]]:
    """The documents' numbers, cluster by cluster."""
    found: dict[int, list[int]] = defaultdict(list)
    for number, document in enumerate(documents):
        if document.kind == kind:
            found[document.cluster].append(number)
    return [tuple(members) for members in found.values()]


def _kept_by_us(documents: Sequence[Planted]) -> set[int]:
    found = near_duplicates([document.text for document in documents])
    wrong = Counter(
        documents[one.index].kind for one in found if documents[one.index].cluster != documents[one.survivor].cluster
    )
    if wrong:
        print("ours: merged with a document that is no planted duplicate:", dict(wrong))
    return set(range(len(documents))) - {one.index for one in found}


def _kept_by_peers(documents: Sequence[Planted]) -> dict[str, set[int]]:
    for peer in (DATATROVE, TEXT_DEDUP):
        peer.install()
    texts = [document.text for document in documents]
    datatrove = DATATROVE.run_on(texts, "datatrove_minhash.py", "duplicates")
    text_dedup = TEXT_DEDUP.run_on(texts, "text_dedup_minhash.py")
    return {"datatrove": set(datatrove["kept"]), "text-dedup": set(text_dedup["kept"])}


if __name__ == "__main__":
    try:
        main()
    except WenhaiError as error:
        sys.exit(f"evaluate.dedup: {error}")

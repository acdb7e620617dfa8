"""What the quality statistics tell apart, on labelled pages: `python -m tools.evaluate_quality pages.jsonl [more.jsonl ...]`.

A page is a JSON object with `text`, `label` ("good" or not) and `kind`; files after the first hold good texts whose kind
is the file's name. Printed are the distribution of `quality.bigram_association` by kind; for each of five folds the
gap between shuffled and good pages that its threshold would lie in, chosen on the other four; and the linear model,
trained on three fifths, calibrated on one and tried on the fifth: F1 and AUC by fold, and what it adds to the rules.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.filters import load, measure
from corpus.filters.quality import training
from corpus.filters.quality.assessment import assess, render

FOLDS = 5
SEED = 7
SCRAMBLED = "shuffled_chars"
ADVERTISING = {"cc_seo_gambling", "crypto_seo", "gambling_site", "keyword_stuffing", "spam_comment_page"}
CLASSES = ("high", "low", "advertisement")
QUANTILES = (0, 0.1, 1, 50, 99, 100)

Page = dict[str, Any]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.evaluate_quality", description="Evaluate quality statistics."
    )
    parser.add_argument("pages", type=Path, help="labelled pages, JSONL")
    parser.add_argument("good", type=Path, nargs="*", help="more good texts, JSONL")
    parser.add_argument("--recipe", default="web_zh", help="the rules to compare the model with")
    arguments = parser.parse_args(argv)
    pages = list(read(arguments.pages))
    others = [page | {"label": "good", "kind": path.stem} for path in arguments.good for page in read(path)]
    folds = training.deal((page["text"] for page in pages), SEED) % FOLDS
    association(pages, others, folds)
    model(pages, folds, load(arguments.recipe).apply([page["text"] for page in pages]).kept)
    return 0


def read(path: Path) -> Iterator[Page]:
    """The objects of a JSONL file."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def association(pages: list[Page], others: list[Page], folds: npt.NDArray[np.int64]) -> None:
    """Print the bigram statistic by kind, and where five folds would put its threshold."""
    values = measure("quality.bigram_association", [page["text"] for page in pages + others])
    print("quality.bigram_association      documents  " + "  ".join(f"{quantile:>6g}%" for quantile in QUANTILES))
    for (label, kind), chosen in _by_kind(pages + others):
        row = "  ".join(f"{value:>7.2f}" for value in np.percentile(values[chosen], QUANTILES))
        print(f"{label:<5} {kind:<24}  {chosen.sum():>9,}  {row}")
    values = values[: len(pages)]
    good = np.array([page["label"] == "good" for page in pages])
    scrambled = np.array([page["kind"] == SCRAMBLED for page in pages])
    for fold in range(FOLDS):
        train, test = folds != fold, folds == fold
        threshold = (values[train & scrambled].max() + values[train & good].min()) / 2
        lost, removed = values[test & good] < threshold, values[test & scrambled] < threshold
        print(
            f"fold {fold}: middle of the gap {threshold:.2f}; of the fold's good pages {lost.sum()} of {len(lost)} lost, "
            f"of its shuffled ones {removed.sum()} of {len(removed)} removed"
        )


def model(pages: list[Page], folds: npt.NDArray[np.int64], kept: Bools) -> None:
    """Print the model's quality by fold and together, and what it removes that the rules keep."""
    texts = [next(iter(training.prepared([page["text"]])), "") for page in pages]
    labels = np.array([_class_of(page) for page in pages])
    labelled = training.Labelled(texts, labels.tolist())
    probabilities = np.zeros((len(pages), len(CLASSES)))
    for fold in range(FOLDS):
        test, calibration = folds == fold, folds == (fold + 1) % FOLDS
        trained = training.fit(
            labelled.select(~test & ~calibration), labelled.select(calibration), CLASSES, training.Options()
        )
        probabilities[test] = training.probabilities(trained, labelled.select(test).texts)
        found = assess(probabilities[test], labels[test], CLASSES)
        print(f"fold {fold}: " + "; ".join(f"{c.name} F1 {c.f1:.3f} AUC {c.auc:.3f}" for c in found.classes))
    print(render(assess(probabilities, labels, CLASSES)))
    passes = probabilities[:, 0] >= 0.5
    print("\nkept by                         documents    rules    model     both")
    for (label, kind), chosen in _by_kind(pages):
        shares = "  ".join(
            f"{share:>7.3f}" for share in (kept[chosen].mean(), passes[chosen].mean(), (kept & passes)[chosen].mean())
        )
        print(f"{label:<5} {kind:<24}  {chosen.sum():>9,}  {shares}")


def _class_of(page: Page) -> int:
    if page["label"] == "good":
        return 0
    return 2 if page["kind"] in ADVERTISING else 1


def _by_kind(pages: list[Page]) -> Iterator[tuple[tuple[str, str], Bools]]:
    names = [(page["label"], page["kind"]) for page in pages]
    for name in sorted(set(names)):
        yield name, np.array([other == name for other in names])


if __name__ == "__main__":
    sys.exit(main())

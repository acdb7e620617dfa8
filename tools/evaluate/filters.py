"""How well a recipe's filter tells good pages from bad: `python -m tools.evaluate.filters --data FOLDER`.

FOLDER holds labelled/*.jsonl (`text`, `label`, `kind`, `derived`), genres/*.jsonl (`text`, `label`, `domain`) and
text/*.jsonl (`text`). Thresholds are not fitted here, so there is nothing to train on folds: the five parts (by a hash
of the text) only show how far a share moves from one part of the data to another. Intervals are Wilson's at 95 %;
documents made from the same source are not quite independent, so true intervals are somewhat wider. With --peers,
FineWeb-2's recipe and datatrove's own verdicts.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.engine.cli import add_examples
from corpus.engine.config import RECIPES, load_toml
from corpus.engine.errors import UsageError
from corpus.filters import STATISTICS, Filter, load
from corpus.filters.decide import PASSES, first_failed, limits
from corpus.filters.measure import stored
from corpus.filters.rules.conditions import holds
from corpus.personal_data import KINDS
from tokenizer.report.shown import table
from tools.bench.inputs import spread
from tools.bench.peers.environment import DATATROVE
from tools.evaluate.shared import read_rows, read_texts
from tools.pii_canaries import canaries, score

FOLDS = 5
FEW, SLACK = 5, 0.25
SPREAD_BYTES = 500_000  # of each source of text, for datatrove
STEPS = {  # of FineWeb-2 for Chinese: our statistics in their place
    "repetition": r"words\.(?:top|duplicate)_|lines\.duplicate_line_ratio",
    "lines": r"lines\.(?:stop_line|duplicate_line_char)_ratio|words\.newline_ratio",
    "words": r"words\.(?:num_words|letter_ratio|stop_words)|lines\.(?:bullet|ellipsis)",
}
Z95 = 1.959964  # of a normal distribution, two-sided 95 %
TARGETS = {"good": 0.99, "bad, real": 0.88, "bad, derived": 0.98, "shuffled_chars": 0.80}

Mask = npt.NDArray[np.bool_]
Row = list[str]


@dataclass(frozen=True)
class Judged:
    """Labelled documents and what a filter did with them; arrays have an entry a document."""

    items: list[dict[str, Any]]
    kept: Mask
    first: list[str | None]  # the first rule that failed
    failed: dict[str, Mask]  # by rule and bound, all that failed
    fold: npt.NDArray[np.int64]

    def where(self, **fields: Any) -> Mask:
        """Documents with these values."""
        return np.array([all(item.get(name) == value for name, value in fields.items()) for item in self.items], bool)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m tools.evaluate.filters", description=__doc__.splitlines()[0])
    add_examples(
        parser,
        """
python -m tools.evaluate.filters --data FOLDER
python -m tools.evaluate.filters --data FOLDER --recipe my.toml
python -m tools.evaluate.filters --data FOLDER --set filter.blocklist.blocklist_ratio.max=0.03
""",
    )
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("WENHAI_TEST_DATA"), help="default: $WENHAI_TEST_DATA"
    )
    parser.add_argument("--recipe", default="web_zh", help="whose rules judge the labelled pages (default: web_zh)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override a recipe's value")
    parser.add_argument(
        "--peers", action="store_true", help="also fineweb2_zh beside datatrove, which it installs (1 GB)"
    )
    arguments = parser.parse_args()
    if arguments.data is None or not Path(arguments.data, "labelled").is_dir():
        parser.error("--data FOLDER, or WENHAI_TEST_DATA, must name a folder with labelled/ and text/")
    judge = load(arguments.recipe, arguments.set)
    pages = apply_filter(judge, read_rows(arguments.data / "labelled/pages_dev.jsonl"))
    for title, rows in tables(arguments.data, arguments.recipe, judge, pages):
        print(f"{title}\n{table(rows, range(9))}\n")
    if arguments.peers:
        print(f"fineweb2_zh and datatrove 0.10.1 on the same documents\n{table(by_step(arguments.data), range(1, 8))}")


def by_step(data: Path) -> list[Row]:
    """By source and step of FineWeb-2: documents that both drop, only we, only datatrove, none; and Cohen's kappa."""
    groups = {name: [row["text"] for row in read_rows(data / name)] for name in ("labelled/pages_dev.jsonl",)}
    groups |= {f"text/{name}": spread(texts, SPREAD_BYTES) for name, texts in read_texts(data / "text").items()}
    groups |= {f"genres/{name}": texts for name, texts in read_texts(data / "genres").items()}
    texts = [text for group in groups.values() for text in group]
    sources = np.repeat([*groups], [len(group) for group in groups.values()])
    DATATROVE.install()
    theirs = {name: ~np.array(kept) for name, kept in DATATROVE.run_on(texts, "datatrove_rules.py", "verdicts").items()}
    judged = apply_filter(load("fineweb2_zh"), [{"text": text} for text in texts])
    ours = {
        step: np.any([failed for key, failed in judged.failed.items() if re.match(pattern, key)], axis=0)
        for step, pattern in STEPS.items()
    }
    whole = ~judged.kept, np.any([*theirs.values()], axis=0)
    pairs = [("all", step, ours[step], theirs[step]) for step in STEPS] + [("all", "all", *whole)]
    pairs += [(name, "all", *(drops[sources == name] for drops in whole)) for name in groups]
    head = ["text", "step", "both drop", "only ours", "only datatrove", "none", "agreement", "kappa"]
    return [head, *([name, step, *_agreement(a, b)] for name, step, a, b in pairs)]


def _agreement(a: Mask, b: Mask) -> Row:
    equal, chance = (a == b).mean(), a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    counts = (f"{both.sum():,}" for both in (a & b, a & ~b, ~a & b, ~a & ~b))
    return [*counts, f"{equal:.1%}", f"{(equal - chance) / (1 - chance):.3f}" if chance < 1 else "–"]


def tables(data: Path, recipe: str, judge: Filter, pages: Judged) -> Iterable[tuple[str, list[Row]]]:
    """Every table with its title; the first row is its head."""
    yield f"{recipe} on labelled pages, by kind", by_kind(pages)
    yield f"{recipe}: what each rule removes", by_rule(pages)
    for name, whose in (("cc_docs_dev", recipe), ("short_spam_dev", "forum_zh")):
        path = data / f"labelled/{name}.jsonl"
        if path.exists():
            chosen = judge if whose == recipe else load(whose)
            yield f"{whose} on {name} (for information)", by_kind(apply_filter(chosen, read_rows(path)), targets=False)
    if paths := sorted((data / "genres").glob("*.jsonl")):
        genres = [row | {"kind": row["domain"]} for path in paths for row in read_rows(path)]
        yield f"{recipe} on genres", by_kind(apply_filter(judge, genres), targets=False)
        yield "good texts of each genre, as shipped and left out", left_out(judge, pages.items, genres)
    names = sorted(path.stem for path in RECIPES.glob("*.toml") if load_toml(path).keys() & {"filter", "extends"})
    yield "every recipe on texts by source: share of documents kept", by_source(data / "text", names)
    yield "personal data in made-up strings (tools/pii_canaries)", by_personal_kind()


def left_out(judge: Filter, pages: list[dict[str, Any]], genres: list[dict[str, Any]]) -> list[Row]:
    """What each genre keeps where its own texts had no say in the ranges.

    For each genre the recipe is made stricter by the good texts of all others: a range under a condition that fewer
    than FEW of them fulfil goes, and a limit lies no further beyond the last of them than SLACK of its value. Limits
    of length stay: how long the labelled pages are was chosen by who collected them.
    """
    items = [item for item in (*pages, *genres) if item["label"] == "good"]
    measured = stored(judge.apply(pa.table({"text": [item["text"] for item in items]})).table, STATISTICS)
    named = np.array([item.get("domain", "") for item in items])
    rows = [["genre", "good", "kept", "kept left out", "rules"]]
    for genre in dict.fromkeys(named[named != ""].tolist()):
        there, others = named == genre, named != genre
        places: dict[str, int] = {}
        rules = []
        for rule in judge.rules:
            whole = holds(rule.when, measured) & others
            if rule.place is not None:
                if rule.when and whole.sum() < FEW:
                    continue
                rule = rule.model_copy(update={"place": places.setdefault(rule.key, 0)})
                places[rule.key] += 1
            rules.append(rule)
        tried = []
        for limit in limits(rules):
            values = measured[limit.key][limit.judges(measured) & others]
            if values.size and not limit.key.startswith("length."):
                last = np.nanmin(values) if limit.bound == "min" else np.nanmax(values)
                last += (-SLACK if limit.bound == "min" else SLACK) * abs(last)
                stricter = max if limit.bound == "min" else min
                limit = limit._replace(threshold=float(stricter(limit.threshold, last)))
            tried.append(limit)
        shipped, failed = (first_failed(measured, some, len(items))[there] for some in (judge.limits, tried))
        lost = Counter(tried[index].name for index in failed[failed != PASSES].tolist())
        told = ", ".join(f"{name} {count}" for name, count in lost.most_common(3))
        rows.append(
            [genre, *(f"{n:,}" for n in (there.sum(), (shipped == PASSES).sum(), (failed == PASSES).sum())), told]
        )
    return rows


def apply_filter(judge: Filter, items: list[dict[str, Any]]) -> Judged:
    """Apply a filter and say of each document every rule that it failed, not only the first."""
    table = judge.apply(pa.table({"text": pa.array([item["text"] for item in items], pa.large_string())})).table
    measured = stored(table, {key for limit in judge.limits for key in limit.keys})
    failed = {f"{limit.rule} {limit.bound}": limit.fails(measured) for limit in judge.limits}
    fold = np.array([zlib.crc32(item["text"].encode()) % FOLDS for item in items], np.int64)
    return Judged(items, np.asarray(table["kept"].to_numpy(), np.bool_), table["rule"].to_pylist(), failed, fold)


def by_kind(found: Judged, targets: bool = True) -> list[Row]:
    """Good kinds by the share kept, bad ones by the share removed, and their totals."""
    rows = [["label", "kind", "made", "documents", "right", "share", "95 % interval", "five parts", "first rules"]]
    kinds = dict.fromkeys((item["label"], item["kind"], bool(item.get("derived"))) for item in found.items)
    for label, kind, derived in sorted(kinds, key=lambda key: (key[0] == "bad", key[2], key[1])):
        chosen = found.where(label=label, kind=kind)
        target = TARGETS.get(kind) or (TARGETS["bad, derived"] if derived else None)
        rows.append([label, kind, "derived" if derived else "real", *_share(found, chosen, label, target)])
    if targets:
        derived_mask = np.array([bool(item.get("derived")) for item in found.items])
        bad = found.where(label="bad")
        for name, label, chosen in (
            ("good", "good", found.where(label="good")),
            ("bad, real", "bad", bad & ~derived_mask),
            ("bad, derived", "bad", bad & derived_mask),
        ):
            rows.append([label, "ALL", name, *_share(found, chosen, label, TARGETS[name])])
    return rows


def _share(found: Judged, chosen: Mask, label: str, target: float | None) -> Row:
    right = found.kept if label != "bad" else ~found.kept
    total, hits = int(chosen.sum()), int((right & chosen).sum())
    low, high = wilson(hits, total)
    parts = [float(right[part].mean()) for fold in range(FOLDS) if (part := chosen & (found.fold == fold)).any()]
    rules: dict[str, int] = {}
    for row in np.flatnonzero(chosen & ~found.kept).tolist():
        rules[str(found.first[row])] = rules.get(str(found.first[row]), 0) + 1
    top = sorted(rules.items(), key=lambda entry: (-entry[1], entry[0]))[:3]
    mark = "" if target is None or hits / total >= target else f" (below {target:.0%})"
    return [
        f"{total:,}",
        f"{hits:,}",
        f"{hits / total:.1%}{mark}",
        f"{low:.1%} to {high:.1%}",
        f"{min(parts):.0%} to {max(parts):.0%}",
        ", ".join(f"{rule} {count}" for rule, count in top),
    ]


def by_rule(found: Judged) -> list[Row]:
    """Bad and good documents that each rule is the first to remove, removes at all, and alone removes."""
    head = ["rule", "first: bad", "good", "at all: bad", "good", "alone: bad real", "derived", "good"]
    rows = [head]
    good, bad = found.where(label="good"), found.where(label="bad")
    derived = np.array([bool(item.get("derived")) for item in found.items])
    times = np.sum(list(found.failed.values()), axis=0)
    remaining = np.ones(len(found.items), bool)
    for name, failed in found.failed.items():
        first, alone = failed & remaining, failed & (times == 1)
        remaining &= ~failed
        groups: list[Mask] = [first & bad, first & good, failed & bad, failed & good]
        groups += [alone & bad & ~derived, alone & bad & derived, alone & good]
        rows.append([name, *(f"{int(group.sum()):,}" for group in groups)])
    return rows


def by_source(folder: Path, recipes: Sequence[str]) -> list[Row]:
    """For each file of texts, the share of documents and of characters that each recipe keeps."""
    rows = [["text", "documents", *recipes]]
    filters = [load(recipe) for recipe in recipes]
    for source, texts in read_texts(folder).items():
        sizes = np.array([len(text) for text in texts])
        row = [source, f"{len(texts):,}"]
        for judge in filters:
            kept = judge.apply(texts).kept
            row.append(f"{kept.mean():.1%} ({sizes[kept].sum() / sizes.sum():.1%} of characters)")
        rows.append(row)
    return rows


def by_personal_kind() -> list[Row]:
    """Precision and recall of each kind of personal data on generated strings and look-alikes."""
    found = score(list(canaries()))
    rows = [["kind", "values", "found", "precision", "95 % interval", "recall", "95 % interval"]]
    for kind in KINDS:
        hits, totals = found.hits[kind], (found.found[kind], found.values[kind])
        row = [kind, f"{found.values[kind]:,}", f"{found.found[kind]:,}"]
        for total in totals:
            low, high = wilson(hits, total)
            row += [f"{hits / max(1, total):.2%}", f"{low:.1%} to {high:.1%}"]
        rows.append(row)
    return rows


def wilson(hits: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (E. B. Wilson, 1927).

    >>> [round(bound, 3) for bound in wilson(97, 100)]
    [0.915, 0.99]
    """
    if not total:
        return 0.0, 1.0
    share = hits / total
    centre = share + Z95**2 / (2 * total)
    spread = Z95 * math.sqrt(share * (1 - share) / total + Z95**2 / (4 * total**2))
    scale = 1 + Z95**2 / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        sys.exit(f"evaluate.filters: {error}")

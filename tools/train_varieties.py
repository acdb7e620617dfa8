"""Train the models of corpus/filters/quality/variety.py, and count what they confuse on sources left out.

    python -m tools.train_varieties --texts FOLDER --out corpus/filters/quality

FOLDER/VARIETY/SOURCE.jsonl holds documents of known variety, {"text": ...} a line (docs/varieties.md). A source has one
name in all varieties: translations are left out together. SOURCE.KIND.jsonl is more of it; of a kind that ends in
"converted" it is trained on and never judged. Every source is judged by models that never saw it: their probabilities
set the temperature, their labels are the table on stdout. The models written are of all sources.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpus.engine.cli import run_command
from corpus.filters.blocklist import BUILT_IN, load_blocklist
from corpus.filters.quality.bigrams import load_bigrams
from corpus.filters.quality.model import Model, softmax
from corpus.filters.quality.variety import LABELS, SPELLED, WRITTEN, Varieties
from corpus.filters.resources import Resources
from corpus.filters.statistic import Batch, buffers
from corpus.quality.assessment import log_loss
from corpus.quality.training import TEMPERATURES, Labelled, Options, fit

LENGTHS = (1000, 200, 50)  # characters
MAX_PIECES = 150  # of a file and a length
CONVERTED = "converted"
HAN = Options(orders=(1, 2), bits=15, inverse_penalty=2.0, characters="han")
LETTERS = Options(orders=(1, 2), bits=12, inverse_penalty=10.0, characters="letters")


class Piece(NamedTuple):
    """A piece of a document of a source, `length` characters or fewer."""

    text: str
    variety: str
    source: str
    kind: str
    length: int


def cut(folder: Path) -> Iterator[Piece]:
    """The pieces of all documents below FOLDER/VARIETY, spread evenly where there are too many."""
    for path in sorted(folder.glob("*/*.jsonl")):
        texts = [json.loads(line)["text"] for line in path.read_bytes().splitlines()]
        source, _, kind = path.stem.partition(".")
        for length in LENGTHS:
            found = [
                Piece(text[start : start + length], path.parent.name, source, kind, length)
                for text in texts
                for start in range(0, max(len(text) - length // 2, 1), length)
            ]
            yield from found[:: -(-len(found) // MAX_PIECES) or 1]


def train_all(pieces: Sequence[Piece], options: Options, classes: tuple[str, ...]) -> tuple[Model, dict[str, Model]]:
    """The model of all sources, and for each that of the others; the temperature is that which makes these honest."""

    def train(left_out: str) -> Model:
        chosen = [piece for piece in pieces if piece.variety in classes and piece.source != left_out]
        labelled = Labelled([piece.text for piece in chosen], [classes.index(piece.variety) for piece in chosen])
        return fit(labelled, labelled, classes, options)

    models, logits, labels = {}, [], []
    for source in sorted({piece.source for piece in pieces}):
        models[source] = train(source)
        here = [piece for piece in judged(pieces, source) if piece.variety in classes]
        logits.append(models[source].logits(*buffers(pa.array([piece.text for piece in here], pa.large_string()))))
        labels += [classes.index(piece.variety) for piece in here]
    temperature = min(TEMPERATURES, key=lambda one: log_loss(softmax(np.concatenate(logits) / one), np.array(labels)))

    def tempered(model: Model) -> Model:
        return Model(model.header.model_copy(update={"temperature": float(temperature)}), model.weights)

    return tempered(train("")), {source: tempered(model) for source, model in models.items()}


def judged(pieces: Sequence[Piece], source: str) -> list[Piece]:
    """What counts of a source."""
    return [piece for piece in pieces if piece.source == source and CONVERTED not in piece.kind]


def run(arguments: argparse.Namespace) -> None:
    """Train, judge, write, print a row a length, variety and source: pieces, and the share of each label."""
    pieces = list(cut(arguments.texts))
    han, other_han = train_all(pieces, HAN, WRITTEN)
    letters, other_letters = train_all(pieces, LETTERS, SPELLED)
    han.save(arguments.out / "han.model")
    letters.save(arguments.out / "letters.model")
    counts: dict[tuple[int, str, str], Counter[str]] = {}
    for source in other_han:
        here = judged(pieces, source)
        varieties = Varieties(other_han[source], other_letters[source])
        resources = Resources(load_blocklist(BUILT_IN), load_bigrams(), varieties)
        places = varieties.measure(Batch(pa.array([piece.text for piece in here], pa.large_string()), resources))
        for piece, place in zip(here, places, strict=True):
            for row in ("", f"{source} {piece.kind}".strip()):
                counts.setdefault((piece.length, piece.variety, row), Counter())[LABELS[int(place)]] += 1
    print("\t".join(("characters", "variety", "source", "pieces", *LABELS)))
    for (length, variety, row), found in sorted(counts.items(), key=lambda item: (-item[0][0], *item[0][1:])):
        shares = (f"{found[label] / found.total():.3f}" if found[label] else "" for label in LABELS)
        print("\t".join((str(length), variety, row or "all", str(found.total()), *shares)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.set_defaults(command=run)
    return run_command("train_varieties", parser, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m corpus quality`: label documents by a server, train the linear quality model, and try one."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from corpus.engine.errors import UsageError
from corpus.engine.inputs import list_inputs
from corpus.engine.storage import File
from corpus.filters.quality import model as quality
from corpus.quality import labelling, training
from corpus.quality.assessment import Assessment, assess, render

NAMED = {"good": "high", "bad": "low", "advertisement": quality.ADVERTISEMENT}
WEAK = "labels are heuristics over the build's statistics, not anybody's judgement (corpus/quality/weak_labels.py)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m corpus quality`."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    train = verbs.add_parser("train", help="fit a model; its quality on a held-out tenth is printed")
    evaluate = verbs.add_parser("evaluate", help="try a model on labelled documents")
    label = verbs.add_parser("label", help="have a server judge documents by a rubric")
    labelling.add_arguments(label)
    for verb in (train, evaluate):
        for option, name in NAMED.items():
            verb.add_argument(f"--{option}", nargs="+", metavar="GLOB", help=f"documents of the class {name!r}")
        verb.add_argument(
            "--class", action="append", default=[], dest="more", metavar="NAME=GLOB",
            help="documents of a class of any name (again for more)",
        )  # fmt: skip
        verb.add_argument("--column", default="text", metavar="NAME", help="the field or column with the text")
        verb.add_argument("--json", action="store_true", help="print JSON")
    defaults = training.Options()
    train.add_argument("--from-build", metavar="OUT", help=f"instead of files: {WEAK}")
    train.add_argument(
        "--labels", type=Path, metavar="FILE", help="instead: what `label` wrote, of the documents --input"
    )
    train.add_argument("--input", nargs="+", default=[], metavar="GLOB", help="the documents of --labels")
    train.add_argument("--by-kind", action="store_true", help="with --labels: each kind is a class, as in `kinds`")
    train.add_argument("--out", type=Path, required=True, metavar="FILE", help="the model file to write")
    train.add_argument("--orders", type=int, nargs="+", default=defaults.orders, metavar="N", help="n-gram lengths")
    train.add_argument(
        "--bits", type=int, default=defaults.bits, metavar="N", help="2^N buckets (default: %(default)s)"
    )
    train.add_argument(
        "--inverse-penalty", type=float, default=defaults.inverse_penalty, metavar="C",
        help="of the weights' squares (default: %(default)s)",
    )  # fmt: skip
    train.add_argument("--seed", type=int, default=defaults.seed, metavar="N", help="of hashing and dealing")
    train.add_argument(
        "--max-documents", type=int, default=defaults.max_documents, metavar="N",
        help="of one class, a fixed sample of more (default: %(default)s)",
    )  # fmt: skip
    evaluate.add_argument("--model", required=True, metavar="FILE", help='the model file, or "kinds", which ships')


def main(arguments: argparse.Namespace) -> None:
    """Run `python -m corpus quality`."""
    if arguments.verb == "label":
        labelling.label(arguments, _texts("documents", list_inputs(arguments.input), arguments.column))
        return
    result = _train(arguments) if arguments.verb == "train" else _evaluate(arguments)
    print(json.dumps(result.as_json(), ensure_ascii=False, indent=1) if arguments.json else render(result))


def _train(arguments: argparse.Namespace) -> Assessment:
    options = training.Options(
        orders=tuple(sorted(set(arguments.orders))),
        bits=arguments.bits,
        inverse_penalty=arguments.inverse_penalty,
        seed=arguments.seed,
        max_documents=arguments.max_documents,
    )
    _check(options)
    if arguments.labels or arguments.input or arguments.by_kind:
        classes: Mapping[str, Iterable[str]] = _of_labels(arguments)
    else:
        classes = _of_build(arguments) if arguments.from_build else _of_files(arguments)
    labelled = training.gather(classes, options)
    names = tuple(classes)
    model, result = training.train(labelled, names, options)
    model.save(arguments.out)
    counts = ", ".join(f"{name} {labelled.labels.count(index):,}" for index, name in enumerate(names))
    print(f"{arguments.out}: documents: {counts}; below, the tenth that was held out", file=sys.stderr)
    print(f'in a recipe: [filter.quality] model = "{arguments.out}" and score = {{ min = 0.5 }}', file=sys.stderr)
    return result


def _evaluate(arguments: argparse.Namespace) -> Assessment:
    model = quality.load_model(arguments.model)
    classes = _of_files(arguments)
    unknown = [name for name in classes if name not in model.classes]
    if unknown:
        raise UsageError(f"the model has no class {unknown[0]!r}; it has {', '.join(model.classes)}.")
    labelled = training.gather(classes, replace(training.Options(), max_documents=sys.maxsize), min_documents=1)
    numbers = np.array([model.classes.index(name) for name in classes], np.int64)
    probabilities = training.probabilities(model, labelled.texts)
    return assess(probabilities, numbers[np.array(labelled.labels)], model.classes)


def _check(options: training.Options) -> None:
    if not options.orders or not set(options.orders) <= set(quality.ORDERS):
        raise UsageError("--orders: some of 1, 2 and 3.")
    if not quality.MIN_BITS <= options.bits <= quality.MAX_BITS:
        raise UsageError(f"--bits: {quality.MIN_BITS} to {quality.MAX_BITS}.")
    if not 0 < options.inverse_penalty < math.inf or options.max_documents < training.MIN_CLASS_DOCUMENTS:
        raise UsageError("--inverse-penalty is above 0 and finite, --max-documents at least 20.")
    if not 0 <= options.seed < 1 << 32:
        raise UsageError("--seed: 0 to 4294967295.")


def _of_files(arguments: argparse.Namespace) -> dict[str, Iterable[str]]:
    patterns: dict[str, list[str]] = {}
    for option, name in NAMED.items():
        if given := getattr(arguments, option):
            patterns[name] = list(given)
    for entry in arguments.more:
        name, equals, pattern = entry.partition("=")
        if not (name and equals and pattern):
            raise UsageError(f"--class {entry}: give NAME=GLOB.")
        patterns.setdefault(name, []).append(pattern)
    if len(patterns) < 2 or len(patterns) > quality.MAX_CLASSES:
        raise UsageError(f"give the documents of 2 to {quality.MAX_CLASSES} classes: --good and --bad, or --class.")
    files = {name: list_inputs(given) for name, given in patterns.items()}
    return {name: _texts(f"class {name}", found, arguments.column) for name, found in files.items()}


def _texts(what: str, files: list[File], column: str) -> Iterator[str]:
    """The texts of some files; a record that cannot be read is counted and left out."""
    from corpus.sources import read
    from corpus.sources.config import SourcesConfig
    from corpus.sources.record import Record

    bad = 0
    for file in files:
        for record in read(file.url, SourcesConfig(text=(column,))):
            if isinstance(record, Record) and record.text is not None:
                yield record.text
            else:
                bad += 1
    if bad:
        print(f"{what}: {bad:,} records without a readable text left out", file=sys.stderr)


def _of_labels(arguments: argparse.Namespace) -> dict[str, list[str]]:
    if arguments.from_build or arguments.more or any(getattr(arguments, option) for option in NAMED):
        raise UsageError("--labels takes its documents from --input; leave the other classes out.")
    if not (arguments.labels and arguments.input):
        raise UsageError("--labels FILE and --input GLOB go together.")
    texts = _texts("documents", list_inputs(arguments.input), arguments.column)
    classes = labelling.classes_of_labels(arguments.labels, texts, by_kind=arguments.by_kind)
    if not arguments.by_kind:
        return _fold(classes)
    few = {name: len(found) for name, found in classes.items() if len(found) < training.MIN_CLASS_DOCUMENTS}
    if few:
        print("too few documents, left out: " + ", ".join(f"{name} {few[name]}" for name in few), file=sys.stderr)
    classes = {name: found for name, found in classes.items() if name not in few}
    if quality.GOOD not in classes or not 2 <= len(classes) <= quality.MAX_CLASSES:
        raise UsageError(
            f"--by-kind: {', '.join(classes) or 'no kind'} left; there must be 2 to {quality.MAX_CLASSES} kinds with "
            f"{training.MIN_CLASS_DOCUMENTS} documents, and {quality.GOOD} among them."
        )
    return classes


def _of_build(arguments: argparse.Namespace) -> dict[str, list[str]]:
    from corpus.quality.weak_labels import documents_of_build

    if any(getattr(arguments, option) for option in NAMED) or arguments.more:
        raise UsageError("--from-build takes its documents from the build; leave the other classes out.")
    print(f"{arguments.from_build}: {WEAK}", file=sys.stderr)
    classes = {name: list(texts) for name, texts in documents_of_build(arguments.from_build).items()}
    return _fold(classes)


def _fold(classes: dict[str, list[str]]) -> dict[str, list[str]]:
    if len(classes[quality.ADVERTISEMENT]) < training.MIN_CLASS_DOCUMENTS:
        print(f"too few documents for a class {quality.ADVERTISEMENT}", file=sys.stderr)
        classes["low"] += classes.pop(quality.ADVERTISEMENT)
    return classes

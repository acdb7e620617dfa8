"""`python -m tokenizer compare`: candidates on the same texts, and which is better at what."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from corpus.engine import storage
from corpus.engine.errors import UsageError
from tokenizer.report.compare import compare, summarize
from tokenizer.report.page import comparison_page
from tokenizer.report.reading import add_text_arguments, open_tokenizer, read_texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument(
        "tokenizers", nargs="+", metavar="TOKENIZER", help="output folders, stage folders or model files; also URLs"
    )
    add_text_arguments(parser, "texts that are like what the model will read", required=True)
    parser.add_argument("--html", metavar="FILE", help="also write a page that opens from disk")
    parser.add_argument("--json", action="store_true", help="all figures as JSON on standard output")


def main(options: argparse.Namespace) -> None:
    """Print a column for each candidate."""
    if len(set(options.tokenizers)) < max(len(options.tokenizers), 2):
        raise UsageError("compare takes two or more tokenizers, each named once.")
    names = short_names(options.tokenizers)
    candidates = {name: open_tokenizer(path) for name, path in zip(names, options.tokenizers, strict=True)}
    result = compare(candidates, read_texts(options.text, options.characters))
    if options.html:
        with storage.create(options.html) as path:
            path.write_text(comparison_page(result), encoding="utf-8")
    print(json.dumps(result, ensure_ascii=False) if options.json else summarize(result))


def short_names(paths: list[str]) -> list[str]:
    """What tells paths apart: without the first and the last parts that all of them share.

    >>> short_names(["build/a/t.model", "build/b/t.model"]), short_names(["x/bpe.model", "x/unigram.model"])
    (['a', 'b'], ['bpe', 'unigram'])
    """
    parts = [Path(path).with_suffix("").parts if path.endswith(".model") else Path(path).parts for path in paths]
    for end in (0, -1):
        while all(len(part) > 1 for part in parts) and len({part[end] for part in parts}) == 1:
            parts = [part[1:] if end == 0 else part[:-1] for part in parts]
    names = [str(Path(*part)) for part in parts]
    return names if len(set(names)) == len(names) else paths

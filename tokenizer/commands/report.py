"""`python -m tokenizer report`: what a tokenizer is like, on the terminal, as JSON, or as a page."""

from __future__ import annotations

import argparse
import json
from typing import Any

from corpus.engine import storage
from corpus.engine.run import RUN_NAME, current
from tokenizer.report import vocabulary_report
from tokenizer.report.page import report_page
from tokenizer.report.reading import add_text_arguments, open_tokenizer, read_report, read_texts
from tokenizer.report.summary import summarize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("tokenizer", help="output folder, folder of the tokenizer stage, or model file; also URLs")
    add_text_arguments(parser, "default: the report of the build, on a part of what it was trained on")
    parser.add_argument("--html", metavar="FILE", help="also write a page that opens from disk")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON on standard output")


def main(options: argparse.Namespace) -> None:
    """Print the report; without texts, a model by itself is described as far as that goes."""
    report = make_report(options)
    if options.html:
        with storage.create(options.html) as path:
            path.write_text(report_page(report, options.tokenizer), encoding="utf-8")
    print(json.dumps(report, ensure_ascii=False) if options.json else summarize(report))


def make_report(options: argparse.Namespace) -> dict[str, Any]:
    """The report on the texts that are named, or the one that training wrote."""
    if options.text:
        return vocabulary_report(open_tokenizer(options.tokenizer), read_texts(options.text, options.characters))
    if not storage.exists(storage.join(options.tokenizer, RUN_NAME)):
        return vocabulary_report(open_tokenizer(options.tokenizer), {})
    return read_report(current(options.tokenizer, "tokenizer"))

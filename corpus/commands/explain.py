"""`python -m corpus explain`: the fate of one document."""

from __future__ import annotations

import argparse

from corpus.engine.cli import add_out_arguments, print_json
from corpus.engine.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_out_arguments(parser)
    names = "a URL, a document id (hex, or its beginning), SHARD:ROW, text/SHARD:ROW, or a bad record's FILE:offset N"
    parser.add_argument("key", metavar="KEY", help=names + "; with --lines also a file of HTML")
    parser.add_argument(
        "--lines", action="store_true", help="print each line of the page: kept, or by which rule it went"
    )
    parser.add_argument(
        "--input", nargs="+", default=[], metavar="GLOB", help="for --lines: the files that the build read"
    )


def main(arguments: argparse.Namespace) -> None:
    """Print the events of a document, or the lines of a page."""
    from corpus.report.explain import explain, explain_json

    if arguments.lines and arguments.json:
        raise UsageError("--lines prints text; leave out --json.")
    if arguments.lines:
        from corpus.report.page_lines import explain_lines

        for line in explain_lines(arguments.out, arguments.key, arguments.input):
            print(line)
    elif arguments.json:
        print_json(explain_json(arguments.out, arguments.key))
    else:
        print(explain(arguments.out, arguments.key))

"""`python -m corpus diff`: which documents another build keeps or drops."""

from __future__ import annotations

import argparse

from corpus.commands.ledger import add_answer_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("build_a", metavar="BUILD_A", help="the output folder of a run")
    parser.add_argument("build_b", metavar="BUILD_B", help="that of another, or of an earlier state of it")
    add_answer_arguments(parser, "documents of each change (default: all, in a table 3)")


def main(arguments: argparse.Namespace) -> None:
    """Print or write the changes."""
    from corpus.report.queries.diff import diff
    from corpus.report.queries.output import Target

    diff(arguments.build_a, arguments.build_b, Target(arguments.format, arguments.output, arguments.limit))

"""`python -m corpus retune`: other thresholds, tried on what the filter has measured."""

from __future__ import annotations

import argparse

from corpus.engine.cli import add_out_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_out_arguments(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="filter.FAMILY.STATISTIC[.PLACE].min|max|when=VALUE",
    )
    parser.add_argument("--unset", action="append", default=[], metavar="KEY", help="take a rule or one bound out")
    parser.add_argument("--write", metavar="FILE.toml", help="write the recipe that has these thresholds")


def main(arguments: argparse.Namespace) -> None:
    """Print the prediction, and write the new recipe where one is asked for."""
    from corpus.retune.command import print_prediction

    print_prediction(arguments.out, arguments.set, arguments.unset, arguments.write, as_json=arguments.json)

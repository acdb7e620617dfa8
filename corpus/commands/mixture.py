"""`python -m corpus mixture`: what the mixture takes of each source and bucket."""

from __future__ import annotations

import argparse

from corpus.engine.cli import add_out_arguments, print_json

add_arguments = add_out_arguments


def main(arguments: argparse.Namespace) -> None:
    """Print the groups of the mixture."""
    from corpus.report.mixture import as_json, mixture, render

    groups = mixture(arguments.out)
    if arguments.json:
        print_json(as_json(groups))
    else:
        print(render(groups))

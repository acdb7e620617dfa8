"""`python -m corpus prune`: stage folders that no recipe needs."""

from __future__ import annotations

import argparse
import sys

from corpus.engine.cli import add_out_arguments, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_out_arguments(parser)
    parser.add_argument("--recipe", nargs="+", required=True, help="the recipes whose folders stay too, for any inputs")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="override the recipes' values")
    parser.add_argument("--allow-code", action="store_true", help="run the entry points that [[filter.rules]] name")
    parser.add_argument("--yes", action="store_true", help="remove them")


def main(arguments: argparse.Namespace) -> None:
    """Print the folders that no recipe needs; with --yes remove them."""
    from dataclasses import asdict

    from corpus.build import stages
    from corpus.prune import prune, unneeded_folders
    from corpus.recipe import load_recipe

    pipelines = [
        stages(load_recipe(recipe, arguments.set, allow_code=arguments.allow_code), ()) for recipe in arguments.recipe
    ]
    gone = (prune if arguments.yes else unneeded_folders)(arguments.out, pipelines)
    if arguments.json:
        print_json([asdict(one) for one in gone])
        return
    for one in gone:
        print(f"{one.folder:<32}{one.files:>8,} files{one.file_bytes:>18,} bytes")
    freed = f"{len(gone)} folders, {sum(one.freed_bytes for one in gone):,} bytes"
    hint = " freed" if arguments.yes else ("; remove them with --yes" if gone else " to remove")
    print(freed + hint, file=sys.stderr)

"""`python -m corpus plan`: what `run` would do and cost."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from corpus.commands.inputs import add_build_arguments, build_sources, crawled_so_far
from corpus.engine.cli import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_build_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="processes to reckon with (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> None:
    """Print the plan."""
    from corpus.build import stages
    from corpus.dedup.near.earlier import check_earlier
    from corpus.plan import plan, render
    from corpus.recipe import load_recipe

    recipe = load_recipe(arguments.recipe, arguments.set)
    check_earlier(recipe.dedup, arguments.out)
    sources = build_sources(arguments, recipe.sources, None if recipe.crawl is None else crawled_so_far(arguments.out))
    inputs = [file for source in sources for file in source.files]
    planned = plan(stages(recipe, sources), inputs, arguments.out)
    if arguments.json:
        print_json(asdict(planned))
    else:
        print(render(planned, arguments.workers or os.cpu_count() or 1))

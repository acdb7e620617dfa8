"""`python -m tokenizer check`: a recipe's [tokenizer] section with its defaults filled in, or what is wrong with it."""

from __future__ import annotations

import argparse
import json

from tokenizer.commands import recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    recipe.add_arguments(parser)


def main(options: argparse.Namespace) -> None:
    """Print the section as JSON."""
    print(json.dumps(recipe.read_recipe(options).model_dump(), indent=1))

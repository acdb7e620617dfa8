"""`python -m tokenizer check`: a recipe's [tokenizer] section with its defaults filled in, or what is wrong with it;
and `--recipe` and `--set` for the other verbs."""

from __future__ import annotations

import argparse
import json

from corpus.engine import config as engine_config
from corpus.engine.errors import UsageError
from tokenizer.config import TokenizerConfig


class _Recipe(engine_config.Strict):
    """So that errors carry the path as it stands in the file."""

    tokenizer: TokenizerConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which recipe, and what to change in it."""
    parser.add_argument("--recipe", metavar="R", help="a TOML file, or the name of a built-in recipe")
    parser.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="override, e.g. tokenizer.vocab_size=16000"
    )


def read_recipe(options: argparse.Namespace) -> TokenizerConfig:
    """The [tokenizer] section of a recipe, by path or by the name of a built-in one; defaults without a recipe."""
    overrides: list[str] = options.set
    for override in overrides:
        if not override.startswith("tokenizer."):
            raise UsageError(f"--set {override}: not in the section this command reads. Write tokenizer.KEY=VALUE.")
    if options.recipe is None:
        values, where = engine_config.apply_overrides({}, overrides), "--set"
    else:
        path = engine_config.find_recipe(options.recipe)
        values, where = engine_config.load_toml(path, overrides), str(path)
    section = {"tokenizer": values.get("tokenizer", {})}
    return engine_config.parse(_Recipe, section, where, overrides).tokenizer


def main(options: argparse.Namespace) -> None:
    """Print the section as JSON."""
    print(json.dumps(read_recipe(options).model_dump(), indent=1))

"""A recipe: one TOML file that says what a corpus is made of, strictly checked, every room with its own section.

A recipe is looked for as a path first and by name among the built-in ones second (`corpus/recipes/*.toml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.dedup import DedupConfig
from corpus.engine.config import Strict, load_toml, parse
from corpus.engine.errors import UsageError
from corpus.extract import ExtractConfig
from corpus.filters import FilterConfig
from corpus.sources import SourcesConfig

RECIPES = Path(__file__).parent / "recipes"


class Recipe(Strict):
    """The sections of a recipe; `tokenizer` is checked by the tokenizer package, which reads the same file."""

    description: str = ""
    sources: SourcesConfig = SourcesConfig()
    extract: ExtractConfig = ExtractConfig()
    filter: FilterConfig
    dedup: DedupConfig = DedupConfig()
    tokenizer: dict[str, Any] = {}


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of a built-in one; raises `UsageError` that lists those."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    built_in = RECIPES / f"{name}.toml"
    if built_in.is_file():
        return built_in
    known = ", ".join(sorted(file.stem for file in RECIPES.glob("*.toml")))
    raise UsageError(f"recipe {name!r}: neither a file nor a built-in recipe ({known}).")


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load and check a recipe; `overrides` are `section.key=value` strings."""
    path = find_recipe(name)
    return parse(Recipe, load_toml(path, overrides), str(path))

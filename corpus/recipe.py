"""A recipe: one TOML file that says what a corpus is made of, strictly checked, every room with its own section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corpus.dedup import DedupConfig
from corpus.engine.config import Strict, find_recipe, load_toml, parse
from corpus.extract import ExtractConfig
from corpus.filters import FilterConfig
from corpus.sources import SourcesConfig


class Recipe(Strict):
    """The sections of a recipe; `tokenizer` is checked by the tokenizer package, which reads the same file."""

    description: str = ""
    sources: SourcesConfig = SourcesConfig()
    extract: ExtractConfig = ExtractConfig()
    filter: FilterConfig
    dedup: DedupConfig = DedupConfig()
    tokenizer: dict[str, Any] = {}


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load and check a recipe; `overrides` are `section.key=value` strings."""
    path = find_recipe(name)
    return parse(Recipe, load_toml(path, overrides), str(path))

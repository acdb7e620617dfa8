"""A recipe: one TOML file that says what a corpus is made of, strictly checked, every room with its own section."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corpus.dedup import DedupConfig
from corpus.engine import storage
from corpus.engine.config import Resources, Strict, find_recipe, load_toml, parse
from corpus.engine.errors import WenhaiError
from corpus.extract import ExtractConfig
from corpus.filters import FilterConfig
from corpus.sources import SourcesConfig
from corpus.toml import plain

RECORD_NAME = "recipe.json"
RECORD_FORMAT = 1
RECORD_KEYS = ("name", "text", "base", "values")


class CardConfig(Strict):
    """[card]: what only a person can say of the dataset; DATASET_CARD.md shows it, and nothing else depends on it."""

    name: str = ""
    license: str = ""
    homepage: str = ""
    contact: str = ""  # whom to ask for the removal of a text


class Recipe(Strict):
    """The sections of a recipe; `tokenizer` is checked by the tokenizer package, which reads the same file."""

    description: str = ""
    sources: SourcesConfig = SourcesConfig()
    extract: ExtractConfig = ExtractConfig()
    filter: FilterConfig
    dedup: DedupConfig = DedupConfig()
    tokenizer: dict[str, Any] = {}
    resources: dict[str, Resources] = {}  # by stage; a cluster places tasks by it, and no byte depends on it
    card: CardConfig = CardConfig()


@dataclass(frozen=True)
class RecordedRecipe:
    """What a build was made from: the recipe's name, text and values, the `--set` of its run, and the values with it."""

    name: str
    text: str
    base: dict[str, Any]
    overrides: tuple[str, ...]
    values: dict[str, Any]


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """Load and check a recipe; `overrides` are `section.key=value` strings."""
    path = find_recipe(name)
    return parse(Recipe, load_toml(path, overrides), str(path))


def record_recipe(out: str, name: str, overrides: Sequence[str] = ()) -> None:
    """Keep the recipe of a finished run as `OUT/recipe.json`, for `retune` and the dataset card."""
    path = find_recipe(name)
    values = {
        "format": RECORD_FORMAT,
        "name": name,
        "text": path.read_text(encoding="utf-8"),
        "base": plain(load_toml(path)),
        "overrides": list(overrides),
        "values": plain(load_toml(path, overrides)),
    }
    storage.write_json(storage.join(out, RECORD_NAME), values)


def recorded_recipe(out: str) -> RecordedRecipe | None:
    """The recipe of the last finished run into `out`; None where it was made without one (from Python)."""
    url = storage.join(out, RECORD_NAME)
    record = storage.read_json(url) if storage.exists(url) else None
    if not isinstance(record, dict) or record.get("format") != RECORD_FORMAT:
        return None
    overrides = record.get("overrides")
    try:
        if not isinstance(overrides, list) or not all(
            isinstance(one, str) for one in (*overrides, *map(record.get, RECORD_KEYS))
        ):
            raise ValueError("a key is missing, or no string")
        base, values = (tomllib.loads(record[key]) for key in ("base", "values"))  # TOML: the order of rules counts
    except (ValueError, RecursionError) as error:
        raise WenhaiError(
            f"{url}: damaged ({type(error).__name__}). Remove it and finish `python -m corpus run` with the recipe "
            "again; what is done is not repeated."
        ) from error
    return RecordedRecipe(record["name"], record["text"], base, tuple(overrides), values)

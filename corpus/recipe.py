"""A recipe: one TOML file that says what a corpus is made of, strictly checked, every room with its own section."""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from corpus.crawl.config import CrawlConfig
from corpus.dedup import DedupConfig
from corpus.dedup.contamination.stage import RULE as CONTAMINATION
from corpus.engine import storage
from corpus.engine.config import (
    SECTION_DEPTH,
    BesideRecipe,
    Resources,
    Strict,
    find_recipe,
    load_toml,
    merge,
    parse,
    place_paths,
)
from corpus.engine.errors import WenhaiError
from corpus.engine.toml import dump
from corpus.extract import ExtractConfig
from corpus.filters import STATISTICS, FilterConfig
from corpus.filters.resources import PERPLEXITY
from corpus.mixture import MixtureConfig
from corpus.sources.config import InputConfig, SourcesConfig
from corpus.sources.packing import Source
from corpus.sources.template import TextConfig

RECORD_NAME = "recipe.json"
RECORD_FORMAT = 1
RECORD_KEYS = ("name", "text", "base", "values")


class CardConfig(Strict):
    """[card]: what only a person can say of the dataset; DATASET_CARD.md shows it, and nothing else depends on it."""

    name: str = ""
    license: str = ""
    homepage: str = ""
    contact: str = ""  # whom to ask for the removal of a text


class RecipeSource(SourcesConfig):
    """A source with a filter of its own: a recipe whose [filter] counts here, or sections that are laid over ours."""

    filter: Annotated[FilterConfig | None, BesideRecipe(is_recipe=True)] = None


class Recipe(Strict):
    """The sections of a recipe; `tokenizer` is checked by the tokenizer package, which reads the same file."""

    description: str = ""
    crawl: CrawlConfig | None = None  # absent: documents come from files alone
    input: InputConfig = InputConfig()
    sources: tuple[RecipeSource, ...] = Field(default=(RecipeSource(),), strict=False)
    extract: ExtractConfig = ExtractConfig()
    text: TextConfig = TextConfig()
    filter: FilterConfig
    dedup: DedupConfig = DedupConfig()
    mixture: MixtureConfig | None = None  # absent: the tokenizer takes every document once
    tokenizer: dict[str, Any] = {}
    resources: dict[str, Resources] = {}  # by stage; a cluster places tasks by it, and no byte depends on it
    card: CardConfig = CardConfig()

    @model_validator(mode="before")
    @classmethod
    def _reads_one_source(cls, values: Any) -> Any:
        """One table [sources] is a list of one; its limits of tasks and shards stand in [input] now."""
        if not isinstance(values, Mapping) or not isinstance(values.get("sources"), Mapping):
            return values
        sources, limits = dict(values["sources"]), values.get("input", {})
        moved = {name: sources.pop(name) for name in InputConfig.model_fields if name in sources}
        return {**values, "sources": [sources], **({"input": {**moved, **limits}} if moved else {})}

    @model_validator(mode="after")
    def _weighs_sources(self) -> Self:
        if not self.sources:
            raise ValueError("sources: an empty list; leave it out to read --input")
        said = dict.fromkeys((glob.escape(source.name.default), source.weight) for source in self.sources)
        weights = {name: weight for name, weight in said if weight != 1}
        if not weights:
            return self
        if twice := sorted(name for name, weight in said if weights.get(name, weight) != weight):
            raise ValueError(f"sources: {twice[0]} is the name of several sources, and they have different weights")
        if self.mixture is not None and (self.mixture.shares or self.mixture.sources.keys() & weights.keys()):
            raise ValueError("sources: a weight, and [mixture] says another thing of the same source: give one of them")
        sources = {**(self.mixture.sources if self.mixture else {}), **weights}
        base = {} if self.mixture is None else self.mixture.model_dump(exclude={"sources"})
        object.__setattr__(self, "mixture", MixtureConfig(**base, sources=sources))
        return self

    @model_validator(mode="after")
    def _keeps_what_it_writes(self) -> Self:
        for name in self.text.meta_names:
            if not any({name, "*"} & set(source.meta) for source in self.sources):
                raise ValueError(f'text.template: {{meta.{name}}} is kept by no source; give one meta = ["{name}"]')
        return self

    @model_validator(mode="after")
    def _measured(self) -> Self:
        statistics = self.mixture.statistics if self.mixture else ()
        if CONTAMINATION in statistics and self.dedup.contamination is None:
            raise ValueError(
                f"mixture.buckets: {CONTAMINATION} is measured by [dedup.contamination], which is not here"
            )
        for clause in (clause for table in (self.mixture.buckets if self.mixture else ()) for clause in table.when):
            quality = self.filter.quality
            named = quality.language_model if clause.key == PERPLEXITY else quality.model
            if clause.key.startswith("words."):
                named = self.filter.words.segmenter
            if STATISTICS[clause.key].optional and named is None:
                where = (
                    "segmenter in [filter.words]" if clause.key.startswith("words.") else "model in [filter.quality]"
                )
                raise ValueError(f"mixture.buckets.when: {clause.key} needs a {where}")
        return self

    def own_filters(self, sources: Sequence[Source]) -> dict[str, FilterConfig]:
        """The filters of sources that have one of their own, by the sources' keys."""
        own = {source.key: source.config.filter for source in sources if isinstance(source.config, RecipeSource)}
        return {key: config for key, config in own.items() if config is not None}


@dataclass(frozen=True)
class RecordedRecipe:
    """What a build was made from: the recipe's name, text and values, the `--set` of its run, and the values with
    it."""

    name: str
    text: str
    base: dict[str, Any]
    overrides: tuple[str, ...]
    values: dict[str, Any]
    earlier: Mapping[str, str]  # where the run found the earlier builds of [dedup], by their names


def load_recipe(name: str, overrides: Sequence[str] = (), *, allow_code: bool = False) -> Recipe:
    """Load and check a recipe; `overrides` are `section.key=value` strings. `allow_code`: entry points may run."""
    path = find_recipe(name)
    recipe = parse(Recipe, _with_filters(load_toml(path, overrides, Recipe)), str(path), overrides)
    for config in (recipe.filter, *(source.filter for source in recipe.sources)) if allow_code else ():
        if config is not None:
            config.allow_code()
    return recipe


def _with_filters(values: dict[str, Any]) -> dict[str, Any]:
    """Each source's `filter` as the whole section it means: that of another recipe, or its keys over those of ours."""
    sources = values.get("sources")
    for source in sources if isinstance(sources, list) else [sources]:
        if not isinstance(source, dict):
            continue
        own = source.get("filter")
        if isinstance(own, str):
            source["filter"] = load_toml(find_recipe(own), model=Recipe).get("filter", {})
        elif isinstance(own, dict):
            source["filter"] = merge(values.get("filter", {}), own, SECTION_DEPTH - 1)
    return values


def record_recipe(out: str, name: str, overrides: Sequence[str] = (), earlier: Mapping[str, str] | None = None) -> None:
    """Keep the recipe of a finished run as `OUT/recipe.json`, for `retune`, reports and the dataset card."""
    path = find_recipe(name)
    values = {
        "format": RECORD_FORMAT,
        "name": name,
        "text": path.read_text(encoding="utf-8"),
        "base": dump(load_toml(path, model=Recipe)),
        "overrides": list(overrides),
        "values": dump(load_toml(path, overrides, Recipe)),
    }
    if earlier:
        values["earlier"] = dict(earlier)
    storage.write_json(storage.join(out, RECORD_NAME), values)


def recorded_recipe(out: str) -> RecordedRecipe | None:
    """The recipe of the last finished run into `out`; None where it was made without one (from Python)."""
    url = storage.join(out, RECORD_NAME)
    record = storage.read_json(url) if storage.exists(url) else None
    if not isinstance(record, dict) or record.get("format") != RECORD_FORMAT:
        return None
    overrides, earlier = record.get("overrides"), record.get("earlier", {})
    try:
        if not isinstance(overrides, list) or not all(
            isinstance(one, str) for one in (*overrides, *map(record.get, RECORD_KEYS), *dict(earlier).values())
        ):
            raise ValueError("a key is missing, or no string")
        base, values = (tomllib.loads(record[key]) for key in ("base", "values"))  # TOML: the order of rules counts
        for recorded in (base, values):  # of before: from the current folder
            place_paths(recorded, Recipe)
    except (TypeError, ValueError, RecursionError) as error:
        raise WenhaiError(
            f"{url}: damaged ({type(error).__name__}). Remove it and finish `python -m corpus run` with the recipe "
            "again; what is done is not repeated."
        ) from error
    return RecordedRecipe(record["name"], record["text"], base, tuple(overrides), values, dict(earlier))


def recorded_models(out: str) -> list[str]:
    """Where the recipe of the last finished run has its quality models; raises `WenhaiError` as it is read."""
    recorded = recorded_recipe(out)
    if recorded is None:
        return []
    recipe = parse(Recipe, _with_filters(recorded.values), storage.join(out, RECORD_NAME))
    filters = (recipe.filter, *(source.filter for source in recipe.sources))
    return list(dict.fromkeys(one.quality.model for one in filters if one is not None and one.quality.model))

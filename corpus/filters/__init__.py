"""The reusable door: take only this stage to another Chinese corpus.

    from corpus.filters import load
    verdicts = load("web_zh").apply(["学而时习之，不亦说乎？", ...])   # or an Arrow table with a `text` column
    for verdict in verdicts: print(verdict.kept, verdict.rule, verdict.value, verdict.threshold)

Three nouns: a *statistic* is a named number of a document, a *rule* is a statistic and an allowed range, an *editor*
changes text and says what it changed. Deciding costs next to nothing beside measuring (`python -m tools.bench
filters`), so all statistics are always measured and thresholds can change later without reading text again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpus.engine.config import Strict, find_recipe, load_toml, parse
from corpus.engine.errors import UsageError
from corpus.filters.config import FilterConfig, Range
from corpus.filters.decide import Rule
from corpus.filters.filter import VERDICT_SCHEMA, Filter, Verdict, Verdicts
from corpus.filters.measure import STATISTICS, measure
from corpus.filters.statistic import Statistic


class _Recipe(Strict):
    """So that errors carry the path as it stands in the file."""

    filter: FilterConfig


__all__ = [
    "STATISTICS",
    "VERDICT_SCHEMA",
    "Filter",
    "FilterConfig",
    "Range",
    "Rule",
    "Statistic",
    "Verdict",
    "Verdicts",
    "load",
    "measure",
]


def load(recipe: str | Path, overrides: Sequence[str] = (), *, allow_code: bool = False) -> Filter:
    """The filter of a built-in recipe (by name) or of a recipe file; only its [filter.*] sections are read.

    `overrides` are as on the command line: `filter.length.num_chars.min=20`. `allow_code`: entry points may run.

    Raises:
        UsageError: no such recipe, or errors in its filter sections (all of them, with the nearest valid keys).
    """
    path = recipe if isinstance(recipe, Path) else find_recipe(recipe)
    values = load_toml(path, overrides, _Recipe)
    section = values.get("filter")
    if not isinstance(section, dict):
        raise UsageError(f"{path}: has no [filter.*] section.")
    config = parse(_Recipe, {"filter": section}, str(path), overrides).filter
    if allow_code:
        config.allow_code()
    return Filter(config)

"""From `--set` and `--unset` to the rules before and after, and the refusal of what statistics cannot answer."""

from __future__ import annotations

import copy
import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.engine import storage
from corpus.engine.config import apply_overrides, parse
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.stage import Folder
from corpus.engine.toml import toml_value
from corpus.filters import FilterConfig, Rule
from corpus.filters.measure import STATISTICS
from corpus.filters.stage import FilterStage
from corpus.recipe import RecordedRecipe, recorded_recipe

BOUNDS = ("min", "max")
NO_LIMIT = ("off", "none")
FIELDS = FilterConfig.model_fields


@dataclass(frozen=True)
class Thresholds:
    """The rules of a build and other ones; `values` is the whole recipe that has the other ones."""

    before: tuple[Rule, ...]
    after: tuple[Rule, ...]
    values: Mapping[str, Any]
    recorded: RecordedRecipe | None  # None: the build keeps no recipe that has its rules
    apart: frozenset[str] = frozenset()  # keys of sources with a filter of their own, of which nothing is said

    @property
    def overrides(self) -> list[str]:
        """What `run` and `retune` take as `--set` to get from the rules before to those after."""
        old, new = _ranges(self.before), _ranges(self.after)
        found = []
        for key in [key for key in {**old, **new} if old.get(key) != new.get(key)]:
            was, now = old.get(key, {}), new.get(key, {})
            if was and now and set(was) <= set(now):
                found += [
                    f"filter.{key}.{bound}={toml_value(now[bound])}" for bound in now if was.get(bound) != now[bound]
                ]
            else:
                found.append(f"filter.{key}={toml_value(now) if now else 'off'}")
        return found


def read_thresholds(out: str, folder: Folder, sets: Sequence[str], unsets: Sequence[str]) -> Thresholds:
    """The rules of the filter stage in `folder`, and those after `--set KEY=VALUE` and `--unset KEY` (in this order).

    A key is a range, `filter.length.num_chars`, or one bound of it, `filter.length.num_chars.min`. The value `off`
    takes a rule or a bound out, as `--unset` does.

    Raises:
        UsageError: a key is no range of the filter, or its value no allowed one; says which, and what to do instead.
        UsageError: the build was made by another version of the filter, whose numbers a new run would not repeat.
        WenhaiError: the build's rules cannot be read.
    """
    before, apart = _stored_rules(folder)
    recorded = recorded_recipe(out)
    if recorded is not None and not _has_rules(recorded.values, before):
        recorded = None  # a later run with another recipe stopped before it was recorded
    values = copy.deepcopy(recorded.values) if recorded else _rebuilt(folder, before)
    for argument in sets:
        key, equals, text = argument.partition("=")
        if not equals:
            raise UsageError(f"--set {argument}: expected KEY=VALUE, for example --set filter.length.num_chars.min=80")
        parts = _range_key(f"--set {argument}", key.strip(), argument)
        if text.strip() in NO_LIMIT:
            _unset(values, parts)
        else:
            _enable(values, parts)
            values = apply_overrides(values, [argument])
    for key in unsets:
        _unset(values, _range_key(f"--unset {key}", key.strip(), f"{key.strip()}=..."))
    config = parse(FilterConfig, values.get("filter", {}), "--set: [filter] of the new recipe")
    return Thresholds(before, config.rules, values, recorded, apart)


def _range_key(option: str, key: str, argument: str) -> list[str]:
    """The parts of the name of a range or of one of its bounds."""
    parts = key.split(".")
    name = ".".join(parts[1:3])
    if parts[0] == "filter" and name in STATISTICS and (len(parts) == 3 or parts[3:] in (["min"], ["max"])):
        return parts
    run = f"Run: python -m corpus run --recipe ... --input ... --out ... --set {shlex.quote(argument)}"
    if parts[0] != "filter":
        raise UsageError(f"{option}: {key} is not a range of the filter, so only a new run can tell. {run}")
    section = FIELDS.get(parts[1]) if len(parts) > 1 else None
    options = getattr(section.annotation, "model_fields", {}) if section else {}
    if len(parts) > 2 and parts[2] in options and name not in STATISTICS:
        raise UsageError(
            f"{option}: {key} changes the texts or what is measured of them, so the stored statistics cannot answer; "
            f"only a new run can. {run}"
        )
    keys = [f"filter.{statistic}" for statistic in STATISTICS]
    nearest = difflib.get_close_matches(".".join(parts[:3]), keys, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise UsageError(
        f"{option}: no statistic has this name; {hint}A range is called filter.FAMILY.STATISTIC[.min|.max]."
    )


def _enable(values: dict[str, Any], parts: Sequence[str]) -> None:
    """Where a recipe says "off", a new bound starts from no limit."""
    section = values.get("filter", {}).get(parts[1], {})
    if len(parts) == 4 and not isinstance(section.get(parts[2], {}), dict):
        section[parts[2]] = {}


def _unset(values: dict[str, Any], parts: Sequence[str]) -> None:
    section = values.get("filter", {}).get(parts[1], {})
    old = section.get(parts[2])
    if not isinstance(old, dict) or (len(parts) == 4 and parts[3] not in old):
        raise UsageError(f"--unset {'.'.join(parts)}: the recipe has no such limit, so there is nothing to take out.")
    rest = {bound: limit for bound, limit in old.items() if len(parts) == 4 and bound != parts[3]}
    section[parts[2]] = rest or "off"


def _stored_rules(folder: Folder) -> tuple[tuple[Rule, ...], frozenset[str]]:
    """The rules that a filter stage was run with, and the sources that have their own, from its `stage.json`."""
    url = storage.join(folder.url, "stage.json")
    stage = storage.read_json(url)
    try:
        version = stage["version"]
        rules = tuple(Rule(key=key, min=low, max=high) for key, low, high in stage["config"]["rules"])
        apart = frozenset(stage.get("parameters", {}).get("filters", {}))
    except (LookupError, TypeError, ValueError) as error:
        raise WenhaiError(f"{url}: its rules cannot be read. Was this build made by another version?") from error
    if version != FilterStage.version:
        raise UsageError(
            f"{folder.url}: made by version {version} of the filter, and this is version {FilterStage.version}, which "
            "may "
            "measure other numbers. Run `python -m corpus run` with the recipe again first."
        )
    return rules, apart


def _has_rules(values: Mapping[str, Any], rules: tuple[Rule, ...]) -> bool:
    try:
        return bool(parse(FilterConfig, values.get("filter", {}), "recipe").rules == rules)
    except UsageError:  # a recipe of another version
        return False


def _rebuilt(folder: Folder, rules: tuple[Rule, ...]) -> dict[str, Any]:
    """A recipe's values with some rules, for a build that keeps no recipe."""
    values: dict[str, Any] = {"filter": {}}
    for key, limits in _ranges(rules).items():
        family, _, name = key.partition(".")
        values["filter"].setdefault(family, {})[name] = limits
    if not _has_rules(values, rules):
        raise WenhaiError(
            f"{folder.url}: its rules cannot be told from {storage.join(folder.url, 'stage.json')} alone. "
            "Run `python -m corpus run` with its recipe again; what is done is not repeated."
        )
    return values


def _ranges(rules: Sequence[Rule]) -> dict[str, dict[str, float]]:
    """{statistic: {bound: limit}} in the order of the rules."""
    found: dict[str, dict[str, float]] = {}
    for rule in rules:
        for bound in BOUNDS:
            limit = getattr(rule, bound)
            if limit is not None:
                found.setdefault(rule.key, {})[bound] = int(limit) if float(limit).is_integer() else limit
    return found

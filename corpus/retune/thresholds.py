"""From `--set` and `--unset` to the rules before and after, and the refusal of what statistics cannot answer."""

from __future__ import annotations

import copy
import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.engine import storage
from corpus.engine.config import apply_overrides, default_of, parse, place_in
from corpus.engine.errors import UsageError, WenhaiError
from corpus.engine.stage import Folder
from corpus.engine.toml import toml_value
from corpus.filters import FilterConfig, Rule
from corpus.filters.decide import read_rules
from corpus.filters.measure import STATISTICS
from corpus.filters.rules.conditions import OWN, as_json
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
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        own = {f"{OWN}.{rule['name']}": rule for rule in self.values.get("filter", {}).get(OWN, ())}
        return [
            found
            for key in changed
            for found in _overrides(f"filter.{key}", old.get(key), new.get(key), own.get(key, new.get(key)))
        ]


def read_thresholds(out: str, folder: Folder, sets: Sequence[str], unsets: Sequence[str]) -> Thresholds:
    """The rules of the filter stage in `folder`, and those after `--set KEY=VALUE` and `--unset KEY` (in this order).

    A key is a range, `filter.length.num_chars`, one of a list of ranges, `filter.length.num_chars.0`, or one bound or
    the condition of it, `filter.length.num_chars.min`. The value `off` takes it out, as `--unset` does; a range with a
    condition that has lost its bounds exempts its documents.

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
    known = [*STATISTICS, *(rule.key for rule in before if rule.key not in STATISTICS)]
    taken = [_range_key(f"--unset {key}", key.strip(), f"{key.strip()}=...", known) for key in unsets]
    for argument in sets:
        key, equals, text = argument.partition("=")
        if not equals:
            raise UsageError(f"--set {argument}: expected KEY=VALUE, for example --set filter.length.num_chars.min=80")
        parts = _range_key(f"--set {argument}", key.strip(), argument, known)
        if text.strip() in NO_LIMIT:
            taken.append(parts)
        elif parts[1] == OWN and len(parts) == 3:
            raise UsageError(
                f"--set {argument}: the rule measures another thing then, and only a new run can tell. Here its "
                "min, max and when can be set."
            )
        else:
            _enable(values, parts)
            values = apply_overrides(values, [argument])
    for parts in sorted(taken, key=lambda found: [part.zfill(4) for part in found], reverse=True):  # places stay right
        _unset(values, parts)
    config = parse(FilterConfig, values.get("filter", {}), "--set: [filter] of the new recipe")
    return Thresholds(before, config.rules, values, recorded, apart)


def _range_key(option: str, key: str, argument: str, known: Sequence[str]) -> list[str]:
    """The parts of the name of a range or of one of its bounds."""
    parts = key.split(".")
    name = ".".join(parts[1:3])
    ends = parts[4:] if len(parts) > 3 and parts[3].isdecimal() else parts[3:]
    if parts[0] == "filter" and name in known and (not ends or ends in (["min"], ["max"], ["when"])):
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
    keys = [f"filter.{statistic}" for statistic in known]
    nearest = difflib.get_close_matches(".".join(parts[:3]), keys, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise UsageError(
        f"{option}: no statistic has this name; {hint}A range is called filter.FAMILY.STATISTIC[.PLACE][.min|.max]."
    )


def _enable(values: dict[str, Any], parts: Sequence[str]) -> None:
    """Where a recipe says "off", a new bound starts from no limit."""
    section = values.get("filter", {}).get(parts[1], {})
    if len(parts) == 4 and isinstance(section, dict) and section.get(parts[2]) == "off":
        section[parts[2]] = {}


def _unset(values: dict[str, Any], parts: Sequence[str]) -> None:
    section = values.get("filter", {}).get(parts[1], {})
    *above, last = parts[2:]
    try:
        table = section
        for part in above:
            table = table[place_in(table, part, "") if isinstance(table, list) else part]
        table = default_of(table, last)
        if parts[1] != OWN or not above or last in table or table.keys() & set(BOUNDS):  # there max is 0 where none is
            del table[place_in(table, last, "") if isinstance(table, list) else last]
    except (LookupError, TypeError, UsageError):
        raise UsageError(
            f"--unset {'.'.join(parts)}: the recipe has no such limit, so there is nothing to take out."
        ) from None
    if isinstance(section, dict):
        section[parts[2]] = _remaining(section.get(parts[2]))
    elif above and not table.keys() & set(BOUNDS):  # a rule of one's own without bounds is one of 0 at most
        section.remove(table)


def _remaining(allowed: Any) -> Any:
    """What is left of a statistic's ranges when one or a bound was taken out."""
    if isinstance(allowed, list):
        left = [one for one in allowed if one]
        allowed = left[0] if len(left) == 1 and "when" not in left[0] else left
    ranges = allowed if isinstance(allowed, list) else [allowed or {}]
    return allowed if any(one.keys() & set(BOUNDS) for one in ranges) else "off"


def _stored_rules(folder: Folder) -> tuple[tuple[Rule, ...], frozenset[str]]:
    """The rules that a filter stage was run with, and the sources that have their own, from its `stage.json`."""
    url = storage.join(folder.url, "stage.json")
    stage = storage.read_json(url)
    try:
        version = stage["version"]
        rules = read_rules(stage["config"]["rules"])
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


def _ranges(rules: Sequence[Rule]) -> dict[str, Any]:
    """{statistic: what a recipe says of it} in the order of the rules."""
    found: dict[str, Any] = {}
    for rule in rules:
        bounds = {name: int(bound) if float(bound).is_integer() else bound for name, bound in rule.bounds().items()}
        value = {**bounds, "when": as_json(rule.when)} if rule.when else bounds
        found[rule.key] = value if rule.place is None else [*(found.get(rule.key, []) if rule.place else []), value]
    return found


def _overrides(key: str, was: Any, now: Any, whole: Any) -> list[str]:
    """The shortest `--set` from one value of a statistic to another, of which the recipe says `whole`."""
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [
            found
            for place, pair in enumerate(zip(was, now, strict=True))
            for found in _overrides(f"{key}.{place}", *pair, pair[1])
        ]
    if isinstance(was, dict) and isinstance(now, dict) and set(was) <= set(now):
        return [f"{key}.{name}={toml_value(now[name])}" for name in now if was.get(name) != now[name]]
    return [f"{key}={toml_value(whole) if now else 'off'}"]

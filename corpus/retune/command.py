"""`python -m corpus retune`: the words around a prediction, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tomlkit.exceptions import TOMLKitError

from corpus.engine.cli import print_json
from corpus.engine.config import load_toml
from corpus.engine.durable import commit
from corpus.engine.errors import UsageError
from corpus.engine.run import current
from corpus.engine.toml import dump, edit, toml_value
from corpus.filters.rules.conditions import OWN
from corpus.recipe import Recipe
from corpus.report.explain import aside, verdict, wrap_columns
from corpus.report.metadata import limit_text
from corpus.report.summary import folders, share, size
from corpus.retune.predict import Example, Prediction, predict
from corpus.retune.thresholds import Thresholds, read_thresholds

RULE_WIDTH = 38


def print_prediction(out: str, sets: Sequence[str], unsets: Sequence[str], write: str | None, *, as_json: bool) -> None:
    """Print what the filter would keep, as text or as JSON."""
    prediction, thresholds = retune(out, sets, unsets, write)
    if as_json:
        following = next_commands(out, thresholds, write)[-1]
        print_json(prediction.as_json() | {"set": thresholds.overrides, "next": following})
    else:
        print("\n".join(_lines(out, prediction, thresholds, write)))


def write_recipe(path: Path, text: str, base: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Write a recipe that means `values`: as `text`, which means `base`, with other values where that is possible.

    Raises:
        UsageError: `path` exists, is not called *.toml, or its folder does not exist.
    """
    if path.suffix != ".toml":
        raise UsageError(f"--write {path}: the name of a recipe's file ends in .toml.")
    if path.exists() or path.is_symlink():
        raise UsageError(f"--write {path}: exists already. Choose another name, or remove it.")
    if not path.parent.is_dir():
        raise UsageError(f"--write {path}: the folder {path.parent} does not exist.")
    for write in (partial(edit, text, base, values), partial(dump, values)):
        with suppress(TOMLKitError, ValueError, TypeError, KeyError):  # of a text that cannot take these values
            with commit(path) as temporary:
                temporary.write_text(write(), encoding="utf-8")
            with suppress(UsageError):
                if _means(load_toml(path, model=Recipe), values):
                    return
            path.unlink()
    raise UsageError(f"--write {path}: these values cannot be written as TOML.")


def _means(written: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether both are one recipe; the order of a filter's rules is a part of it."""
    rules, wanted = written.get("filter", {}), values.get("filter", {})
    return written == values and toml_value(rules) == toml_value(wanted)


def retune(out: str, sets: Sequence[str], unsets: Sequence[str], write: str | None) -> tuple[Prediction, Thresholds]:
    """Predict, and write the new recipe where one is asked for.

    Raises:
        UsageError: nothing to change, a key that is no range, a recipe's file that exists, ...
        WenhaiError: `out` holds no finished filter stage, or a file is damaged.
    """
    if not sets and not unsets:
        raise UsageError("retune: give at least one --set filter.FAMILY.STATISTIC.min|max=VALUE or --unset KEY.")
    folder = current(out, "filter")
    thresholds = read_thresholds(out, folder, sets, unsets)
    prediction = predict(folder, thresholds, folders(out).get("extract"))
    if write is not None:
        if thresholds.recorded is None:
            raise UsageError(
                f"--write {write}: {out} keeps no recipe of its present rules. Finish `python -m corpus run` with the "
                "recipe first; what is done is not repeated."
            )
        write_recipe(Path(write), thresholds.recorded.text, thresholds.recorded.base, thresholds.values)
    return prediction, thresholds


def next_commands(out: str, thresholds: Thresholds, write: str | None) -> list[str]:
    """What to type next: how to keep the new rules as a recipe, and how to build with them."""
    sets = "".join(f" --set {shlex.quote(override)}" for override in thresholds.overrides)
    target = shlex.quote(out)
    sources = thresholds.values.get("sources")
    has_paths = isinstance(sources, list) and all("path" in source for source in sources)
    end = f"--out {target}" if has_paths else f"--input ... --out {target}"
    if any("entry_point" in rule for rule in thresholds.values.get("filter", {}).get(OWN, [])):
        end += " --allow-code"
    if write is not None:
        return [f"python -m corpus run --recipe {shlex.quote(write)} {end}"]
    commands = []
    name = "..."
    if thresholds.recorded is not None:
        commands.append(f"python -m corpus retune {target}{sets} --write my.toml")
        name = shlex.quote(thresholds.recorded.name)
        sets = "".join(f" --set {shlex.quote(override)}" for override in thresholds.recorded.overrides) + sets
    return [*commands, f"python -m corpus run --recipe {name} {end}{sets}"]


def _lines(out: str, prediction: Prediction, thresholds: Thresholds, write: str | None) -> Iterator[str]:
    before, after, total = prediction.before, prediction.after, prediction.measured
    yield f"{total:,} documents were measured; their texts were not read again."
    yield ""
    yield f"{'kept by the filter':<24}{'before':>18}{'after':>18}{'change':>16}"
    for label, old, new in (
        ("documents", before.documents, after.documents),
        ("characters", before.characters, after.characters),
    ):
        yield f"  {label:<22}{old:>18,}{new:>18,}{new - old:>+16,}"
    change = after.text_bytes - before.text_bytes
    grown = ("-" if change < 0 else "+") + size(abs(change))
    yield f"  {'text':<22}{size(before.text_bytes):>18}{size(after.text_bytes):>18}{grown:>16}"
    yield f"  {'share of documents':<22}{share(before.documents, total):>18}{share(after.documents, total):>18}"
    yield ""
    yield f"{'dropped first by':<{RULE_WIDTH + 2}}{'before':>12}{'after':>12}{'change':>12}  limit"
    for rule in prediction.rules:
        old_limit, new_limit = limit_text(rule.limits_before) or "none", limit_text(rule.limits_after) or "none"
        changed = rule.limits_before != rule.limits_after
        if changed or rule.dropped_before != rule.dropped_after:
            limit = f"{old_limit} -> {new_limit}" if changed else old_limit
            old, new = rule.dropped_before, rule.dropped_after
            line = f"  {rule.rule:<{RULE_WIDTH}}{old:>12,}{new:>12,}{new - old:>+12,}  {limit}"
            yield f"{line} {aside(rule.detail)}".rstrip()
    yield ""
    yield (
        f"{prediction.kept_anew:,} documents come in, {prediction.dropped_anew:,} go, "
        f"{prediction.dropped_by_another:,} are dropped by another rule than before."
    )
    for title, examples in (("come in", prediction.examples_kept), ("go", prediction.examples_dropped)):
        if examples:
            yield ""
            yield f"some of those that {title}:"
            for one in examples:
                yield from _example(one)
    yield ""
    if thresholds.apart:
        yield f"Not part of these numbers: sources with a filter of their own ({', '.join(sorted(thresholds.apart))})."
    yield "Duplicates are looked for after the filter and are not part of these numbers."
    if write is not None:
        yield f"wrote {write}"
    yield "next:"
    yield from (f"  {command}" for command in next_commands(out, thresholds, write))


def _example(one: Example) -> Iterator[str]:
    found = verdict({**one.limit.as_json(), "value": one.value})
    yield f"  {one.ordinal}  {one.limit.key}: {found}  {one.url or one.id}"
    if one.excerpt:
        yield from (f"      {line}" for line in wrap_columns(one.excerpt))

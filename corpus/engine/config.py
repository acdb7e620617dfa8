"""Recipes and run configurations: TOML into frozen, strict pydantic models, all errors at once.

An unknown key is an error that names the nearest valid one: a typo in a threshold must not silently keep the default.
"""

from __future__ import annotations

import copy
import difflib
import glob
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic

from corpus.engine.errors import UsageError

RECIPES = Path(__file__).parent.parent / "recipes"
MAX_TOML_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_EXTENDS = 8  # recipes on top of each other
SECTION_DEPTH = 2  # [filter.length]: what lies deeper is a value


class Strict(pydantic.BaseModel):
    """Base of every configuration model: frozen, no unknown keys, no silent conversions between types."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class BesideRecipe:
    """Marks a key whose strings are paths: a relative one lies beside the file that says it (`load_toml`)."""

    names: tuple[str, ...] = ()
    """Strings that are no paths, as the names of built-in lists."""
    is_recipe: bool = False
    """Whether it is a recipe, which may be the name of a built-in one."""


RecipePath = Annotated[str, BesideRecipe()]
"""A path, glob or URL in a recipe; fields may be `RecipePath | None`, `tuple[RecipePath, ...]`, ..."""


class Resources(Strict):
    """[resources.STAGE]: what a task of a stage asks of a machine. A cluster places tasks by it; no bytes depend on
    it."""

    cpus: float = pydantic.Field(default=1.0, gt=0)
    memory_gb: float = pydantic.Field(default=0.0, ge=0)
    """0 asks for nothing: as many tasks as CPUs then share a machine's memory."""


class WithResources(Strict):
    """A recipe of which only the resources are read."""

    resources: dict[str, Resources] = {}


def check_resources(resources: Mapping[str, Resources], stages: Sequence[str], where: str) -> None:
    """Refuse a section for a stage that does not exist; raises `UsageError`."""
    for name in resources:
        if name not in stages:
            hint = nearest_of(name, stages) or f"stages: {', '.join(stages)}"
            raise UsageError(f"{where}: resources.{name}: no such stage; {hint}")


def find_recipe(recipe: str, folder: Path = Path()) -> Path:
    """The file of a recipe: a path from `folder` (it ends in .toml or holds a slash), or the name of a built-in one.

    Raises:
        UsageError: no built-in recipe has this name; it says which there are.
    """
    if _is_path(recipe):
        return folder / recipe
    names = sorted(path.stem for path in RECIPES.glob("*.toml"))
    if recipe in names:
        return RECIPES / f"{recipe}.toml"
    listing = f"{nearest_of(recipe, names)} built-in recipes: {', '.join(names)}".lstrip()
    raise UsageError(f"unknown recipe {recipe!r}; {listing}. The name of a file ends in .toml.")


def _is_path(recipe: str) -> bool:
    return recipe.endswith(".toml") or "/" in recipe


def nearest_of(name: str, names: Sequence[str]) -> str:
    """The question whether the nearest of the known names was meant; empty where none is near."""
    nearest = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {nearest[0]}?" if nearest else ""


def load_toml(
    path: Path, overrides: Sequence[str] = (), model: type[pydantic.BaseModel] | None = None
) -> dict[str, Any]:
    """Read a TOML file (at most 1 MiB) and apply `a.b=value` overrides on top.

    `extends = "web_zh"` (or a path, from the file's own folder) starts from another file: sections are merged key by
    key, and a key's value, a range too, replaces the other whole.

    Values that `model` calls a `RecipePath` become absolute: those of a file from its folder, those of overrides from
    the current one.

    Raises:
        UsageError: missing, too large, not TOML, nested too deeply, extends itself, an override without `=`, or a path
            as `relative_to` refuses it.
    """
    values = apply_overrides(_load(path, (), model), overrides)
    if model is not None:
        place_paths(values, model)
    return values


def relative_to(folder: Path, path: str, where: str) -> str:
    """A path or glob from `folder` as an absolute one; URLs and absolute paths stay. `where` names it in the error.

    Raises:
        UsageError: nothing stands there but in the current folder, from which recipes of before were read.
    """
    if "://" in path or "\0" in path or os.path.isabs(path):
        return path
    beside = os.path.abspath(os.path.join(folder, path))
    if not _matches(str(folder), path) and _matches("", path):
        raise UsageError(
            f"{where}: {path} is looked for beside the recipe, and stands in the current folder. "
            f"Write {os.path.relpath(path, folder)}, or move it to {beside}."
        )
    return beside


def _matches(folder: str, path: str) -> bool:
    if os.path.lexists(os.path.join(folder, path)):
        return True
    return glob.has_magic(path) and any(True for _ in glob.iglob(path, root_dir=folder or None, recursive=True))


def place_paths(
    values: dict[str, Any], model: type[pydantic.BaseModel], path: Path = Path("--set"), section: str = ""
) -> None:
    """Make the paths that `model` knows absolute, from the folder of the recipe `path`; raises as `relative_to`."""
    for key in values.keys() & model.model_fields.keys():
        field, value, name = model.model_fields[key], values[key], f"{section}{key}"
        marker = _marker(field.annotation, field.metadata)
        if marker is not None:
            values[key] = _placed(value, marker, path, f"{path}: {name}")
        for inner in _models_in(field.annotation):
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict):
                    place_paths(part, inner, path, f"{name}.")


def _placed(value: Any, marker: BesideRecipe, path: Path, where: str) -> Any:
    if isinstance(value, list):
        return [_placed(part, marker, path, where) for part in value]
    if not isinstance(value, str) or value in marker.names or (marker.is_recipe and not _is_path(value)):
        return value  # another type is for the model to refuse
    return relative_to(path.parent, value, where)


def _marker(annotation: Any, metadata: Sequence[Any] = ()) -> BesideRecipe | None:
    for item in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(item, BesideRecipe):
            return item
    return next(filter(None, map(_marker, typing.get_args(annotation))), None)


def _load(path: Path, above: tuple[Path, ...], model: type[pydantic.BaseModel] | None) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TOML_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise UsageError(f"{path}: cannot be read ({getattr(error, 'strerror', error)}).") from error
    if len(data) > MAX_TOML_BYTES:
        raise UsageError(f"{path}: larger than {MAX_TOML_BYTES:,} bytes; a recipe is a page of text.")
    values = _parse_toml(data, str(path))
    base = values.pop("extends", None)
    if model is not None:
        place_paths(values, model, path)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UsageError(f'{path}: extends names one recipe, for example extends = "web_zh".')
    above = (*above, _resolved(path))
    base_path = find_recipe(base, path.parent)
    if _resolved(base_path) in above:
        raise UsageError(f"{path}: extends {base}, which extends this file again. Take one of the two out.")
    if len(above) > MAX_EXTENDS:
        raise UsageError(
            f"{path}: extends {base}, the {len(above)}th in a row; at most {MAX_EXTENDS}. Write some into one."
        )
    return merge(_load(base_path, above, model), values, SECTION_DEPTH)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a null character: opening it says so
        return path


def merge(base: dict[str, Any], values: dict[str, Any], depth: int) -> dict[str, Any]:
    """`values` over `base`: sections key by key down to `depth`, below it whole."""
    merged = base | values
    for key in base.keys() & values.keys():
        if depth and isinstance(base[key], dict) and isinstance(values[key], dict):
            merged[key] = merge(base[key], values[key], depth - 1)
    return merged


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return `values` with `a.b.c=value` assignments applied; a value is read as TOML, else as a plain string, and
    `off` takes a table out of a list."""
    result = copy.deepcopy(values)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        keys = [key.strip() for key in dotted.split(".")]
        if not equals or not all(keys):
            raise UsageError(f"--set {override}: expected SECTION.KEY=VALUE, for example --set dedup.threshold=0.8")
        *above, key = keys
        table: Any = result
        for name in above:
            table = default_of(table, name)
            table = table[place_in(table, name, override)] if isinstance(table, list) else table.setdefault(name, {})
            if not isinstance(table, dict | list):
                raise UsageError(f"--set {override}: {name} is a value, not a section.")
        table, value = default_of(table, key), _parse_value(text)
        place: Any = place_in(table, key, override) if isinstance(table, list) else key
        if isinstance(table, list) and value == "off":
            del table[place]
        else:
            table[place] = value
    return result


def default_of(table: Any, key: str) -> Any:
    """Where `key` is no place in a list of ranges, the last of them, if it has no condition: `num_chars.min`."""
    if not isinstance(table, list) or key.isdecimal() or not all(isinstance(one, dict) for one in table):
        return table
    is_ranges = any("when" in one for one in table[:-1]) and not any(
        {"name", "statistic"} & one.keys() for one in table
    )
    return table[-1] if is_ranges and "when" not in table[-1] else table


def place_in(tables: list[Any], key: str, override: str) -> int:
    """Where in a list of tables one stands, by its number or its name: `sources.0.kind`; raises `UsageError`."""
    named = [place for place, table in enumerate(tables) if isinstance(table, dict) and table.get("name") == key]
    if not named and (not key.isdecimal() or int(key) >= len(tables)):
        raise UsageError(f"--set {override}: expected a number below {len(tables)} for {key}: there is a list.")
    return named[0] if named else int(key)


def set_options(values: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Set the dotted keys of a command's options that were given; a section that is none is left for `parse`."""
    for path, value in options.items():
        *sections, key = path.split(".")
        table: Any = values
        for section in sections:
            table = table.setdefault(section, {}) if isinstance(table, dict) else table
        if value is not None and isinstance(table, dict):
            table[key] = value


def parse(model: type[Model], values: dict[str, Any], where: str, overrides: Sequence[str] = ()) -> Model:
    """Validate `values` against `model`; `where` names the file in errors, and `overrides` are what `values` has of
    `--set`: an error in one is told as its own.

    Raises:
        UsageError: lists every error with its dotted path, and the nearest valid key for an unknown one.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        items = error.errors(include_url=False)
        changed = [_overridden([str(part) for part in item["loc"]], overrides) for item in items]
        lines = [f"  {_describe(model, item)}{by}" for item, by in zip(items, changed, strict=True)]
        plural = "error" if len(lines) == 1 else "errors"
        raise UsageError("\n".join([f"{'--set' if all(changed) else where}: {len(lines)} {plural}", *lines])) from None


def _overridden(location: list[str], overrides: Sequence[str]) -> str:
    """The overrides of a key, of what lies in it and of its sections, in words; empty without one."""
    found = {}
    for override in overrides:
        keys = [key.strip() for key in override.partition("=")[0].split(".")]
        shared = min(len(keys), len(location))
        if shared and keys[:shared] == location[:shared]:
            found[tuple(keys)] = f"--set {override}"
    return f" ({', '.join(found.values())})" if found else ""


def _parse_toml(data: bytes, where: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(data.decode())
        _check(values, where, 0)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, an integer of 5,000 digits
        raise UsageError(f"{where}: not valid TOML ({error}).") from error
    return values


def _parse_value(text: str) -> Any:
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    _check(values, f"--set {text}", 0)
    return values["value"] if set(values) == {"value"} else text


def _check(value: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UsageError(f"{where}: nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where}: {value} is not a finite number.")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _check(child, where, depth + 1)


def _describe(model: type[pydantic.BaseModel], item: Any) -> str:
    location = [str(part) for part in item["loc"]]
    path = ".".join(location) or "(top level)"
    if item["type"] == "model_type":
        return f"{path}: is a section of keys, not a value"
    if item["type"] != "extra_forbidden":
        message = item["msg"].removeprefix("Value error, ")
        return f"{path}: {message}"
    if location == ["extends"]:
        return "extends: stands in a file, as its own key above all sections"
    valid = [*_fields_at(model, location[:-1]), *(["extends"] if len(location) == 1 else [])]
    hint = nearest_of(location[-1], valid) or f"valid keys: {', '.join(sorted(valid)) or 'none'}"
    return f"{path}: unknown key; {hint}"


def _fields_at(model: type[pydantic.BaseModel], path: list[str]) -> Iterator[str]:
    """The field names of the model that stands at a dotted path below `model`."""
    if path and path[0].isdigit():  # which of a list
        path = path[1:]
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if not path:
        yield from fields
        return
    field = fields.get(path[0])
    for candidate in _models_in(field.annotation) if field else ():
        yield from _fields_at(candidate, path[1:])


def _models_in(annotation: Any) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated, list, tuple):
        for argument in typing.get_args(annotation):
            yield from _models_in(argument)

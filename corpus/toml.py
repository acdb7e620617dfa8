"""Recipes written: a recipe's text with other values, of which only the lines that change are touched, so
comments and order stay.

The new text is read again and must mean exactly the new values; where it does not (values over several lines, a recipe
that extends one by a relative path, ...), the values are written plainly, without comments.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from corpus.engine.config import load_toml
from corpus.engine.durable import commit
from corpus.engine.errors import UsageError

HEADER = re.compile(r"\s*\[\s*([A-Za-z0-9_.-]+)\s*\]\s*(?:#.*)?")
ASSIGNMENT = re.compile(
    r"(?P<key>[A-Za-z0-9_-]+)(?P<equals> *= *)(?P<value>\{[^{}#\"]*\}|\"[^\"\\]*\"|[^\s#\"'{\[]+)(?P<rest> *(?:#.*)?)"
)
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
RANGE_DEPTH = 3  # filter.length.num_chars: what lies deeper is its value
MANY_DIGITS = 10_000

Key = tuple[str, ...]


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
    for candidate in (edited(text, base, values), plain(values)):
        with commit(path) as temporary:
            temporary.write_text(candidate, encoding="utf-8")
        if _means(path, values):
            return
        path.unlink()
    raise UsageError(f"--write {path}: these values cannot be written as TOML.")


def edited(text: str, base: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """`text` with the lines of other values replaced, and lines for the keys that it lacks. Not checked.

    >>> edited('description = "论语"  # 书名', {"description": "论语"}, {"description": "孟子"})
    'description = "孟子"  # 书名\\n'
    """
    now = dict(_leaves(base))
    changed = {key: value for key, value in _leaves(values) if key not in now or now[key] != value}
    lines: list[str] = []
    section: Key = ()
    ends = {section: 0}
    for line in text.splitlines():
        if header := HEADER.fullmatch(line):
            section = tuple(header[1].split("."))
        elif (match := ASSIGNMENT.fullmatch(line)) and (*section, match["key"]) in changed:
            line = _replaced(match, toml_value(changed.pop((*section, match["key"]))))
        lines.append(line)
        if line.strip() and not line.lstrip().startswith("#"):
            ends[section] = len(lines)
    return _with_missing(lines, ends, changed)


def plain(values: Mapping[str, Any]) -> str:
    """All values as TOML, one section after another.

    >>> print(plain({"description": "论语", "filter": {"length": {"num_chars": {"min": 50}}}}))
    description = "论语"
    <BLANKLINE>
    [filter.length]
    num_chars = { min = 50 }
    """
    sections: dict[Key, list[str]] = {}
    for key, value in _leaves(values):
        sections.setdefault(key[:-1], []).append(f"{_name(key[-1])} = {toml_value(value)}")
    blocks = ["\n".join(sections.pop((), []))]
    blocks += ["\n".join([f"[{'.'.join(map(_name, section))}]", *lines]) for section, lines in sections.items()]
    return "\n\n".join(block for block in blocks if block) + "\n"


def toml_value(value: Any) -> str:
    """A value as TOML: `{ min = 50, max = 200_000 }`.

    >>> toml_value({"min": 50, "max": 200000}), toml_value(["a", 0.5, True])
    ('{ min = 50, max = 200_000 }', '["a", 0.5, true]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{_name(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= MANY_DIGITS else str(value)
    if isinstance(value, float | datetime.date | datetime.time):
        return repr(value) if isinstance(value, float) else value.isoformat()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _means(path: Path, values: Mapping[str, Any]) -> bool:
    """Whether a file is read as exactly these values, in the same order (the order of rules is part of a recipe)."""
    try:
        return toml_value(load_toml(path)) == toml_value(values)
    except UsageError:
        return False


def _leaves(values: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """(section and key, value), in order. A table is a section, but for ranges and what lies deeper."""
    for key, value in values.items():
        path = (*above, key)
        depth = RANGE_DEPTH if path[0] == "filter" else RANGE_DEPTH - 1
        if isinstance(value, Mapping) and len(path) < depth and value:
            yield from _leaves(value, path)
        else:
            yield path, value


def _replaced(match: re.Match[str], value: str) -> str:
    """A line with another value; a comment stays in its column where there is room."""
    head, rest = match["key"] + match["equals"], match["rest"]
    spaces = len(rest) - len(rest.lstrip(" "))
    gap = max(1, spaces + len(match["value"]) - len(value)) if rest.strip() else 0
    return head + value + " " * gap + rest.lstrip(" ")


def _with_missing(lines: list[str], ends: Mapping[Key, int], missing: Mapping[Key, Any]) -> str:
    added: dict[Key, list[str]] = {}
    for key, value in missing.items():
        added.setdefault(key[:-1], []).append(f"{_name(key[-1])} = {toml_value(value)}")
    for section in sorted((section for section in added if section in ends), key=lambda one: -ends[one]):
        lines[ends[section] : ends[section]] = added.pop(section)
    for section, new in added.items():
        lines += ["", f"[{'.'.join(map(_name, section))}]", *new]
    return "\n".join(lines) + "\n"


def _name(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)

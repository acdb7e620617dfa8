"""Values as TOML text, for people to read and change; `corpus.engine.config.load_toml` reads it back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import tomlkit
from tomlkit.items import Item

SECTION_DEPTH = 2  # filter.length; what lies deeper is a value of its section: num_chars = { min = 50 }


def dump(values: Mapping[str, Any]) -> str:
    """Tables, arrays of tables, and in them what TOML knows.

    >>> print(dump({"description": "论语", "filter": {"length": {"num_chars": {"min": 50}}}}))
    description = "论语"
    <BLANKLINE>
    [filter.length]
    num_chars = {min = 50}

    Raises:
        ValueError: a value that TOML does not have.
    """
    document = tomlkit.document()
    for key, value in values.items():
        document.append(key, _item(value, 1))
    return tomlkit.dumps(document).strip() + "\n"


def toml_value(value: Any) -> str:
    """A value as it stands behind `=`.

    >>> toml_value({"min": 50, "max": 0.5}), toml_value(["a", 0.5, True])
    ('{min = 50, max = 0.5}', '["a", 0.5, true]')
    """
    return _item(value, SECTION_DEPTH + 1).as_string()


def edit(text: str, base: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """A text that means `base`, with other values; comments and order stay. Whether it means them is for the caller to
    check.

    >>> edit('description = "论语"  # 书名', {"description": "论语"}, {"description": "孟子"})
    'description = "孟子"  # 书名'
    """
    document = tomlkit.parse(text)
    now = dict(_leaves(base))
    for path, value in _leaves(values):
        if path not in now or now[path] != value:
            table: Any = document
            for depth, key in enumerate(path[:-1], 1):
                if key not in table:
                    table[key] = tomlkit.table(is_super_table=depth < len(path) - 1)
                table = table[key]
            table[path[-1]] = _item(value, len(path))
    return tomlkit.dumps(document)


def _item(value: Any, depth: int) -> Item:
    if not isinstance(value, Mapping):
        return cast("Item", tomlkit.item(value))
    table = tomlkit.table() if depth <= SECTION_DEPTH else tomlkit.inline_table()
    for key, inner in sorted(value.items(), key=lambda pair: isinstance(pair[1], Mapping) and depth < SECTION_DEPTH):
        table.append(key, _item(inner, depth + 1))
    return cast("Item", table)


def _leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(section and key, value), in order."""
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, Mapping) and len(path) <= SECTION_DEPTH and value:
            yield from _leaves(value, path)
        else:
            yield path, value

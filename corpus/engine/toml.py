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
            if not _edit_in_place(table.get(path[-1]), now.get(path), value):
                table[path[-1]] = _item(value, len(path))
    return tomlkit.dumps(document)


def _edit_in_place(item: Any, old: Any, new: Any) -> bool:
    """Change the values of a list of tables that has as many as before, so that what stands beside each stays."""
    if not (isinstance(item, list) and _are_tables(old) and _are_tables(new) and len(old) == len(new) == len(item)):
        return False
    for table, was, now in zip(item, old, new, strict=True):
        for key in was.keys() - now.keys():
            del table[key]
        for key, value in now.items():
            if was.get(key) != value:
                table[key] = _item(value, SECTION_DEPTH + 1)
    return True


def _item(value: Any, depth: int) -> Item:
    if _are_tables(value):
        tables = tomlkit.aot() if depth <= SECTION_DEPTH else tomlkit.array()
        tables.extend([_table(one, depth, SECTION_DEPTH) for one in value])  # in them all in its order, in one line
        return tables
    return _table(value, depth, depth) if isinstance(value, Mapping) else cast("Item", tomlkit.item(value))


def _table(value: Mapping[str, Any], depth: int, within: int) -> Item:
    table = tomlkit.table() if depth <= SECTION_DEPTH else tomlkit.inline_table()
    sections = {key for key, inner in value.items() if isinstance(inner, Mapping) or _are_tables(inner)}
    for key, inner in sorted(value.items(), key=lambda pair: pair[0] in sections and within < SECTION_DEPTH):
        table.append(key, _item(inner, within + 1))
    return cast("Item", table)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _leaves(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(section and key, value), in order."""
    for key, value in values.items():
        path = (*above, key)
        if isinstance(value, Mapping) and len(path) <= SECTION_DEPTH and value:
            yield from _leaves(value, path)
        else:
            yield path, value

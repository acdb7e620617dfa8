"""A configuration as TOML text, for people to read and change; `corpus.engine.config.load_toml` reads it back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any


def dump(values: Mapping[str, Any]) -> str:
    """Tables, arrays of tables, and in them strings, numbers, truth values and arrays of those.

    >>> print(dump({"model": {"bias": True, "rope_base": 1e4}, "data": {"corpora": [{"path": "a"}]}}))
    [model]
    bias = true
    rope_base = 10000.0
    <BLANKLINE>
    [[data.corpora]]
    path = "a"
    """
    return "\n".join(_lines(values, "")).strip()


def _lines(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    arrays = {key: value for key, value in values.items() if _is_array_of_tables(value)}
    for key, value in values.items():
        if key not in tables and key not in arrays:
            yield f"{key} = {_value(value)}"
    for key, table in tables.items():
        if any(not isinstance(value, Mapping) and not _is_array_of_tables(value) for value in table.values()):
            yield f"\n[{prefix}{key}]"
        yield from _lines(table, f"{prefix}{key}.")
    for key, array in arrays.items():
        for table in array:
            yield f"\n[[{prefix}{key}]]"
            yield from _lines(table, f"{prefix}{key}.")


def _is_array_of_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)  # strings, integers and truth values are spelled as in JSON

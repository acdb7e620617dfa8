"""Which fields of a record are its text, URL, title, date, identity and source: names, nested names, alternatives.

`"data.text"` is the field `text` of the object in the field `data`; a field that is called `data.text` comes first.
Where a list stands on the way, each of its items is asked: `"段落.内容"` are the paragraphs of MNBVC's documents, joined
by line ends. Of several names, the first that holds something is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from corpus.engine.config import Strict

DEFAULT_NAME = "local"


def _as_tuple(names: Any) -> Any:
    return (names,) if isinstance(names, str) else tuple(names) if isinstance(names, list) else names


Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]


class SourceName(Strict):
    """What the source of a document is called: a field of it, else a part of its file's name, else the default."""

    field: Names = ("source",)
    path: str = ""
    """A regular expression with one group, searched in the file's name below its folder or glob: `^([^/]+)/`."""
    default: str = Field(default=DEFAULT_NAME, min_length=1)

    @field_validator("path")
    @classmethod
    def _has_a_group(cls, path: str) -> str:
        try:
            num_groups = re.compile(path).groups
        except re.error as error:
            raise ValueError(f"no regular expression ({error})") from None
        if path and num_groups != 1:
            raise ValueError(f"has {num_groups} groups; put the part that is the name into one pair of brackets")
        return path

    def of_file(self, name: str) -> str:
        """The name for the records of a file that do not name a source themselves.

        >>> SourceName(path="^([^/]+)/").of_file("news/2024/a.jsonl"), SourceName().of_file("a.jsonl")
        ('news', 'local')
        """
        found = re.search(self.path, name) if self.path else None
        return found[1] if found and found[1] else self.default


def take(fields: dict[str, Any], names: Sequence[str]) -> str | None:
    """The first of some fields that holds text, which leaves `fields` if it stands there itself.

    >>> fields = {"title": "", "data": {"title": "论语"}, "text": [{"p": "学而"}, {"p": "为政"}]}
    >>> take(fields, ["title", "data.title"]), take(fields, ["text.p"])
    ('论语', '学而\\n为政')
    """
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value and not value.isspace():
            del fields[name]
            return value
        if value is None and "." not in name:
            continue
        text = "\n".join(_strings(at(fields, name)))
        if text:
            return text
    return None


def _strings(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) and value and not value.isspace() else []


def at(value: Any, path: str) -> Any:
    """The value at a dotted path, None where there is none; where a list stands on the way, those of its items.

    >>> at({"data": [{"by": "甲"}, {"by": "乙"}, {}], "a.b": 1}, "data.by"), at({"a.b": 1}, "a.b")
    (['甲', '乙'], 1)
    """
    if isinstance(value, list):
        return [found for item in value if (found := at(item, path)) is not None] or None
    if not isinstance(value, Mapping) or path in value:
        return value.get(path) if isinstance(value, Mapping) else None
    first, _, rest = path.partition(".")
    return at(value.get(first), rest) if rest else None


def identity(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of some fields that holds text or a whole number; all stay where they are."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, (str, int)) and value != "":
            return str(value)
    return None

"""Section [text] of a recipe: what is written around the text of a document, for sources that keep titles apart.

In braces stand columns of the document (FIELDS) and fields of its `meta` (`meta.author`), as they are: no formats, no
attributes. The rest of a template is lines before and behind {text}, each with the blank lines between it and the text;
a line that names a field which the document lacks is left out. Where the first line of the text is the title already,
nothing is written.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec
from pydantic import field_validator

from corpus.engine.config import Strict
from corpus.sources.shards import Row

FIELDS = ("title", "text", "url", "date", "source")
META = "meta."
MIN_TITLE_RATIO = 0.5  # of the letters of a first line that is a title, or of a title that the first line is
HEAD_BYTES = 16 << 10  # in which the first line is looked for; longer ones are no titles
_NAME = re.compile(r"\{([^{}\n]*)\}")
_BEFORE, _BEHIND = re.compile(r"[^\n]+\n*|\n+"), re.compile(r"\n*[^\n]+|\n+")


class TextConfig(Strict):
    """How the text of a document is written."""

    template: str = "{text}"
    """`{title}\\n\\n{text}` writes the title above the text."""

    @property
    def meta_names(self) -> list[str]:
        """The fields of `meta` that it asks for."""
        return [name.removeprefix(META) for name in _NAME.findall(self.template) if name.startswith(META)]

    @field_validator("template")
    @classmethod
    def _names_fields(cls, template: str) -> str:
        names = _NAME.findall(template)
        for name in names:
            if name not in FIELDS and not (name.startswith(META) and name != META):
                raise ValueError(
                    f"no field {{{name}}}; there are {', '.join(map('{{{}}}'.format, FIELDS))}, and {{meta.NAME}} "
                    "for the other fields of a record"
                )
        if names.count("text") != 1:
            raise ValueError(f"{{text}} stands in it {names.count('text')} times; write it once")
        if set("{}") & set(_NAME.sub("", template)):
            raise ValueError("a brace without a field; braces stand around names of fields only")
        return template


def write(config: TextConfig, source: str, row: Row) -> int:
    """Write the template around the text of a row, in place; returns how many characters that added.

    >>> row = Row(url=None, title="论语", date=None, encoding=None, meta=None, text="学而时习之".encode())
    >>> write(TextConfig(template="{title}\\n\\n{text}\\n（{url}）"), "local", row), row["text"].decode()
    (4, '论语\\n\\n学而时习之')
    """
    if config.template == "{text}":
        return 0
    fields: dict[str, Any] = {"source": source, "url": row["url"], "title": row["title"], "date": row["date"]}
    if "{title}" in config.template and row["title"] and _is_titled(row["text"], row["title"]):
        return 0
    if f"{{{META}" in config.template and row["meta"]:
        fields |= {META + name: value for name, value in msgspec.json.decode(row["meta"]).items()}
    before, _, behind = config.template.partition("{text}")
    head = "".join(_filled(line, fields) for line in _BEFORE.findall(before))
    tail = "".join(_filled(line, fields) for line in _BEHIND.findall(behind))
    row["text"] = head.encode() + row["text"] + tail.encode()
    return len(head) + len(tail)


def _filled(line: str, fields: dict[str, Any]) -> str:
    """A line with the values of its fields, each on one line; empty where one has none."""
    values = [fields.get(name) for name in _NAME.findall(line)]
    words = [" ".join(str(value).split()) if isinstance(value, str | int | float) else "" for value in values]
    rest = iter(words)
    return _NAME.sub(lambda _: next(rest), line) if all(words) else ""


def _is_titled(text: bytes, title: str) -> bool:
    """Whether the first line of a text is its title, or most of it, punctuation and 《》 aside."""
    first = text[:HEAD_BYTES].decode(errors="ignore").lstrip().partition("\n")[0]
    shorter, longer = sorted((_letters(first), _letters(title)), key=len)
    return shorter in longer and len(shorter) >= MIN_TITLE_RATIO * max(1, len(longer))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))

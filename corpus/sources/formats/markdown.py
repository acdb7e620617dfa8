"""Markdown as it is written, without front matter and HTML comments; the comments in code stay.

Front matter are the lines between `---` at the start; its fields are those of a record: title, date, what `meta` names.
Of YAML only `name: value` and lists of values are read. A title that stands nowhere is the first `# heading`, or the
first above `===`.
Characters of front matter and comments are counted (`front_matter`, `comments`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from corpus.sources.config import SourcesConfig
from corpus.sources.fields import take
from corpus.sources.formats.text import read_text
from corpus.sources.formats.wrapped import Removed, count_removed, num_chars
from corpus.sources.record import BadRecord, Record

MAX_FRONT_CHARS = 64 << 10
_FRONT = re.compile(r"---[ \t]*\n((?:(?!(?:---|\.\.\.)[ \t]*\n).*\n)*)(?:---|\.\.\.)[ \t]*\n")
_FIELD = re.compile(r"([\w-]{1,64})[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_FENCE_OR_COMMENT = re.compile(r"^ {0,3}(`{3,}|~{3,})|<!--", re.MULTILINE)
_CODE_OR_HEADING = re.compile(
    r"^ {0,3}(`{3,}|~{3,})[^`\n]*+$(?:\n(?! {0,3}\1).*+)*+(?:\n.*+)?+|^# +(\S.*+)|^([^\s#>=*+-].*+)\n=+[ \t]*$",
    re.MULTILINE,
)


def read_markdown(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The document of a file."""
    for found in read_text(path, config):
        if isinstance(found, BadRecord):
            yield found
            continue
        text = (found.text or "").removeprefix("\ufeff")
        front = _FRONT.match(text[:MAX_FRONT_CHARS])
        fields = front_matter(front[1]) if front else {}
        if front and front[1].strip() and not fields:  # text between two rules
            front = None
        body, removed = without_comments(text[front.end() :] if front else text)
        if front:
            removed |= count_removed(("front_matter", line) for line in front[0].splitlines())
        title, date, url = (take(fields, names) for names in (config.title, config.date, config.url))
        headings = (found[3] or _bare(found[2] or "") for found in _CODE_OR_HEADING.finditer(body))
        title = title or next(filter(None, headings), None)
        facts = {"url": url, "title": title, "date": date, "fields": fields, "removed": removed}
        yield msgspec.structs.replace(found, text=body, num_read=num_chars(text), **facts)


def _bare(heading: str) -> str:
    """A heading without the marks behind it: `# 论语 #`, but C#."""
    heading = heading.rstrip()
    rest = heading.rstrip("#")
    return rest.rstrip() if rest.endswith(" ") else heading


def front_matter(text: str) -> dict[str, Any]:
    """The fields of front matter, strings and lists of strings.

    >>> front_matter("title: '论语: 学而'\\ntags:\\n  - 儒家\\n  - 经典\\nkeywords: [a, b]\\n")
    {'title': '论语: 学而', 'tags': ['儒家', '经典'], 'keywords': ['a', 'b']}
    """
    fields: dict[str, Any] = {}
    name = None
    for line in text.split("\n"):
        if field := _FIELD.match(line):
            name, value = field[1], (field[2] or "").strip()
            is_list = value.startswith("[") and value.endswith("]")
            fields[name] = [_plain(one) for one in value[1:-1].split(",")] if is_list else _plain(value)
        elif name and (item := _ITEM.match(line)):
            if not isinstance(fields[name], list):
                fields[name] = []
            fields[name].append(_plain(item[1]))
    return {name: value for name, value in fields.items() if value}


def _plain(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def without_comments(text: str) -> tuple[str, Removed]:
    """Text without `<!-- ... -->` outside of fenced code; one without an end stays. Reads each character once."""
    kept, gone, at = [], [], 0
    while found := _FENCE_OR_COMMENT.search(text, at):
        begin, mark = found.start(), found[1]
        end = text.find("\n" + mark if mark else "-->", found.end())
        if end < 0:
            break
        end += len(mark) + 1 if mark else 3
        kept.append(text[at : end if mark else begin])
        gone += [] if mark else [("comments", text[begin:end])]
        at = end
    return "".join([*kept, text[at:]]), count_removed(gone)

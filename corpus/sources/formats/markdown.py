"""Markdown as it is written, without front matter and HTML comments; the comments in code stay.

Front matter are the lines between `---` at the start; its fields are those of a record: title, date, what `meta` names.
Of YAML only `name: value` and lists of values are read. A title that stands nowhere is the first `# heading`, or the
first above `===`.
Characters of front matter and comments are counted (`front_matter`, `comments`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from corpus.sources.config import SourcesConfig
from corpus.sources.fields import take
from corpus.sources.formats.text import read_text
from corpus.sources.formats.wrapped import Removed, count_removed, num_chars
from corpus.sources.record import BadRecord, Record

MAX_FRONT_CHARS = 64 << 10
_FIELD = re.compile(r"([\w-]{1,64})[ \t]*:(?:[ \t]+(.*))?$")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
_FENCE_OR_COMMENT = re.compile(r"^ {0,3}(`{3,}|~{3,})|<!--", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def read_markdown(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The document of a file."""
    for found in read_text(path, config):
        if isinstance(found, BadRecord):
            yield found
            continue
        text = (found.text or "").removeprefix("\ufeff")
        front = _front(text)
        fields = front_matter(front)
        if front.strip("-. \t\n") and not fields:  # text between two rules
            front = ""
        body, removed = without_comments(text[len(front) :])
        removed |= count_removed(("front_matter", line) for line in front.splitlines())
        title, date, url = (take(fields, names) for names in (config.title, config.date, config.url))
        title = title or _heading(body)
        facts = {"url": url, "title": title, "date": date, "fields": fields, "removed": removed}
        yield msgspec.structs.replace(found, text=body, num_read=num_chars(text), **facts)


def _front(text: str) -> str:
    """Front matter with the rules around it, or nothing."""
    lines = text[:MAX_FRONT_CHARS].split("\n")
    ends = (number for number, line in enumerate(lines[1:-1], 1) if line.rstrip() in ("---", "..."))
    end = next(ends, 0) if lines[0].rstrip() == "---" else 0
    return "".join(f"{line}\n" for line in lines[: end + 1]) if end else ""


def _heading(text: str) -> str | None:
    """The first heading of the first level, `# 论语 #` or above a line of `=`, outside of fenced code."""
    fence = before = ""
    for line in StringIO(text):
        if found := _FENCE.match(line):
            fence = ("" if found[1].startswith(fence) else fence) if fence else found[1]
        elif not fence:
            line = line.strip()
            if line.startswith("# "):
                heading = line[2:].strip()
                bare = heading.rstrip("#")
                return bare.rstrip() if bare.endswith(" ") else heading  # C# stays
            if before and line and not line.strip("="):
                return before
            before = "" if line[:1] in tuple("#>=*+-") else line
    return None


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

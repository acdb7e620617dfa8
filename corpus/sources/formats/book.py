"""A book in plain text: its chapters as documents, hard-wrapped lines joined to paragraphs.

The encoding is that of the whole file. The title is the 《》 of the file's name or of the first lines, else the name;
the author stands behind 作者：. A chapter's document is its heading and its paragraphs, one a line, its title the book's
and the heading, with the volume's between them. What stands before the first heading is a document of its own if it is
more than title and author; headings with nothing under them (tables of contents) are none. Lines that a web site added
are left to the filter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from corpus.sources.config import SourcesConfig
from corpus.sources.formats.headings import find_headings
from corpus.sources.formats.text import read_text
from corpus.sources.formats.wrapped import paragraphs, wrap_width
from corpus.sources.record import BadRecord, Record

FRONT_LINES = 30  # in which title and author are looked for

_QUOTED = re.compile("《([^《》\n]{1,60})》")
_TITLE_LINE = re.compile(r"^[ \u3000]*《([^《》\n]{1,60})》[ \u3000\r]*(?:$|作|著)", re.MULTILINE)
_TITLE_FIELD = re.compile(
    r"^[ \u3000]*[书書]名[ \u3000]*[:：][ \u3000]*+《?([^《》\n\r]{1,60}?)》?[ \u3000\r]*$", re.MULTILINE
)
_AUTHOR = re.compile(
    r"(?:作[ \u3000]*者|著者|撰者)[ \u3000]*[:：_][ \u3000]*([^\n\r《》【】()（）,，]{1,30}?)[ \u3000]*(?=$|[\r《》【】()（）,，])",
    re.MULTILINE,
)
_CONTENTS = frozenset(("目录", "目錄"))
_NAME_TAGS = re.compile(r"(?:(?:\[[^\]]{0,99}\]|【[^】]{0,99}】|\([^)]{0,99}\)|（[^）]{0,99}）)[\s_-]{0,9})+(?=.)")
_NAME_TAIL = re.compile(r"[\s_-]*(?:作者|著者|\(|（|\[|【|by\b).*", re.IGNORECASE)
_SPACED_HAN = re.compile(r"(?<=[\u4e00-\u9fff])[ \u3000]+(?=[\u4e00-\u9fff])")


@dataclass(frozen=True, slots=True)
class Book:
    """What name and first lines say."""

    title: str
    author: str | None


def read_book(path: Path, config: SourcesConfig, name: str) -> Iterator[Record | BadRecord]:
    """The chapters of a book whose file is called `name`, or the book; offsets count characters of the decoded text."""
    for found in read_text(path, config):
        if isinstance(found, BadRecord):
            yield found
            continue
        records = list(_records(found.text or "", name.rpartition("/")[2], found.charset, config.chapters))
        yield from records
        if not records:
            yield BadRecord(0, len(found.raw), "empty", "no text")


def book_of(name: str, lines: Sequence[str]) -> Book:
    """Title and author by a file's name and its first lines.

    >>> book_of("《儒林外史》作者：吴敬梓.txt", [])
    Book(title='儒林外史', author='吴敬梓')
    """
    stem = re.sub(r"(?:\.(?:gz|gzip|zst|zstd|bz2|txt|text))+$", "", name, flags=re.IGNORECASE)
    front = "\n".join(lines[:FRONT_LINES])
    quoted = _QUOTED.search(stem) or _TITLE_LINE.search(front) or _TITLE_FIELD.search(front)
    author = _AUTHOR.search(stem) or _AUTHOR.search(front)
    title = quoted.group(1) if quoted else _NAME_TAIL.sub("", _NAME_TAGS.sub("", stem, count=1)) or stem
    return Book(title, _SPACED_HAN.sub("", author.group(1)) if author else None)


def _records(text: str, name: str, encoding: str | None, by_chapter: bool) -> Iterator[Record]:
    lines = text.split("\n")
    book = book_of(name, lines)
    width = wrap_width(lines)
    fields = {"book": book.title} | ({"author": book.author} if book.author else {})
    headings = find_headings(lines) if by_chapter else []
    starts = [heading.line for heading in headings]
    volume = ""
    offsets = [0, *accumulate(len(line) + 1 for line in lines)]
    for index, begin in enumerate([0, *starts]):
        end = starts[index] if index < len(starts) else len(lines)
        heading = headings[index - 1] if index else None
        body = paragraphs(_without_blank_ends(lines[begin + 1 if heading else begin : end]), width)
        if heading is not None and heading.level == 1:
            volume = heading.text
        if not (any(map(_is_text, body)) if index or not by_chapter else _has_more_than_title(body, book)):
            continue
        parts = [book.title]
        if heading is not None:
            parts += [volume, heading.text] if heading.level > 1 and volume else [heading.text]
            body = [heading.text, *body]
        title, document = " ".join(parts), "\n".join(body)
        yield Record(
            title,
            offsets[begin],
            document.encode("utf-8", "replace"),
            "text",
            document,
            None,
            encoding,
            None,
            title,
            None,
            fields,
        )


def _without_blank_ends(lines: Sequence[str]) -> Sequence[str]:
    full = [index for index, line in enumerate(lines) if line.strip()]
    return lines[full[0] : full[-1] + 1] if full else []


def _is_text(line: str) -> bool:
    return any(map(str.isalnum, line))


def _has_more_than_title(front: Sequence[str], book: Book) -> bool:
    bare = ("".join(_AUTHOR.sub("", _TITLE_FIELD.sub("", line)).split()).strip("《》") for line in front)
    return any(_is_text(line) and line not in _CONTENTS and line != "".join(book.title.split()) for line in bare)

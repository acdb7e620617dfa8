"""A book in plain text: its chapters as documents, hard-wrapped lines joined to paragraphs.

The encoding is that of the whole file. The title is the 《》 of the file's name or of the first lines, else the name;
the author stands behind 作者：. A chapter's document is its heading and its paragraphs, one a line, its title the book's
and the heading, with the volume's between them. What stands before the first heading is a document of its own if it is
more than title and author; headings with nothing under them (tables of contents) are none. Lines that a web site added
are left to the filter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from corpus.encoding import UndecodableError, decode
from corpus.sources.config import SourcesConfig
from corpus.sources.formats.headings import find_headings
from corpus.sources.formats.text import read_file
from corpus.sources.record import BadRecord, Record

FRONT_LINES = 30  # in which title and author are looked for
MIN_WRAP_WIDTH, MAX_WRAP_WIDTH = 40, 160  # in columns: a Chinese character has two
WRAP_SLACK = 4  # columns by which a full line may be short: a mark that must not begin a line, a Latin word
MIN_FULL_RATIO = 0.2  # of lines that are full in a hard-wrapped book
MIN_LINES = 10
MIN_MARK_RATIO = 0.01  # indents and blank lines, of all lines, above which they mark paragraphs
INDENTS = ("\u3000\u3000", "    ", "\t")

_QUOTED = re.compile("《([^《》\n]{1,60})》")
_TITLE_LINE = re.compile(r"^[ \u3000]*《([^《》\n]{1,60})》[ \u3000\r]*(?:$|作|著)", re.MULTILINE)
_TITLE_FIELD = re.compile(
    r"^[ \u3000]*[书書]名[ \u3000]*[:：][ \u3000]*《?([^《》\n\r]{1,60}?)》?[ \u3000\r]*$", re.MULTILINE
)
_AUTHOR = re.compile(
    r"(?:作[ \u3000]*者|著者|撰者)[ \u3000]*[:：_][ \u3000]*([^\n\r《》【】()（）,，]{1,30}?)[ \u3000]*(?=$|[\r《》【】()（）,，])",
    re.MULTILINE,
)
_CONTENTS = frozenset(("目录", "目錄"))
_NAME_TAGS = re.compile(r"(?:(?:\[[^\]]{0,99}\]|【[^】]{0,99}】|\([^)]{0,99}\)|（[^）]{0,99}）)[\s_-]{0,9})+(?=.)")
_NAME_TAIL = re.compile(r"[\s_-]*(?:作者|著者|\(|（|\[|【|by\b).*", re.IGNORECASE)
_SPACED_HAN = re.compile(r"(?<=[\u4e00-\u9fff])[ \u3000]+(?=[\u4e00-\u9fff])")
_FINAL = tuple("。！？!?…”』」）)：:；;—")


@dataclass(frozen=True, slots=True)
class Book:
    """What name and first lines say."""

    title: str
    author: str | None


def read_book(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The chapters of a book in order, or the book; offsets count characters of the decoded text."""
    for found in read_file(path, config, "text"):
        if isinstance(found, BadRecord):
            yield found
            continue
        try:
            decoded = decode(found.raw, config.encoding)
        except UndecodableError as error:
            yield BadRecord(0, len(found.raw), "charset", str(error))
            continue
        text = decoded.text.replace("\r\n", "\n").replace("\r", "\n")
        records = list(_records(text, path.name, decoded.encoding, config.chapters))
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


def _records(text: str, name: str, encoding: str, by_chapter: bool) -> Iterator[Record]:
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


def wrap_width(lines: Sequence[str]) -> int | None:
    """The columns at which a book's lines are wrapped, or None where every paragraph is one line.

    It is the width that hardly any line exceeds and that many lines reach.
    """
    widths = sorted(columns(line.rstrip()) for line in lines if line.strip())
    if len(widths) < MIN_LINES:
        return None
    width = widths[int(len(widths) * 0.98) - 1]
    full = sum(width - WRAP_SLACK <= one <= width + WRAP_SLACK for one in widths)
    is_wrapped = MIN_WRAP_WIDTH <= width <= MAX_WRAP_WIDTH and full >= MIN_FULL_RATIO * len(widths)
    return width if is_wrapped else None


def columns(line: str) -> int:
    """The width of a line where wide characters, and the quotes and dashes of Chinese, take two columns."""
    if line.isascii():
        return len(line)
    return len(line) + sum(unicodedata.east_asian_width(char) in "WFA" for char in line)


def paragraphs(lines: Sequence[str], width: int | None) -> list[str]:
    """Paragraphs without their indents; with `width`, full lines joined with what follows.

    A full line goes on unless the next one is blank or indented; one that ends a sentence goes on only where indents or
    blank lines mark paragraphs.
    """
    num_marks = sum(line.startswith(INDENTS) or not line.strip() for line in lines)
    is_marked = num_marks >= MIN_MARK_RATIO * len(lines)
    joined: list[str] = []
    goes_on = False
    for line in lines:
        text = line.strip()
        if not text:
            goes_on = False
            continue
        if goes_on and not line.startswith(INDENTS):
            gap = " " if joined[-1][-1].isascii() and text[0].isascii() else ""
            joined[-1] += gap + text
        else:
            joined.append(text)
        is_full = width is not None and columns(line.rstrip()) >= width - WRAP_SLACK
        goes_on = is_full and (is_marked or not text.endswith(_FINAL))
    return joined

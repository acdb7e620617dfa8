"""EPUB: the chapters of a book in the order of its spine, or the book; without the readings of ruby.

A chapter begins at a part with a heading; one without goes on with the chapter before. Of a book without headings
every part is a document. The table of contents in the spine is left out and counted (`contents`). A book is `encrypted`
where META-INF/encryption.xml names a part of the spine.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from corpus.encoding import UndecodableError, decode
from corpus.sources.config import SourcesConfig
from corpus.sources.documents import Package, Request, first, read_document
from corpus.sources.formats.wrapped import is_narrow, num_chars
from corpus.sources.record import BadRecord, Record, RecordError

MARKUP = ("application/xhtml+xml", "text/html", "text/x-oeb1-document")
MAX_TITLE_CHARS = 200

BLOCKS = frozenset(
    "p div section article aside header footer nav figure figcaption blockquote pre ul ol li dl dt dd table tr caption"
    " h1 h2 h3 h4 h5 h6 hr body address center br".split()
)
SKIPPED = frozenset("head script style rt rp template svg audio video object".split())
HEADINGS = frozenset("h1 h2 h3".split())
CELL = "\x1f"  # between the cells of a row, until its white space is gone
_BREAK = re.compile(r"(\S)[ \t\r]*\n\s*(?=(\S))")
_SPACE = re.compile("[ \t\r\n\xa0]+")


def read_epub(path: Path, config: SourcesConfig) -> Iterator[Record | BadRecord]:
    """The chapters of a book in order, or the book; offsets count the parts of its spine."""
    return read_document(path, config, "epub")


def parse(request: Request) -> Iterator[Record]:
    """Runs in the child."""
    package = Package(request)
    roots = [one["full-path"] for _, one, _ in package.elements("META-INF/container.xml") if "full-path" in one]
    facts = package.elements(roots[0]) if roots else []
    title, author, date = (first(facts, name) for name in ("title", "creator", "date"))
    fields = {"author": author} if author else {}
    chapters: list[tuple[int, _Page]] = []
    contents = (0, 0)
    left = request.max_chars
    for index, (name, properties) in enumerate(_spine(package, facts, posixpath.dirname(roots[0] if roots else ""))):
        page = _Page(package.read(name), left)
        left -= page.num_chars
        if "nav" in properties:
            contents = contents[0] + len(page.lines), contents[1] + sum(map(num_chars, page.lines))
        elif page.lines:
            chapters.append((index, page))
    has_headings = any(page.heading for _, page in chapters)
    joined: list[tuple[int, str | None, list[str]]] = []
    for index, page in chapters:
        if joined and (not request.by_chapter or (has_headings and not page.heading)):
            joined[-1][2].extend(page.lines)
        else:
            joined.append((index, page.heading if request.by_chapter else None, page.lines))
    for index, heading, lines in joined:
        text = "\n".join(lines)
        full_title = " ".join(filter(None, (title, heading))) or None
        removed = {"contents": contents} if contents[0] else {}
        num_read, contents = num_chars(text) + contents[1], (0, 0)
        raw, key = text.encode("utf-8", "replace"), (full_title or "") if heading else ""
        yield Record(
            key,
            index,
            raw,
            "text",
            title=full_title,
            date=date and date[:10],
            fields=fields,
            num_read=num_read,
            removed=removed,
        )


def _spine(
    package: Package, facts: list[tuple[str, dict[str, str], str]], folder: str
) -> Iterator[tuple[str, list[str]]]:
    """Names of a book's parts in reading order, and their properties."""
    locks = package.elements("META-INF/encryption.xml")  # fonts are there, too
    encrypted = {unquote(attributes.get("URI", "")) for tag, attributes, _ in locks if tag == "CipherReference"}
    items = {attributes.get("id", ""): attributes for tag, attributes, _ in facts if tag == "item"}
    idrefs = (attributes["idref"] for _, attributes, _ in facts if "idref" in attributes)
    spine = [items[idref] for idref in idrefs if idref in items]
    if not spine:
        raise RecordError("epub", "no parts of a book are listed")
    for item in spine:
        name = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        if name in encrypted:
            raise RecordError("encrypted", "the text is encrypted (DRM)")
        if item.get("media-type", MARKUP[0]) in MARKUP:
            yield name, item.get("properties", "").split()


def _without_break(found: re.Match[str]) -> str:
    """A line end of the source, which is a space between Latin words only."""
    return found[1] + (" " if is_narrow(found[1]) and is_narrow(found[2]) else "")


class _Page(HTMLParser):
    """The lines of a part, a block a line, cells apart by tabs; its first heading."""

    def __init__(self, raw: bytes, max_chars: int) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.heading: str | None = None
        self.num_chars = 0
        self._line: list[str] = []
        self._left = max_chars
        self._skipped: list[str] = []  # the outermost element that is skipped, and those of its name in it
        self._num_pre = 0
        self._headings: list[str] | None = None  # lines of the first heading while it is open
        try:
            self.feed(decode(raw, None).text)
        except UndecodableError as error:
            raise RecordError("charset", str(error)) from error
        self.close()
        self._flush()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Begin a block, or what is skipped."""
        if self._skipped or tag in SKIPPED:
            self._skipped += [tag] if not self._skipped or tag == self._skipped[0] else []
            return
        if tag in BLOCKS:
            self._flush()
        self._num_pre += tag == "pre"
        if tag in HEADINGS and self.heading is None:
            self._headings = []
        if tag in ("td", "th") and self._line:
            self._line.append(CELL)

    def handle_endtag(self, tag: str) -> None:
        """End a block, or what is skipped."""
        if self._skipped:
            self._skipped.pop() if tag == self._skipped[0] else None
        elif tag in BLOCKS:
            self._flush()
            self._num_pre -= tag == "pre" and self._num_pre > 0
            if tag in HEADINGS and self._headings:
                self.heading, self._headings = " ".join(self._headings)[:MAX_TITLE_CHARS], None

    def handle_data(self, data: str) -> None:
        """Take text."""
        self.num_chars += len(data)
        if self.num_chars > self._left:
            raise RecordError("too_long", "more text than a book may have")
        self._line += [] if self._skipped else [data]

    def _flush(self) -> None:
        text = "".join(self._line)
        self._line.clear()
        if self._num_pre:
            self.lines += [line.rstrip() for line in text.split("\n") if line.strip()]
            return
        cells = (_SPACE.sub(" ", _BREAK.sub(_without_break, cell)).strip() for cell in text.split(CELL))
        line = "\t".join(cells).strip()
        self.lines += [line] if line else []
        if line and self._headings is not None:
            self._headings.append(line)

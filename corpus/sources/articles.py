"""Articles on several pages: the pages that an input file holds in the order of their links become one document.

A page that goes on waits for the page it links to, known by its address. Where that does not come, `meta.next_page`
has its address.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urljoin

import msgspec

from corpus.engine.stage import Counts
from corpus.sources.parts import parts_of
from corpus.sources.shards import Row, Shards
from corpus.sources.template import TextConfig, write

MAX_PAGES = 30  # of one article; larger numbers are its own
MAX_WAITING, MAX_WAITING_BYTES = 256, 16 << 20  # the article that has waited longest is written beyond these
_PAGE_NUMBER = re.compile(r"[_-](\d{1,3})(?=\.\w{3,5}$)|[?&](?:page|p|pn)=(\d{1,3})$")


class Document(NamedTuple):
    """The columns of a document, its place in the input, and the lines and characters that each rule of extraction
    removed from its pages."""

    identity: bytes
    source: str
    row: Row
    place: str
    removed: dict[str, tuple[int, int]]

    def with_page(self, page: Document) -> Document:
        """This document with the text of its next page."""
        removed = dict(self.removed)
        for rule, (lines, characters) in page.removed.items():
            before = removed.get(rule, (0, 0))
            removed[rule] = before[0] + lines, before[1] + characters
        return self._replace(row={**self.row, "text": self.row["text"] + b"\n" + page.row["text"]}, removed=removed)


class Articles:
    """Documents of one input file on their way to the shards, where the recipe's template is written around them."""

    def __init__(self, shards: Shards, counts: Counts, texts: TextConfig, split_chars: int | None = None) -> None:
        self._shards, self._counts, self._texts, self._split_chars = shards, counts, texts, split_chars
        self._waiting: dict[str, Document] = {}  # by the address of the next page
        self._num_bytes = 0

    def add(self, page: Document, link: str | None = None) -> Document | None:
        """Write a page, or let it wait where it links to its article's next page; returns the article it belongs to."""
        url = page.row["url"]
        article = self._take(url) if url else None
        document = article.with_page(page) if article else page
        next_page = continuation(url, link) if url and link else None
        if next_page is None or next_page in self._waiting:
            self._write(document, next_page)
            return article
        self._waiting[next_page] = document
        self._num_bytes += len(document.row["text"])
        while len(self._waiting) > MAX_WAITING or self._num_bytes > MAX_WAITING_BYTES:
            self._write_oldest()
        return article

    def end(self) -> None:
        """Write what still waits."""
        while self._waiting:
            self._write_oldest()

    def _write_oldest(self) -> None:
        next_page = next(iter(self._waiting))
        if document := self._take(next_page):
            self._write(document, next_page)

    def _take(self, url: str) -> Document | None:
        document = self._waiting.pop(url, None)
        self._num_bytes -= len(document.row["text"]) if document else 0
        return document

    def _write(self, document: Document, next_page: str | None) -> None:
        row = document.row
        if next_page is not None:
            self._counts.note("goes_on")
            meta = {"next_page": next_page, **msgspec.json.decode(row["meta"] or b"{}")}
            row["meta"] = msgspec.json.encode(meta, order="sorted")
        if added := write(self._texts, document.source, row):
            self._counts.note("text.template_documents")
            self._counts.note("text.template_characters", added)
        limit = self._split_chars or len(row["text"])
        parts = list(parts_of(document.identity, row, document.place, limit))
        for number, (identity, part, place) in enumerate(parts):
            self._counts.documents_out += 1
            self._counts.bytes_out += len(part["text"])
            self._shards.add(identity, document.source, part, place, None if number else document.removed)
        if len(parts) > 1:
            self._counts.documents_in += len(parts) - 1  # as of a book whose chapters are documents
            self._counts.note("split_documents")
            self._counts.note("parts", len(parts))


def continuation(url: str, link: str) -> str | None:
    """The address of a link where it is another page of the same article, by the number at the end of its name or
    query.

    >>> continuation("http://a.cn/2023/t1_88.html", "t1_88_2.html"), continuation("http://a.cn/t?id=7", "?id=7&page=2")
    ('http://a.cn/2023/t1_88_2.html', 'http://a.cn/t?id=7&page=2')
    >>> continuation("http://a.cn/2023/t1_88.html", "t1_89.html") is None
    True
    >>> continuation("http://a.cn/t1.html", "javascript:go(2)") is None
    True
    """
    try:
        following = urljoin(url, link)
    except ValueError:  # no address
        return None
    (stem, number), (next_stem, next_number) = (_without_number(one.partition("#")[0]) for one in (url, following))
    expected = (number if next_stem == stem else 1) + 1
    return following if next_stem in (stem, url) and next_number == expected <= MAX_PAGES else None


def _without_number(url: str) -> tuple[str, int]:
    """An address without the number of the page, and that number, 1 where there is none."""
    found = _PAGE_NUMBER.search(url)
    return (url[: found.start()] + url[found.end() :], int(found[1] or found[2])) if found else (url, 1)

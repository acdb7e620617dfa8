"""Our own extraction, put together: read the page, find the article's lines, and what the page says about itself."""

from __future__ import annotations

import numpy as np

from corpus.extract import facts, lines, reader, tables
from corpus.extract.config import Page

MAX_LINES_ABOVE = 12  # of the article, where date and author may stand
MAX_LINES_BELOW = 10
MIN_OWN_LETTERS = 50  # a page with fewer, and more than so many times as many skipped, is read again without names
SKIPPED_RATIO = 5  # a page with none at all: where MIN_OWN_LETTERS are skipped
MIN_FORM_RATIO = 0.5  # share of the letters from which on a form is the page (ASP.NET), not a part of it
HEADLINE_BYTES = 20_000  # of the page's text, in which the headline is looked for
MIN_HEADLINE_CHARS = 4

_NO_BYTES = np.empty(0, np.uint8)


def extract_article(page: bytes) -> Page:
    """The article of a page in UTF-8."""
    found = tables.tables(lines.START_CHARACTERS, lines.INSIDE_CHARACTERS, lines.BYLINE_CHARACTERS)
    data = np.frombuffer(page, np.uint8)
    num_bytes = len(data)
    out = np.empty(2 * num_bytes + 64, np.uint8)
    rows = np.empty((num_bytes + 2, reader.LINE_COLUMNS), np.int32)
    containers = np.empty((reader.MAX_CONTAINERS, 4), np.int32)
    info = np.zeros(reader.INFO_COLUMNS, np.int64)
    is_xml = page.startswith(b"<?xml")
    reader.read_page(data, *found, True, is_xml, out, rows, containers, info)
    own, skipped = int(info[reader.OWN_LETTERS]), int(info[reader.SKIPPED_LETTERS])
    enough = SKIPPED_RATIO * max(own, MIN_OWN_LETTERS) if own else MIN_OWN_LETTERS
    if own < MIN_OWN_LETTERS and skipped > enough:
        reader.read_page(data, *found, False, is_xml, out, rows, containers, info)
    num_lines, own = int(info[reader.NUM_LINES]), int(info[reader.OWN_LETTERS])
    rows = rows[:num_lines]
    text = out.data

    head = facts.head_facts(page, int(info[reader.FIRST_TEXT]))
    text_bytes = int(rows[-1, reader.LINE_END]) + 1 if num_lines else 0
    title = head.title or _title(page, text, text_bytes, info)
    ranges = lines.article_ranges(containers, info)
    verdicts = np.zeros(num_lines, np.uint8)
    lines.judge(text, rows, ranges[0][0], ranges[-1][1], verdicts)
    result = np.empty(len(out), np.uint8)
    size = lines.join_article(
        out,
        rows,
        verdicts,
        np.array(ranges, np.int64),
        np.frombuffer(title.encode(), np.uint8) if title else _NO_BYTES,
        int(info[reader.FORM_LETTERS]) < MIN_FORM_RATIO * own,
        result,
    )
    date, author = head.date or facts.later_date(page), head.author or facts.later_author(page)
    if not (date and author):
        near_date, near_author = _near(text, rows, ranges[0][0])
        date, author = date or near_date, author or near_author
    return Page(title, date, str(result.data[:size], "utf-8"), author)


def _title(page: bytes, text: memoryview, num_bytes: int, info: tables.Array) -> str | None:
    tag = heading = ""
    start, end = info[reader.TITLE_START : reader.TITLE_END + 1].tolist()
    if start >= 0:
        tag = facts.plain(page[start : min(end, start + 4 * facts.MAX_TITLE_CHARS)])
    start, end = info[reader.HEADING_START : reader.HEADING_END + 1].tolist()
    if start >= 0:
        heading = " ".join(str(text[start : max(start, end)], "utf-8").split())
    if not heading and (part := facts.headline_in(tag)) != tag and len(part) >= MIN_HEADLINE_CHARS:
        if b"\n" + part.encode() + b"\n" in b"\n" + bytes(text[: min(num_bytes, HEADLINE_BYTES)]):
            heading = part  # a line says just that
    return facts.title_of(tag, heading)


def _near(text: memoryview, rows: tables.Array, first: int) -> tuple[str | None, str | None]:
    """Date and author from the short lines around the article's beginning."""
    date = author = None
    start = max(0, first - MAX_LINES_ABOVE)
    wanted = reader.HAS_YEAR | reader.HAS_BYLINE
    for row in rows[start : first + MAX_LINES_BELOW].tolist():
        flags = row[reader.LINE_FLAGS]
        if not flags & wanted or flags & reader.IS_PRE or row[reader.LINE_CHARS] > 2 * reader.MAX_START_CHARS:
            continue
        line = str(text[row[reader.LINE_START] : row[reader.LINE_END]], "utf-8")
        if date is None and flags & reader.HAS_YEAR and facts.is_dated(line):
            date = facts.iso_date(line)
        if author is None:
            author = facts.byline(line)
    return date, author

"""Our own extraction, put together: read the page, find the article's lines, and what the page says about itself."""

from __future__ import annotations

import numpy as np

from corpus.extract import facts, lines, reader, tables
from corpus.extract.config import Page

MAX_LINES_ABOVE = 12  # of the article, where date and author may stand
MAX_LINES_BELOW = 10
MAX_BYLINE_CHARS = 16  # of a line that need not have one of BYLINE_CHARACTERS
MAX_BYLINES = 100
MIN_OWN_LETTERS = 50  # a page with fewer, and more than so many times as many skipped, is read again without names
SKIPPED_RATIO = 5  # a page with none at all: where MIN_OWN_LETTERS are skipped
MIN_FORM_RATIO = 0.5  # share of the letters from which on a form is the page (ASP.NET), not a part of it

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

    metas = facts.head_metas(page)
    title, place = facts.headline(page, metas)
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
    near = facts.near_headline(page, place)
    shown = _bylines(text, rows, ranges[0][0], ranges[-1][1])
    date, author = facts.publication_day(page, metas, near, shown), facts.author_of(page, metas, near, shown)
    return Page(title, date, str(result.data[:size], "utf-8"), author)


def _bylines(text: memoryview, rows: tables.Array, first: int, last: int) -> list[str]:
    """The lines from a little above the article to a little below it in which date and author may stand."""
    around = rows[max(0, first - MAX_LINES_ABOVE) : last + MAX_LINES_BELOW]
    flags, chars = around[:, reader.LINE_FLAGS], around[:, reader.LINE_CHARS]
    chosen = ((flags & reader.HAS_BYLINE) != 0) | ((chars <= MAX_BYLINE_CHARS) & (around[:, reader.LINE_LINKS] == 0))
    ends = np.minimum(np.arange(len(around)), np.arange(len(around))[::-1]) < MAX_LINES_ABOVE + MAX_LINES_BELOW
    chosen |= ends & ((flags & reader.HAS_YEAR) != 0)
    columns = around[chosen & ((flags & reader.IS_PRE) == 0)][:MAX_BYLINES, : reader.LINE_END + 1].tolist()
    return [str(text[start:end], "utf-8") for start, end in columns]

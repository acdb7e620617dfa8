"""Our own extraction, put together: read the page, find the article's lines, and what the page says about itself."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from corpus.extract import features, lines, metadata, reader, tables
from corpus.extract.config import Article
from corpus.extract.embedded import article_html
from corpus.extract.formulas import with_tex
from corpus.extract.model import BLOCK, LineModel, line_model
from corpus.extract.rows import fold_rows
from corpus.extract.words import KINDS, WORDS
from corpus.kernels.automaton import Automaton

MAX_LINES_ABOVE, MAX_LINES_BELOW = 12, 10  # the article, where date and author may stand
MAX_BYLINE_CHARS = 16  # of a line that need not have one of BYLINE_CHARACTERS
MAX_BYLINES = 100
MIN_OWN_LETTERS = 50  # a page with fewer, and more than so many times as many hidden, is read again with what is hidden
SKIPPED_RATIO = 5  # a page with none at all: where MIN_OWN_LETTERS are hidden
MIN_SHOWN_CHARS = 100  # of an article; where fewer would stay, scripts are looked into
MAX_TITLE_LINES = 400  # among which the title is looked for
MIN_TITLE_BYTES = 9


class Reading(NamedTuple):
    """A page as lines: text, lines and the elements around them (reader.py), and what was counted on the way."""

    out: tables.Array
    lines: tables.Array
    nodes: tables.Array
    info: tables.Array


class Judged(NamedTuple):
    """Of each line: the log-odds that it is of the article, and the rule that it goes by (lines.RULES; 0 stays)."""

    scores: tables.Array
    rules: tables.Array


class Chosen(NamedTuple):
    """The lines that the article is taken from, what went by each rule, and the lines in which date and author may
    stand."""

    reading: Reading
    judged: Judged
    removed: dict[str, tuple[int, int]]
    num_read: int
    bylines: list[str]
    next_page: str | None


def extract_article(page: bytes, table_form: str = "tabs") -> Article:
    """The article of a page in UTF-8; where the page shows little, the one that a script of it holds.

    `table_form` is tabs, markdown or drop (ExtractConfig.tables).
    """
    metas = metadata.head_metas(page)
    title, place = metadata.headline(page, metas)
    reading, (_, rules), removed, num_read, bylines, next_page = choose_lines(page, title, table_form)
    result = np.empty(len(reading.out), np.uint8)
    size = lines.join(reading.out, reading.lines, rules, result)
    text = bytes(result.data[:size])
    if table_form == "markdown":
        text = _with_markdown(text, reading, rules)
    near = metadata.near_headline(page, place)
    date, author = metadata.publication_day(page, metas, near, bylines), metadata.author_of(page, metas, near, bylines)
    return Article(title, date, author, text, num_read, removed, next_page)


def choose_lines(page: bytes, title: str | None, table_form: str = "tabs") -> Chosen:
    """The lines of a page, or of the article in one of its scripts, and which of them stay."""
    reading = read(with_tex(page))
    judged = judge(reading, title)
    if table_form == "drop":
        judged.rules[(judged.rules == lines.KEPT) & _is_table(reading)] = lines.TABLES
    text = bytes(reading.out.data[: int(reading.lines[-1, reader.LINE_END]) if len(reading.lines) else 0])
    next_page = metadata.next_page(page) if any(word in text for word in metadata.NEXT_PAGE) else None
    bylines = _bylines(reading, judged.rules)
    removed, num_read = account(reading, judged.rules)
    kept = num_read - num_removed(removed)
    if kept < MIN_SHOWN_CHARS and (held := article_html(page)) is not None:
        inner = read(with_tex(held))
        stay = Judged(np.zeros(len(inner.lines), np.float32), np.zeros(len(inner.lines), np.uint8))
        inner_removed, inner_read = account(inner, stay.rules)
        if inner_read - num_removed(inner_removed) > kept:
            removed["replaced"] = (int((judged.rules == 0).sum()), kept)
            for rule, (count, characters) in inner_removed.items():
                before = removed.get(rule, (0, 0))
                removed[rule] = (before[0] + count, before[1] + characters)
            reading, judged, num_read = inner, stay, num_read + inner_read
    return Chosen(reading, judged, removed, num_read, bylines, next_page)


def read(page: bytes) -> Reading:
    """The lines of a page in UTF-8, rows of tables folded."""
    found = tables.tables(lines.START_CHARACTERS, lines.INSIDE_CHARACTERS, lines.BYLINE_CHARACTERS)
    data = np.frombuffer(page, np.uint8)
    num_out, num_rows, num_nodes, spanned = sizes(page)
    out = np.empty(num_out, np.uint8)
    rows = np.empty((num_rows, reader.LINE_COLUMNS), np.int32)
    nodes = np.empty((num_nodes, reader.NODE_COLUMNS), np.int64)
    info = np.zeros(reader.INFO_COLUMNS, np.int64)
    for shows_hidden in (False, True):
        reader.read_page(data, *found, not shows_hidden, page.startswith(b"<?xml"), out, rows, nodes, info, spanned)
        own, skipped = int(info[reader.OWN_LETTERS]), int(info[reader.SKIPPED_LETTERS])
        enough = SKIPPED_RATIO * max(own, MIN_OWN_LETTERS) if own else MIN_OWN_LETTERS
        if own >= MIN_OWN_LETTERS or skipped <= enough:
            break
    rows, nodes = rows[: info[reader.NUM_LINES]], nodes[: info[reader.NUM_NODES]]
    return Reading(out, rows[: fold_rows(out, rows, nodes)], nodes, info)


def sizes(page: bytes) -> tuple[int, int, int, int]:
    """Of the reader's buffers for a page: bytes, lines, nodes, and empty cells for what cells span."""
    data = np.frombuffer(page, np.uint8)
    num_tags = int(np.count_nonzero(data == ord("<")))  # a page has many: faster than bytes.count
    spanned = min(reader.MAX_SPAN * num_tags, reader.MAX_SPANNED)  # memory that is not touched costs nothing
    num_rows = 2 * num_tags + int(np.count_nonzero(data == ord("\n"))) + 2 + spanned
    return 2 * len(page) + 64 + 2 * num_tags + spanned, num_rows, num_tags + 1, spanned


def judge(reading: Reading, title: str | None, model: LineModel | None = None, x: tables.Array | None = None) -> Judged:
    """Score and choose the lines; `x`, float32[rows, features.NUM_FEATURES], is filled where it is given (describe)."""
    out, rows, nodes, _ = reading
    num_lines = len(rows)
    verdicts = np.zeros(num_lines, np.uint8)
    covered = np.zeros((num_lines, features.NUM_KINDS), np.int32)
    scores, rules = np.zeros(num_lines, np.float32), np.zeros(num_lines, np.uint8)
    if num_lines:
        lines.judge(out.data, rows, verdicts)
        words, kinds = _words()
        end = int(rows[-1, reader.LINE_END])
        hits = words.find(np.array([0, end]), out[:end])
        features.cover(rows, hits.starts, hits.ends, kinds[hits.words], covered)
        if x is None:
            x = np.empty((BLOCK, features.NUM_FEATURES), np.float32)
        at = _title_line(reading, title)
        features.describe(out, rows, nodes, verdicts, covered, at, model or line_model(), x, scores)
        lines.choose(rows, nodes, verdicts, covered, at, scores, rules)
    return Judged(scores, rules)


def account(reading: Reading, rules: tables.Array) -> tuple[dict[str, tuple[int, int]], int]:
    """Lines and characters that went by each rule, and how many characters the page has.

    Those of its lines, and what is hidden or a control and stands in none (0 lines).
    """
    num_rules = len(lines.RULES)
    characters = np.bincount(rules, reading.lines[:, reader.LINE_READ], num_rules).astype(np.int64).tolist()
    counts = np.bincount(rules, minlength=num_rules).tolist()
    removed = dict(zip(lines.RULES, zip(counts, characters, strict=True), strict=True))
    del removed["kept"]
    removed["hidden"] = (0, int(reading.info[reader.HIDDEN_CHARS]))
    removed["controls"] = (0, int(reading.info[reader.CONTROL_CHARS]))
    removed = {rule: found for rule, found in removed.items() if any(found)}
    return removed, characters[0] + num_removed(removed)


def num_removed(removed: dict[str, tuple[int, int]]) -> int:
    """Characters that all rules removed."""
    return sum(found[1] for found in removed.values())


def _is_table(reading: Reading) -> tables.Array:
    """bool[lines]: rows of data tables."""
    return np.asarray((reading.lines[:, reader.LINE_FLAGS] & reader.IS_FOLDED) != 0)


def _with_markdown(text: bytes, reading: Reading, rules: tables.Array) -> bytes:
    """The text with its tables as Markdown; the first row is taken for the head."""
    stays = (rules == lines.KEPT) & (reading.lines[:, reader.LINE_READ] > 0)
    nodes = np.where(_is_table(reading), reading.lines[:, reader.LINE_NODE], 0)[stays].tolist()
    found: list[bytes] = []
    place = table = 0
    for line in text.split(b"\n"):
        node = nodes[place] if line else 0
        place += bool(line)
        if node:
            cells = line.replace(b"|", b"\\|").split(b"\t")
            line = b"| " + b" | ".join(cells) + b" |"
        found.append(line)
        if node and node != table:
            found.append(b"|" + b" --- |" * len(cells))
        table = node
    return b"\n".join(found)


@lru_cache(maxsize=1)
def _words() -> tuple[Automaton, tables.Array]:
    kinds = {word: KINDS.index(kind) for kind, words in reversed(WORDS.items()) for word in words.split()}
    return Automaton(list(kinds)), np.array(list(kinds.values()))


def _title_line(reading: Reading, title: str | None) -> int:
    """The first line that says what the title says, or at least two thirds of it; -1 where there is none."""
    wanted = b"".join((title or "").encode().split())
    text = reading.out.data
    bounds = reading.lines[:MAX_TITLE_LINES, : reader.LINE_END + 1]
    num_bytes = bounds[:, 1] - bounds[:, 0]
    for index in ((num_bytes >= MIN_TITLE_BYTES) & (num_bytes <= len(wanted) + 64)).nonzero()[0].tolist():
        line = bytes(text[bounds[index, 0] : bounds[index, 1]]).replace(b" ", b"")
        if (line in wanted and 3 * len(line) >= 2 * len(wanted)) or (line.startswith(wanted) and wanted):
            return index
    return -1


def _bylines(reading: Reading, rules: tables.Array) -> list[str]:
    """The lines from a little above the article to a little below it in which date and author may stand."""
    kept = (rules == 0).nonzero()[0]
    first, last = (int(kept[0]), int(kept[-1]) + 1) if len(kept) else (0, len(rules))
    around = reading.lines[max(0, first - MAX_LINES_ABOVE) : last + MAX_LINES_BELOW]
    flags, chars = around[:, reader.LINE_FLAGS], around[:, reader.LINE_CHARS]
    chosen = ((flags & reader.HAS_BYLINE) != 0) | ((chars <= MAX_BYLINE_CHARS) & (around[:, reader.LINE_LINKS] == 0))
    ends = np.minimum(np.arange(len(around)), np.arange(len(around))[::-1]) < MAX_LINES_ABOVE + MAX_LINES_BELOW
    chosen |= ends & ((flags & reader.HAS_YEAR) != 0)
    columns = around[chosen & ((flags & reader.IS_PRE) == 0)][:MAX_BYLINES, : reader.LINE_END + 1].tolist()
    return [str(reading.out.data[start:end], "utf-8") for start, end in columns]

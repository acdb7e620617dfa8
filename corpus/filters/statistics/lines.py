"""Line shape: what tells sentences from menus. A line is non-empty and counted without the white space around it."""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.kernels import line_kernel as kernel


def _of_lines(batch: Batch, column: int) -> Floats:
    return share(batch.column(column), batch.column(kernel.NUM_LINES))


def _of_characters(batch: Batch, column: int) -> Floats:
    return share(batch.column(column), batch.column(kernel.LINE_CHARS))


@statistic(unit="lines")
def num_lines(batch: Batch) -> Floats:
    """Lines with something other than white space in them.

    >>> from corpus.filters import measure
    >>> measure("lines.num_lines", ["子曰：\\n\\n学而时习之"])
    array([2.])
    """
    return batch.column(kernel.NUM_LINES).astype(np.float64)


@statistic(unit="code points")
def mean_line_chars(batch: Batch) -> Floats:
    """Mean code points of a line. ChineseWebText drops below 10, which is every book of poems.

    >>> from corpus.filters import measure
    >>> measure("lines.mean_line_chars", ["子曰：\\n学而时习之"])
    array([4.])
    """
    return _of_lines(batch, kernel.LINE_CHARS)


@statistic(unit="code points")
def longest_line_chars(batch: Batch) -> Floats:
    """Code points of the longest line.

    >>> from corpus.filters import measure
    >>> measure("lines.longest_line_chars", ["子曰：\\n学而时习之"])
    array([5.])
    """
    return batch.column(kernel.LONGEST_LINE).astype(np.float64)


@statistic(unit="share of lines")
def duplicate_line_ratio(batch: Batch) -> Floats:
    """Lines equal to an earlier line, over all lines. FineWeb-2's cmn_Hani drops above 0.287.

    >>> from corpus.filters import measure
    >>> measure("lines.duplicate_line_ratio", ["首页\\n登录\\n首页\\n首页"])
    array([0.5])
    """
    return _of_lines(batch, kernel.DUPLICATE_LINES)


@statistic(unit="share of characters")
def duplicate_line_char_ratio(batch: Batch) -> Floats:
    """Code points of lines equal to an earlier line, over those of all lines. Gopher drops above 0.2.

    Code repeats its short lines ("}" and "end"), so this judges an article with code where the count cannot.

    >>> from corpus.filters import measure
    >>> measure("lines.duplicate_line_char_ratio", ["学而时习之\\n曰\\n曰"]).round(3)
    array([0.143])
    """
    return _of_characters(batch, kernel.DUPLICATE_LINE_CHARS)


@statistic(unit="share of lines")
def bullet_line_ratio(batch: Batch) -> Floats:
    """Lines that open with a bullet, dash, star or arrow, over all lines. Gopher drops above 0.9.

    >>> from corpus.filters import measure
    >>> measure("lines.bullet_line_ratio", ["• 论语\\n- 孟子\\n大学\\n中庸"])
    array([0.5])
    """
    return _of_lines(batch, kernel.BULLET_LINES)


@statistic(unit="share of lines")
def ellipsis_line_ratio(batch: Batch) -> Floats:
    """Lines that end in an ellipsis (…, ..., 。。。), over all lines: teasers. Gopher drops above 0.3.

    >>> from corpus.filters import measure
    >>> measure("lines.ellipsis_line_ratio", ["学而时习之……\\n不亦说乎？"])
    array([0.5])
    """
    return _of_lines(batch, kernel.ELLIPSIS_LINES)


@statistic(unit="share of lines")
def terminal_line_ratio(batch: Batch) -> Floats:
    """Lines that end in 。！？…；：!?.;: (closing quotes and brackets may follow), over all lines.

    FineWeb-2's cmn_Hani keeps from 0.106.

    >>> from corpus.filters import measure
    >>> measure("lines.terminal_line_ratio", ["子曰：“学而时习之。”\\n首页"])
    array([0.5])
    """
    return _of_lines(batch, kernel.TERMINAL_LINES)


@statistic(unit="share of characters")
def terminal_char_ratio(batch: Batch) -> Floats:
    """Code points of lines that end like a sentence, over those of all lines: how much of a page is prose.

    >>> from corpus.filters import measure
    >>> measure("lines.terminal_char_ratio", ["学而时习之，不亦说乎？\\n首页"]).round(3)
    array([0.846])
    """
    return _of_characters(batch, kernel.TERMINAL_LINE_CHARS)


@statistic(unit="share of lines")
def short_line_ratio(batch: Batch) -> Floats:
    """Lines of fewer than 10 code points, over all lines. Menus are made of them; so are poems.

    >>> from corpus.filters import measure
    >>> measure("lines.short_line_ratio", ["首页\\n登录\\n学而时习之，不亦说乎？"]).round(3)
    array([0.667])
    """
    return _of_lines(batch, kernel.SHORT_LINES)


@statistic(unit="share of characters")
def short_line_char_ratio(batch: Batch) -> Floats:
    """Code points of lines of fewer than 10, over those of all lines.

    >>> from corpus.filters import measure
    >>> measure("lines.short_line_char_ratio", ["首页\\n登录\\n学而时习之，不亦说乎？"]).round(3)
    array([0.267])
    """
    return _of_characters(batch, kernel.SHORT_LINE_CHARS)


@statistic(unit="share of characters")
def label_char_ratio(batch: Batch) -> Floats:
    """Code points of lines of fewer than 30 that end in a Han character, over those of all lines: menus, headlines.

    Verse has short lines too, but ends them in ，。！？, and the short lines of code end in Latin letters or brackets.

    >>> from corpus.filters import measure
    >>> measure("lines.label_char_ratio", ["首页\\n登录\\n床前明月光，\\n疑是地上霜。"]).round(3)
    array([0.25])
    """
    return _of_characters(batch, kernel.LABEL_LINE_CHARS)


@statistic(unit="share of lines")
def counting_line_ratio(batch: Batch) -> Floats:
    """Entries that differ from the line before in digits only, over all lines: chapter lists, calendars, printed
    tables.

    An entry is a line of fewer than 100 code points that holds a digit and does not end like a sentence.

    >>> from corpus.filters import measure
    >>> measure("lines.counting_line_ratio", ["第1章\\n第2章\\n第10章\\n学而时习之"])
    array([0.5])
    """
    return _of_lines(batch, kernel.COUNTED_LINES)


@statistic(unit="share of lines")
def like_line_ratio(batch: Batch) -> Floats:
    """Entries (as above) that have the shape of the line before, over all lines: dated headlines, prices, downloads.

    A shape is the line with each run of Han, of Latin letters and of digits as one sign. Lines without a digit do not
    count: every couplet has the shape of the one before. Good pages have 0.00 to 0.26, articles with tables up to 0.34.

    >>> from corpus.filters import measure
    >>> measure("lines.like_line_ratio", ["论语 12元\\n大学章句 8元\\n床前明月光，\\n疑是地上霜。"])
    array([0.25])
    """
    return _of_lines(batch, kernel.LIKE_LINES)


@statistic(unit="code points")
def mean_sentence_chars(batch: Batch) -> Floats:
    """Code points of lines over sentences, which end at 。！？!?…｡ or with their line. Prose has 15 to 90, verse 8 to 20.

    >>> from corpus.filters import measure
    >>> measure("lines.mean_sentence_chars", ["学而时习之。不亦说乎？\\n子曰"]).round(2)
    array([4.33])
    """
    return share(batch.column(kernel.LINE_CHARS), batch.column(kernel.NUM_SENTENCES))

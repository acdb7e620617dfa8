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
def stop_line_ratio(batch: Batch) -> Floats:
    """Lines whose very last character is one of 。！？!?.｡, over all lines: FineWeb's rule, to the letter.

    FineWeb-2's cmn_Hani keeps from 0.106.

    >>> from corpus.filters import measure
    >>> measure("lines.stop_line_ratio", ["子曰：“学而时习之。”\\n不亦说乎？"])
    array([0.5])
    """
    return _of_lines(batch, kernel.STOP_LINES)


@statistic(unit="share of characters")
def terminal_char_ratio(batch: Batch) -> Floats:
    """Code points of lines that end like a sentence, over those of all lines: how much of a page is prose.

    >>> from corpus.filters import measure
    >>> measure("lines.terminal_char_ratio", ["学而时习之，不亦说乎？\\n首页"]).round(3)
    array([0.846])
    """
    return _of_characters(batch, kernel.TERMINAL_LINE_CHARS)


@statistic(unit="share of characters")
def label_char_ratio(batch: Batch) -> Floats:
    """Code points of labels, over those of all lines: menus, headlines.

    A label is a line of fewer than 30 that ends in a Han character, holds no Chinese mark, is a third Han or more, and
    is no item of a list, row of a table, code or formula. Verse without marks has such lines, too.

    >>> from corpus.filters import measure
    >>> measure("lines.label_char_ratio", ["首页\\n登录\\n床前明月光，\\n疑是地上霜。"]).round(3)
    array([0.25])
    """
    return _of_characters(batch, kernel.LABEL_LINE_CHARS)


@statistic(unit="share of lines")
def like_line_ratio(batch: Batch) -> Floats:
    """Entries that have the shape of the line before, over all lines: dated headlines, prices, downloads.

    An entry is a line of fewer than 100 code points that holds a digit and does not end like a sentence. A shape is
    the line with each run of Han, of Latin letters and of digits as one sign. Lines without a digit do not count: every
    couplet has the shape of the one before. Good pages have 0.00 to 0.26, articles with tables up to 0.34.

    >>> from corpus.filters import measure
    >>> measure("lines.like_line_ratio", ["论语 12元\\n大学章句 8元\\n床前明月光，\\n疑是地上霜。"])
    array([0.25])
    """
    return _of_lines(batch, kernel.LIKE_LINES)

"""Line shape: what tells sentences from menus. A line is non-empty and counted without the white space around it."""

from __future__ import annotations

import numpy as np

from corpus.filters import kernels
from corpus.filters.statistic import Batch, Floats, share, statistic


def _of_lines(batch: Batch, column: int) -> Floats:
    return share(batch.column(column), batch.column(kernels.NUM_LINES))


def _of_characters(batch: Batch, column: int) -> Floats:
    return share(batch.column(column), batch.column(kernels.LINE_CHARS))


@statistic(unit="lines")
def num_lines(batch: Batch) -> Floats:
    """Lines with something other than white space in them.

    >>> from corpus.filters import measure
    >>> measure("lines.num_lines", ["子曰：\\n\\n学而时习之"])
    array([2.])
    """
    return batch.column(kernels.NUM_LINES).astype(np.float64)


@statistic(unit="code points")
def mean_line_chars(batch: Batch) -> Floats:
    """Mean code points of a line. ChineseWebText drops below 10, which is every book of poems.

    >>> from corpus.filters import measure
    >>> measure("lines.mean_line_chars", ["子曰：\\n学而时习之"])
    array([4.])
    """
    return _of_lines(batch, kernels.LINE_CHARS)


@statistic(unit="code points")
def longest_line_chars(batch: Batch) -> Floats:
    """Code points of the longest line.

    >>> from corpus.filters import measure
    >>> measure("lines.longest_line_chars", ["子曰：\\n学而时习之"])
    array([5.])
    """
    return batch.column(kernels.LONGEST_LINE).astype(np.float64)


@statistic(unit="share of lines")
def duplicate_line_ratio(batch: Batch) -> Floats:
    """Lines equal to an earlier line, over all lines. FineWeb-2's cmn_Hani drops above 0.287.

    >>> from corpus.filters import measure
    >>> measure("lines.duplicate_line_ratio", ["首页\\n登录\\n首页\\n首页"])
    array([0.5])
    """
    return _of_lines(batch, kernels.DUPLICATE_LINES)


@statistic(unit="share of characters")
def duplicate_line_char_ratio(batch: Batch) -> Floats:
    """Code points of lines equal to an earlier line, over those of all lines. Gopher drops above 0.2.

    Code repeats its short lines ("}" and "end"), so this judges an article with code where the count cannot.

    >>> from corpus.filters import measure
    >>> measure("lines.duplicate_line_char_ratio", ["学而时习之\\n曰\\n曰"]).round(3)
    array([0.143])
    """
    return _of_characters(batch, kernels.DUPLICATE_LINE_CHARS)


@statistic(unit="share of lines")
def bullet_line_ratio(batch: Batch) -> Floats:
    """Lines that open with a bullet, dash, star or arrow, over all lines. Gopher drops above 0.9.

    >>> from corpus.filters import measure
    >>> measure("lines.bullet_line_ratio", ["• 论语\\n- 孟子\\n大学\\n中庸"])
    array([0.5])
    """
    return _of_lines(batch, kernels.BULLET_LINES)


@statistic(unit="share of lines")
def ellipsis_line_ratio(batch: Batch) -> Floats:
    """Lines that end in an ellipsis (…, ..., 。。。), over all lines: teasers. Gopher drops above 0.3.

    >>> from corpus.filters import measure
    >>> measure("lines.ellipsis_line_ratio", ["学而时习之……\\n不亦说乎？"])
    array([0.5])
    """
    return _of_lines(batch, kernels.ELLIPSIS_LINES)


@statistic(unit="share of lines")
def terminal_line_ratio(batch: Batch) -> Floats:
    """Lines that end in 。！？…；：!?.;: (closing quotes and brackets may follow), over all lines.

    FineWeb-2's cmn_Hani keeps from 0.106.

    >>> from corpus.filters import measure
    >>> measure("lines.terminal_line_ratio", ["子曰：“学而时习之。”\\n首页"])
    array([0.5])
    """
    return _of_lines(batch, kernels.TERMINAL_LINES)


@statistic(unit="share of characters")
def terminal_char_ratio(batch: Batch) -> Floats:
    """Code points of lines that end like a sentence, over those of all lines: how much of a page is prose.

    >>> from corpus.filters import measure
    >>> measure("lines.terminal_char_ratio", ["学而时习之，不亦说乎？\\n首页"]).round(3)
    array([0.846])
    """
    return _of_characters(batch, kernels.TERMINAL_LINE_CHARS)


@statistic(unit="share of lines")
def short_line_ratio(batch: Batch) -> Floats:
    """Lines of fewer than 10 code points, over all lines. Menus are made of them; so are poems.

    >>> from corpus.filters import measure
    >>> measure("lines.short_line_ratio", ["首页\\n登录\\n学而时习之，不亦说乎？"]).round(3)
    array([0.667])
    """
    return _of_lines(batch, kernels.SHORT_LINES)


@statistic(unit="share of characters")
def short_line_char_ratio(batch: Batch) -> Floats:
    """Code points of lines of fewer than 10, over those of all lines.

    >>> from corpus.filters import measure
    >>> measure("lines.short_line_char_ratio", ["首页\\n登录\\n学而时习之，不亦说乎？"]).round(3)
    array([0.267])
    """
    return _of_characters(batch, kernels.SHORT_LINE_CHARS)


@statistic(unit="share of characters")
def label_char_ratio(batch: Batch) -> Floats:
    """Code points of lines of fewer than 30 that end in a Han character, over those of all lines: menus, headlines.

    Verse has short lines too, but ends them in ，。！？, and the short lines of code end in Latin letters or brackets.

    >>> from corpus.filters import measure
    >>> measure("lines.label_char_ratio", ["首页\\n登录\\n床前明月光，\\n疑是地上霜。"]).round(3)
    array([0.25])
    """
    return _of_characters(batch, kernels.LABEL_LINE_CHARS)

"""Composition: shares of character classes, counted in one pass over the bytes of a batch."""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.filters.statistics.length import HAN_CLASSES
from corpus.kernels import tables
from corpus.kernels.line_kernel import ISOLATED_LATIN, MOJIBAKE_CHARS, SENTENCE_ENDS, STRAY_MARKS

HABIT_CHARS = 500  # slips are shared out over at least this much text: one in a short document is no habit


def _ratio(batch: Batch, *classes: int) -> Floats:
    return share(batch.column(*classes), batch.num_chars)


@statistic(unit="share of code points")
def han_ratio(batch: Batch) -> Floats:
    """Han characters of all blocks (URO, extensions A-I, compatibility) over all code points.

    ChineseWebText keeps from 0.30, FlagData and others from 0.4: both drop articles with code.

    >>> from corpus.filters import measure
    >>> measure("characters.han_ratio", ["学而时习之 abc"])
    array([0.55555556])
    """
    return _ratio(batch, *HAN_CLASSES)


@statistic(unit="share of Han characters")
def rare_han_ratio(batch: Batch) -> Floats:
    """Han outside level 1 of GB 2312 and its Traditional forms, over all Han: UTF-8 read as GBK is mostly such.

    Running text has 0.00 to 0.05, literary Chinese up to 0.15, mojibake above 0.4.

    >>> from corpus.filters import measure
    >>> measure("characters.rare_han_ratio", ["学而时习之", "瀛﹁\u20ac屾椂涔犱箣"]).round(2)
    array([0., 1.])
    """
    return share(batch.column(tables.HAN_RARE, tables.HAN_EXTENSION), batch.column(*HAN_CLASSES))


@statistic(unit="share of Han characters")
def han_extension_ratio(batch: Batch) -> Floats:
    """Han outside U+4E00 to U+9FFF (radicals, 々〇, compatibility ideographs, extensions A to I), over all Han.

    Running text has 0.000 to 0.002; lists of rare characters, fonts with wrong tables and decoys have more.

    >>> from corpus.filters import measure
    >>> measure("characters.han_extension_ratio", ["𠮷野家"]).round(3)
    array([0.333])
    """
    return share(batch.column(tables.HAN_EXTENSION), batch.column(*HAN_CLASSES))


@statistic(unit="share of code points")
def latin_ratio(batch: Batch) -> Floats:
    """Letters of the Latin script, accented and full-width ones too, over all code points.

    >>> from corpus.filters import measure
    >>> measure("characters.latin_ratio", ["用Ｐy写的"])
    array([0.4])
    """
    return _ratio(batch, tables.LATIN)


@statistic(unit="share of code points")
def digit_ratio(batch: Batch) -> Floats:
    """Decimal digits of all scripts over all code points. MAP-CC drops above 0.3 of what is not punctuation.

    >>> from corpus.filters import measure
    >>> measure("characters.digit_ratio", ["公元前551年"]).round(3)
    array([0.429])
    """
    return _ratio(batch, tables.DIGIT)


@statistic(unit="share of code points")
def ascii_punctuation_ratio(batch: Batch) -> Floats:
    """The 32 ASCII punctuation marks and symbols over all code points: markup, code, tables.

    >>> from corpus.filters import measure
    >>> measure("characters.ascii_punctuation_ratio", ["<p>子曰</p>"]).round(3)
    array([0.556])
    """
    return _ratio(batch, tables.ASCII_PUNCTUATION)


@statistic(unit="share of code points")
def wide_punctuation_ratio(batch: Batch) -> Floats:
    """Punctuation outside ASCII over all code points: Chinese text has 0.10 to 0.18, lists of words have none.

    >>> from corpus.filters import measure
    >>> measure("characters.wide_punctuation_ratio", ["学而时习之，不亦说乎？"]).round(3)
    array([0.182])
    """
    return _ratio(batch, tables.WIDE_PUNCTUATION)


@statistic(unit="share of code points")
def punctuation_ratio(batch: Batch) -> Floats:
    """All punctuation, ASCII or not, over all code points. MAP-CC drops documents without any.

    >>> from corpus.filters import measure
    >>> measure("characters.punctuation_ratio", ["学而时习之，不亦说乎?"]).round(3)
    array([0.182])
    """
    return _ratio(batch, tables.ASCII_PUNCTUATION, tables.WIDE_PUNCTUATION)


@statistic(unit="share of code points")
def sentence_end_ratio(batch: Batch) -> Floats:
    """Sentences that a mark of 。！？!?…｡ ends, over all code points; marks in a row end one sentence.

    Prose has 0.005 to 0.045. `lines.mean_sentence_chars` is near its inverse, where every sentence is ended.

    >>> from corpus.filters import measure
    >>> measure("characters.sentence_end_ratio", ["学而时习之，不亦说乎？！！"]).round(3)
    array([0.077])
    """
    return _ratio(batch, SENTENCE_ENDS)


@statistic(unit="share of code points")
def symbol_ratio(batch: Batch) -> Floats:
    """Symbols outside ASCII (arrows, boxes, emoji, currency, circled numbers) over all code points.

    >>> from corpus.filters import measure
    >>> measure("characters.symbol_ratio", ["★★子曰"])
    array([0.5])
    """
    return _ratio(batch, tables.SYMBOL)


@statistic(unit="share of code points")
def whitespace_ratio(batch: Batch) -> Floats:
    """Spaces, tabs and line feeds over all code points. Stuffed keywords are a third spaces; so is indented code.

    >>> from corpus.filters import measure
    >>> measure("characters.whitespace_ratio", ["论语 孟子\\n"]).round(3)
    array([0.333])
    """
    return _ratio(batch, tables.WHITESPACE, tables.NEWLINE)


@statistic(unit="share of code points")
def other_ratio(batch: Batch) -> Floats:
    """Letters of other scripts, marks and unassigned code points over all code points.

    >>> from corpus.filters import measure
    >>> measure("characters.other_ratio", ["да子曰"])
    array([0.5])
    """
    return _ratio(batch, tables.OTHER, tables.CONTROL)


@statistic(unit="share of code points")
def control_ratio(batch: Batch) -> Floats:
    """Control and invisible format characters over all code points, of what normalisation leaves of them.

    >>> from corpus.filters import measure
    >>> measure("characters.control_ratio", ["子\\u200b曰"]).round(3)
    array([0.333])
    """
    return _ratio(batch, tables.CONTROL)


@statistic(unit="share of code points")
def private_use_ratio(batch: Batch) -> Floats:
    """Private-use characters over all code points: icons, and fonts that hide what a page says from a reader of code.

    >>> from corpus.filters import measure
    >>> measure("characters.private_use_ratio", ["子曰\\ue000\\ufffd"])
    array([0.25])
    """
    return _ratio(batch, tables.PRIVATE_USE)


@statistic(unit="share of code points")
def mojibake_ratio(batch: Batch) -> Floats:
    """Code points of sequences that only a wrong decoder writes, over all code points.

    锟斤拷 (U+FFFD read as GBK), 烫烫烫 and 屯屯屯 (unwritten memory), 锛 銆 鈥 and the character after (，。“ in UTF-8,
    read as GBK), and four or more letters À to ÿ in a row (GBK, or UTF-8, read as Latin-1). Where a whole document was
    misread other statistics tell too; this one also sees a comment or a table that was.

    >>> from corpus.filters import measure
    >>> measure("characters.mojibake_ratio", ["瀛﹁€屾椂涔犱箣锛屼笉浜﹁", "ÖÐÎÄ锟斤拷", "café"]).round(3)
    array([0.154, 1.   , 0.   ])
    """
    return _ratio(batch, MOJIBAKE_CHARS)


@statistic(unit="share of code points")
def unreadable_ratio(batch: Batch) -> Floats:
    """U+FFFD and private-use characters over all code points: what a decoder or a font could not read.

    >>> from corpus.filters import measure
    >>> measure("characters.unreadable_ratio", ["子曰\\ufffd\\ue000"])
    array([0.5])
    """
    return _ratio(batch, tables.REPLACEMENT, tables.PRIVATE_USE)


@statistic(unit="share of code points")
def stray_mark_ratio(batch: Batch) -> Floats:
    """，。、；： that follow one another or open a line, over all code points (at least 500).

    Shuffled text has 0.003 to 0.013, edited text 0.000.

    >>> from corpus.filters import measure
    >>> measure("characters.stray_mark_ratio", ["学而时，。习之，：" * 100, "学而时习之，，不亦说乎？"]).round(3)
    array([0.222, 0.002])
    """
    return share(batch.column(STRAY_MARKS), np.maximum(batch.num_chars, HABIT_CHARS))


@statistic(unit="share of code points")
def isolated_latin_ratio(batch: Batch) -> Floats:
    """Single Latin letters directly between two Han characters over all code points (at least 500).

    Words torn apart: shuffled articles have 0.03 to 0.12, a page about 维生素C or column B of a table below 0.02.

    >>> from corpus.filters import measure
    >>> measure("characters.isolated_latin_ratio", ["维生素C的" * 100, "补充维生素C的人"]).round(3)
    array([0.2  , 0.002])
    """
    return share(batch.column(ISOLATED_LATIN), np.maximum(batch.num_chars, HABIT_CHARS))

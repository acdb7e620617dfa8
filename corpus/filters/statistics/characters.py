"""Composition: shares of character classes, counted in one pass over the bytes of a batch."""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.filters.statistics.length import HAN_CLASSES
from corpus.kernels import tables
from corpus.kernels.block_kernel import CODE_CHARS, FORMULA_CHARS, TEXT_HAN
from corpus.kernels.line_kernel import (
    BLOCKS,
    ESCAPED_CHARS,
    FUNCTION_HAN,
    HALF_MARKS,
    ISOLATED_LATIN,
    LINE_CHARS,
    MOJIBAKE_CHARS,
    PINYIN_GLOSSES,
    SENTENCE_ENDS,
    STRAY_MARKS,
)

HABIT_CHARS = 500  # slips are shared out over at least this much text: one in a short document is no habit


def _ratio(batch: Batch, *classes: int) -> Floats:
    return share(batch.column(*classes), batch.num_chars)


@statistic(unit="share of code points")
def han_ratio(batch: Batch) -> Floats:
    """Han characters over code points of lines, of what is neither code nor a formula: is what is said said in Chinese?

    ChineseWebText keeps from 0.30 of the whole, FlagData and others from 0.4: both drop articles with code.

    >>> from corpus.filters import measure
    >>> measure("characters.han_ratio", ["学而时习之 abc", "```\\nprint(1)\\n```\\n学而时习之"]).round(3)
    array([0.556, 1.   ])
    """
    code = batch.column(BLOCKS + CODE_CHARS, BLOCKS + FORMULA_CHARS)
    return share(batch.column(BLOCKS + TEXT_HAN), batch.column(LINE_CHARS) - code)


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


@statistic(unit="marks a Han character")
def punctuation_per_han(batch: Batch) -> Floats:
    """Punctuation outside ASCII, and half-width ,.!?:; that follow Han, over Han characters. Bullets are none.

    Chinese prose has 0.07 to 0.20, also where it stands between code and formulas; lists of words have none.

    >>> from corpus.filters import measure
    >>> measure("characters.punctuation_per_han", ["学而时习之，不亦说乎？", "学而时习之,不亦说乎? print(a, b)"]).round(3)
    array([0.222, 0.222])
    """
    return share(batch.column(tables.WIDE_PUNCTUATION, HALF_MARKS), batch.column(*HAN_CLASSES))


@statistic(unit="share of Han characters")
def function_han_ratio(batch: Batch) -> Floats:
    """Characters of grammar (的 了 我 不 之 而 嘅: `tables.FUNCTION_HAN`) over all Han: sentences, with marks or without.

    Running text has 0.12 to 0.40, verse from 0.05, menus and stuffed keywords 0.04 to 0.11.

    >>> from corpus.filters import measure
    >>> measure("characters.function_han_ratio", ["我的情也真 我的爱也真", "首页 新闻 体育 财经"])
    array([0.6, 0. ])
    """
    return share(batch.column(FUNCTION_HAN), batch.column(*HAN_CLASSES))


@statistic(unit="share of code points")
def sentence_end_ratio(batch: Batch) -> Floats:
    """Sentences that a mark of 。！？!?…｡ ends, over all code points; marks in a row end one sentence.

    Prose has 0.005 to 0.045.

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
    read as GBK), four or more letters À to ÿ in a row (GBK, or UTF-8, read as Latin-1), and such a letter with a sign
    ¡ to ¿ behind it (UTF-8 read as Latin-1, once or twice: Ã¤Â¸). Where a whole document was
    misread other statistics tell too; this one also sees a comment or a table that was.

    >>> from corpus.filters import measure
    >>> measure("characters.mojibake_ratio", ["瀛﹁€屾椂涔犱箣锛屼笉浜﹁", "ÖÐÎÄ锟斤拷", "café"]).round(3)
    array([0.154, 1.   , 0.   ])
    """
    return np.minimum(1.0, _ratio(batch, MOJIBAKE_CHARS))  # 锛 may be the last character


@statistic(unit="share of Han characters")
def pinyin_gloss_ratio(batch: Batch) -> Floats:
    """Lone syllables of pinyin in brackets after the second of two Han (專業(yè)) over all Han (at least 100).

    A bad conversion to Traditional, and sites that hide a copy, put them behind every tenth character or so. A reader
    for children has one behind each character (小(xiǎo)白(bái)兔(tù)), which does not count; an article glosses a name.

    >>> from corpus.filters import measure
    >>> measure("characters.pinyin_gloss_ratio", ["專業(yè)的發(fā)展" * 25, "小(xiǎo)白(bái)兔(tù)" * 40]).round(3)
    array([0.4, 0. ])
    """
    return share(batch.column(PINYIN_GLOSSES), np.maximum(batch.column(*HAN_CLASSES), 100))


@statistic(unit="share of code points")
def escape_ratio(batch: Batch) -> Floats:
    """Code points of escapes left in the text (&nbsp; &#20013; \\\\u4e2d) over all code points (at least 500).

    Articles about markup have some; those of addresses (%E4%B8%AD) do not count.

    >>> from corpus.filters import measure
    >>> measure("characters.escape_ratio", ["&#20013;&nbsp;文" * 50, "R&D; 5%"]).round(2)
    array([0.93, 0.  ])
    """
    return share(batch.column(ESCAPED_CHARS), np.maximum(batch.num_chars, HABIT_CHARS))


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
    """，。、；： that follow one another in a line, over all code points (at least 500).

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

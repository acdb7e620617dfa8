"""Blocks: how much of a document is code, formulas, tables, lists, verse or dialogue, and its genre by the most of it.

Shares are of the code points of lines, without the white space around them. What a line is stands in
kernels/block_kernel.py. Shares may overlap: lines of a poem in quotation marks are verse and dialogue.
"""

from __future__ import annotations

import numpy as np

from corpus.filters.statistic import Batch, Floats, share, statistic
from corpus.kernels import block_kernel as kernel
from corpus.kernels.line_kernel import BLOCKS, LINE_CHARS

GENRES = ("prose", "verse", "code", "table", "dialogue", "list")
GENRE_SHARE = 0.5  # of a document that is of a genre other than prose


def _ratio(batch: Batch, column: int) -> Floats:
    return share(batch.column(BLOCKS + column), batch.column(LINE_CHARS))


@statistic(unit="share of characters")
def code_ratio(batch: Batch) -> Floats:
    """Lines of code: fenced, indented or written in its marks, with comments between them. Addresses are no code.

    >>> from corpus.filters import measure
    >>> measure("blocks.code_ratio", ["打印：\\nfor a in b:\\n    print(a)\\n完。"]).round(2)
    array([0.79])
    """
    return _ratio(batch, kernel.CODE_CHARS)


@statistic(unit="share of characters")
def formula_ratio(batch: Batch) -> Floats:
    """Formulas in TeX: between dollars, in environments, and lines of commands.

    >>> from corpus.filters import measure
    >>> measure("blocks.formula_ratio", ["设 $f(x)=x^2+1$，求导。"]).round(2)
    array([0.67])
    """
    return _ratio(batch, kernel.FORMULA_CHARS)


@statistic(unit="share of characters")
def table_ratio(batch: Batch) -> Floats:
    """Rows of tables: cells between bars, tabs or wide gaps.

    >>> from corpus.filters import measure
    >>> measure("blocks.table_ratio", ["| 书 | 篇 |\\n| 论语 | 20 |", "论语\\t二十\\t篇\\n孟子\\t七\\t篇"])
    array([1., 1.])
    """
    return _ratio(batch, kernel.TABLE_CHARS)


@statistic(unit="share of characters")
def list_ratio(batch: Batch) -> Floats:
    """Items of lists: lines that open with a bullet, a number or a letter.

    >>> from corpus.filters import measure
    >>> measure("blocks.list_ratio", ["- 学而\\n（二）为政\\n3. 八佾\\n论语"]).round(2)
    array([0.88])
    """
    return _ratio(batch, kernel.LIST_CHARS)


@statistic(unit="share of characters")
def verse_ratio(batch: Batch) -> Floats:
    """Verse: four clauses or more of 5 to 7 Han (eight of 4), or four short lines or more that read like text.

    The larger share of the two. Such lines end in marks, are of one length, or have one function character in twelve:
    lyrics, subtitles and messages are among them, menus are not.

    >>> from corpus.filters import measure
    >>> measure("blocks.verse_ratio", ["床前明月光，疑是地上霜。举头望明月，低头思故乡。", "首页\\n新闻\\n体育\\n财经"])
    array([1., 0.])
    """
    return np.minimum(1.0, np.maximum(_ratio(batch, kernel.VERSE_LINES), _ratio(batch, kernel.METRE_CHARS)))


@statistic(unit="share of characters")
def dialogue_ratio(batch: Batch) -> Floats:
    """Lines that open with a quotation mark, or with a speaker and a colon where the speaker comes back.

    >>> from corpus.filters import measure
    >>> measure("blocks.dialogue_ratio", ["王利发：遛遛吧！\\n唐铁嘴：给碗茶喝！\\n王利发：算了吧！"]).round(2)
    array([0.64])
    """
    return _ratio(batch, kernel.DIALOGUE_CHARS)


@statistic(unit="label", labels=GENRES)
def genre(batch: Batch) -> Floats:
    """The kind of block that is half a document or more, the largest of several; prose where none is.

    >>> from corpus.filters import measure
    >>> measure("blocks.genre", ["学而时习之，不亦说乎？", "- 学而\\n- 为政"])
    array(['prose', 'list'], dtype='<U5')
    """
    shares = np.stack([np.full(len(batch.texts), GENRE_SHARE), *(_GENRE_SHARES[name](batch) for name in GENRES[1:])])
    return np.asarray(np.argmax(shares, axis=0), np.float64)


_GENRE_SHARES = {
    "verse": verse_ratio,
    "code": code_ratio,
    "table": table_ratio,
    "dialogue": dialogue_ratio,
    "list": list_ratio,
}

"""The folded view in which word lists are compared: half-width, lower case, Simplified, digits of odd scripts as
digits.

So ＶＸ, 開發票, ➄, ⒌ and 🅥🅧 are found as vx, 开发票, 5, 5 and vx. One code point folds to one, and nothing of a text is copied:
the table is part of the automaton's own. Characters that only hold a word apart (加 微 信, 微*信, V❤信) are skipped.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from corpus.kernels.tables import CODE_POINTS, script_pairs

_DIGIT_ROWS = (  # code points of digits 1 to 9 in a row that NFKC leaves alone or spells with more than one character
    0x2474,  # ⑴
    0x2488,  # ⒈
    0x24F5,  # ⓵
    0x2776,  # ❶
    0x2780,  # ➀
    0x278A,  # ➊
)
_LETTER_ROWS = (0x1F110, 0x1F130, 0x1F150, 0x1F170)  # 🄐 🄰 🅐 🅰: 26 letters each
_ALIKE = {"➕": "+", "薇": "微"}  # for 微信, which lists then need not spell twice

SEPARATORS = " \u3000\t*＊·・•‧∙.．_＿-－—–~～|｜/／\\＼=＝^`'\"“”‘’#＃&＆()（）[]［］【】〔〕「」『』〖〗{}｛｝<>＜＞《》\ufe0f\u200d"
_SYMBOL_RANGES = (
    (0x2190, 0x2200),  # arrows
    (0x2500, 0x2776),  # boxes, shapes, miscellaneous symbols, dingbats; the digits behind them are folded
    (0x2794, 0x27C0),
    (0x2B00, 0x2C00),
    (0x1F300, 0x1FB00),  # emoji
)


@lru_cache(maxsize=1)
def matching_table() -> npt.NDArray[np.uint32]:
    """uint32[0x20000]: the code point that each of planes 0 and 1 is compared as."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    simplified, _ = script_pairs()
    for code in (*range(0x4E00), *range(0xA000, 0xAC00), *range(0xF900, CODE_POINTS)):
        if 0xD800 <= code < 0xF900:
            continue
        character = chr(code)
        folded = unicodedata.normalize("NFKC", character).lower()
        folded = simplified.get(folded, folded)
        if len(folded) == 1 and ord(folded) < CODE_POINTS:
            table[code] = ord(folded)
    for old, new in simplified.items():
        if ord(new) < CODE_POINTS:
            table[ord(old)] = ord(new)
    for first in _DIGIT_ROWS:
        table[first : first + 9] = range(ord("1"), ord("9") + 1)
    for first in _LETTER_ROWS:
        table[first : first + 26] = range(ord("a"), ord("z") + 1)
    for old, new in _ALIKE.items():
        table[ord(old)] = ord(new)
    table[0x0A] = 0x0A
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def skipped_characters() -> tuple[int, ...]:
    """Code points that may stand between the characters of a word; none of them ends a sentence or a line."""
    return (*map(ord, SEPARATORS), *(code for first, end in _SYMBOL_RANGES for code in range(first, end)))


def fold_word(word: str) -> str:
    """A word of a list as `Automaton` looks for it: folded, without what is skipped in texts.

    >>> fold_word("E-Mail"), fold_word("某*某"), fold_word("★")
    ('email', '某某', '')
    """
    return "".join(character for character in fold_for_matching(word) if ord(character) not in skipped_characters())


def fold_for_matching(text: str) -> str:
    """The folded view of one string, as long as it was.

    >>> fold_for_matching("加ＶＸ：①②➌⒋，開發票 ABC")
    '加vx:1234,开发票 abc'
    """
    table = matching_table()
    return "".join(chr(int(table[ord(c)])) if ord(c) < CODE_POINTS else c for c in text)

"""Character tables: what the kernels look up for each code point, built once a process from the Unicode data.

One uint16 a code point for planes 0 and 1 (256 KB; Chinese text touches a few pages of it): the low five bits are the
class, the others are flags that only the line statistics need. Han beyond plane 1 (extensions B to I, compatibility
supplement) is told by range. Most of the time of building it is OpenCC's.

A Han character is *common* when it, or what OpenCC's character tables simplify it to, is in level 1 of GB 2312 (the
3,755 characters that cover 99.7 % of running text); among the common ones, those that only Simplified or only
Traditional text uses are classes of their own. Rare Han has no script class: 鐨 in UTF-8 read as GBK is not
Traditional, it is noise.
"""

from __future__ import annotations

import string
import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import opencc

CODE_POINTS = 0x20000  # planes 0 and 1; beyond them classes are ranges, see code_points.code_point_class

NUM_CLASSES = 18

# Classes. The kernel counts each; every code point has exactly one.
(
    OTHER,  # letters of other scripts, marks, unassigned
    HAN,  # common, used by both Simplified and Traditional text
    HAN_SIMPLIFIED,
    HAN_TRADITIONAL,
    HAN_RARE,
    HAN_EXTENSION,  # outside U+4E00 to U+9FFF: radicals, 々〇, compatibility ideographs, extensions A to I
    KANA,
    HANGUL,
    LATIN,
    DIGIT,
    ASCII_PUNCTUATION,
    WIDE_PUNCTUATION,  # Chinese, full-width and general punctuation
    SYMBOL,
    WHITESPACE,
    NEWLINE,
    CONTROL,  # controls and invisible format characters; normalisation leaves none but joiners inside emoji
    PRIVATE_USE,
    REPLACEMENT,  # U+FFFD: what a decoder could not read
) = range(NUM_CLASSES)

CLASS_MASK = 0x1F
(
    TERMINAL,  # ends a sentence or clause when last in a line
    CLOSER,  # quotes and brackets that may follow a sentence end
    STOP,  # marks that never follow each other in running text
    BULLET,  # opens a list item when first in a line
    SENTENCE_END,  # ends a sentence wherever it stands
    HIGH_LATIN,  # letters of Latin-1 that ASCII has not: one or two in a row in a word, a page of them in mojibake
    MOJIBAKE,  # the last character of a tell-tale sequence, see line_kernel
    JAPANESE,  # Han that Japanese uses and Chinese does not write
    FUNCTION,  # Han of grammar: what sentences have and lists of words have not
    CLAUSE_END,  # ends a clause of verse, half-width too
) = (1 << place for place in range(5, 15))  # above CLASS_MASK

TERMINAL_MARKS = "。！？…；：!?.;:"
CLOSING_MARKS = "”’」』）)》】〉〗］\"'"
STOP_MARKS = "，。、；："
SENTENCE_END_MARKS = "。！？!?…｡"
MOJIBAKE_MARKS = "锛銆鈥拷烫屯"  # of UTF-8 read as GBK: ，。“ begin with the first three
CLAUSE_MARKS = "，。！？；：,.!?;:"
# Particles, pronouns, prepositions, conjunctions and adverbs: modern, classical, Cantonese. They are a fifth of running
# text and a twentieth of menus; those that names of things hold as often (地 会 能 应 最 更 无 对 同 点) are not among them.
FUNCTION_HAN = (
    "的了着著得吗嗎呢吧啊呀嘛啦么麼之乎者也矣焉哉兮其而以于於为為则則乃"
    "我你他她它们們您咱这這那谁誰什怎此是在有不没沒未莫勿就都还還又再才只很太已将將要该該必"
    "和与與及或但却卻因所若如虽雖被把让讓给給从從到由说說来來去吾汝曰何孰"
    "然且故遂既皆亦甚并並便使"
    "嘅喺咗唔佢哋嗰啲冇咁乜嘢俾畀嚟㗎喇噉"
)
BULLET_MARKS = "•·●○◦■□▪▫◆◇▶►▸※→➤➢★☆-–—*+‣⁃"

HAN_RANGES = (
    (0x2E80, 0x2FE0),  # radicals
    (0x3005, 0x3008),  # 々 〆 〇
    (0x3021, 0x302A),
    (0x3038, 0x303C),
    (0x3400, 0x4DC0),  # extension A
    (0x4E00, 0xA000),
    (0xF900, 0xFB00),  # compatibility ideographs
)
KANA_RANGES = ((0x3041, 0x3100), (0x31F0, 0x3200), (0xFF66, 0xFFA0), (0x1AFF0, 0x1B170))
HANGUL_RANGES = (
    (0x1100, 0x1200),
    (0x3131, 0x318F),
    (0xA960, 0xA980),
    (0xAC00, 0xD7FC),
    (0xFFA1, 0xFFDD),
)


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint16]:
    """uint16[0x20000]: class and flags of each code point of planes 0 and 1."""
    table = np.zeros(CODE_POINTS, np.uint16)
    for code in range(CODE_POINTS):
        table[code] = _class_of(chr(code))
    for ranges, value in ((HAN_RANGES, HAN_EXTENSION), (KANA_RANGES, KANA), (HANGUL_RANGES, HANGUL)):
        for low, high in ranges:
            table[low:high] = value
    table[0x4E00:0xA000] = HAN_RARE
    for character, value in _common_han().items():
        table[ord(character)] = value
    for marks, flag in (
        (TERMINAL_MARKS, TERMINAL),
        (CLOSING_MARKS, CLOSER),
        (STOP_MARKS, STOP),
        (BULLET_MARKS, BULLET),
        (SENTENCE_END_MARKS, SENTENCE_END),
        (filter(str.isalpha, map(chr, range(0xC0, 0x100))), HIGH_LATIN),
        (MOJIBAKE_MARKS, MOJIBAKE),
        (FUNCTION_HAN, FUNCTION),
        (CLAUSE_MARKS, CLAUSE_END),
    ):
        for mark in marks:
            table[ord(mark)] |= flag
    for character in _japanese_han():
        table[ord(character)] |= JAPANESE
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def script_pairs() -> tuple[dict[str, str], dict[str, str]]:
    """OpenCC's character tables, Traditional -> Simplified and back: only characters that change, never phrases."""
    han = [chr(code) for low, high in HAN_RANGES[4:] for code in range(low, high)]
    simplified, traditional = ({}, {})  # type: tuple[dict[str, str], dict[str, str]]
    for configuration, changes in (("t2s", simplified), ("s2t", traditional)):
        converted = opencc.OpenCC(configuration).convert("\n".join(han)).split("\n")
        changes.update((old, new) for old, new in zip(han, converted, strict=True) if old != new and len(new) == 1)
    return simplified, traditional


def _common_han() -> dict[str, int]:
    """The class of each common Han character."""
    common_simplified = _decoded("gb2312", range(0xB0, 0xD8), range(0xA1, 0xFF))
    common_traditional = _decoded("big5", range(0xA4, 0xC7), range(0x40, 0xFF))
    simplified, traditional = script_pairs()
    classes = {}
    for character in common_simplified | {old for old, new in simplified.items() if new in common_simplified}:
        if character in simplified and character not in common_simplified:
            classes[character] = HAN_TRADITIONAL
        elif character in traditional and character not in common_traditional:
            classes[character] = HAN_SIMPLIFIED
        else:
            classes[character] = HAN  # also 后, 里, 干: Traditional text writes them in other words
    return classes


def _japanese_han() -> set[str]:
    """Of level 1 of JIS X 0208 (2,965 characters in daily use) what no Chinese standard has and OpenCC does not know
    as a Chinese variant: 図 広 経 駅 込, 303 of them."""
    chinese = _decoded("gb2312", range(0xB0, 0xF8), range(0xA1, 0xFF))
    chinese |= _decoded("big5", range(0xA4, 0xFA), range(0x40, 0xFF))
    return _decoded("euc_jp", range(0xB0, 0xD0), range(0xA1, 0xFF)) - chinese - set(script_pairs()[0])


def _decoded(encoding: str, rows: range, cells: range) -> set[str]:
    """The characters of a block of a two-byte encoding; empty cells are left out."""
    found = {bytes((row, cell)).decode(encoding, "ignore") for row in rows for cell in cells}
    return {character for character in found if len(character) == 1 and not character.isascii()}


_CLASS_OF = {"\n": NEWLINE, "\ufffd": REPLACEMENT} | dict.fromkeys(string.punctuation, ASCII_PUNCTUATION)
_CLASS_OF_CATEGORY = {
    "Nd": DIGIT,
    "No": SYMBOL,
    "Co": PRIVATE_USE,
    "Cc": CONTROL,
    "Cf": CONTROL,
    "Cs": CONTROL,
    "P": WIDE_PUNCTUATION,
    "S": SYMBOL,
}


def _class_of(character: str) -> int:
    """Class by general category, or its first letter; Han, kana and hangul are set by range afterwards."""
    if character in _CLASS_OF:
        return _CLASS_OF[character]
    if character.isspace():
        return WHITESPACE
    category = unicodedata.category(character)
    if category[0] in "LM" and "LATIN" in unicodedata.name(character, ""):
        return LATIN
    return _CLASS_OF_CATEGORY.get(category, _CLASS_OF_CATEGORY.get(category[0], OTHER))

"""A page's tags that name other pages, and its visible text, in one pass over the bytes and without a tree.

The syntax is read by corpus.extract.syntax, so it is what extraction reads and as linear in the page; no stack is kept,
as which element is inside which says nothing about links. Of the tags that matter it notes where the values of their
attributes stand; what they mean is page.py's affair.
"""

from __future__ import annotations

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract import syntax
from corpus.extract.tables import BREAK, CELL, CODE, ELEMENTS, HASH_START, RAW, TITLE, Array, hash_table, name_hash

MAX_CUT_TAG_BYTES = 2_000  # a tag that the page's end cut off is dropped up to this length

# Tags that get a row, those that are links first; the last two hold text that no browser shows and get none.
TAGS = ("a", "area", "link", "frame", "iframe", "meta", "base", "html", "noscript", "template")
NUM_LINK_TAGS, NUM_NOTED_TAGS = 5, 8
# Attributes whose values are noted.
ATTRIBUTES = ("href", "src", "rel", "hreflang", "content", "name", "http-equiv", "lang", "type", "xml:lang")
(TAG, TEXT_START, TEXT_END) = range(3)  # columns of a row: place in TAGS, and where a link's text stands in the text

# Classes of characters; the first three are not what pages are told apart by.
(WHITE, NUMBER, NUMERAL, OTHER, HAN, PUNCTUATION, KANA) = range(7)
CHARACTERS = np.full(0x110000, OTHER, np.uint8)  # the class of each
for _kind, _ends in (
    (PUNCTUATION, "\u3000\u303f\uff01\uff65"),
    (KANA, "\u3040\u30ff\uff66\uff9f"),
    (OTHER, "\u30fb\u30fc\uff21\uff3a\uff41\uff5a"),  # the dot of foreign names, a dash, full-width letters
    (HAN, "\u3400\u4dbf\u4e00\u9fff\uf900\ufaff\U00020000\U0003ffff"),
    (NUMERAL, "〇〇零零一一二二三三四四五五六六七七八八九九十十廿廿卅卅"),
    (NUMBER, "09\uff10\uff19"),
    (WHITE, "\t\r  \xa0\xa0\u2000\u200f\u2028\u2029\u3000\u3000\ufeff\ufeff\ufffe\uffff"),  # and the invisible
):
    for _first, _last in zip(_ends[::2], _ends[1::2], strict=True):
        CHARACTERS[ord(_first) : ord(_last) + 1] = _kind

_ROWS = ((name_hash(x), ELEMENTS.get(x, 0), (*TAGS, x).index(x)) for x in (*ELEMENTS, "frame"))
_ELEMENTS = hash_table(_ROWS, 512, 3)  # hash of the name, bits of tables.py, place in TAGS
_ATTRIBUTES = hash_table(((name_hash(name), number) for number, name in enumerate(ATTRIBUTES)), 64, 2)


@kernel()
def read_tags(
    data: Array, references: Array, classes: Array, with_tags: bool, left: Array, out: Array, rows: Array, ends: Array
) -> tuple[int, int, int, int]:
    """Read a page into `rows` and `out`; returns how many of each are filled, and where the title begins (-1) and ends.

    Args:
        data: uint8[n], the page in UTF-8.
        references, classes: tables.references(), CHARACTERS.
        with_tags: False for plain text.
        left: int64[2], rows for other tags and for links; counted down.
        out: uint32[>= n], the text's code points, white space collapsed.
        rows, ends: int32[tags, 3], and int32[tags, attributes, 2], the values' ends in the page, -1 without one.
    """
    n = len(data)
    endless = np.zeros(len(_ELEMENTS), np.bool_)  # elements that end nowhere in the rest of the page
    with_quotes = with_comments = True
    i = o = k = hidden_end = 0  # the last: of the element without visible text that we are in
    open_link = title_start = title_end = -1
    space = False
    while i < n:
        if data[i] == 60 and i + 1 < n and with_tags:
            is_end = data[i + 1] == 47
            j = i + 2 if is_end else i + 1
            is_named = j < n and 97 <= (data[j] | 32) <= 122
            if data[i + 1] == 33 or data[i + 1] == 63 or (is_end and not is_named):
                j = syntax.end_of_comment(data, i, with_comments)
                with_comments = with_comments and j >= 0
                i = max(i, j)
                continue
            if is_named:
                key, j = syntax.hash_until(data, j, n, HASH_START, syntax.ENDS_TAG)
                element = syntax.lookup(_ELEMENTS, key)
                bits, tag = (_ELEMENTS[element, 1], _ELEMENTS[element, 2]) if element >= 0 else (0, len(TAGS))
                space |= (bits & (BREAK | CELL)) != 0
                if tag == 0 and open_link >= 0:
                    rows[open_link, TEXT_END] = o
                    open_link = -1
                if is_end:
                    i = syntax.end_of_comment(data, j, False)
                    continue
                is_link = int(tag < NUM_LINK_TAGS)
                is_noted = tag < NUM_NOTED_TAGS and left[is_link] > 0
                if is_noted:
                    ends[k] = -1
                name = key
                while name != 0:
                    name, start, stop, j = syntax.next_attribute(data, j, HASH_START, with_quotes)
                    slot = syntax.lookup(_ATTRIBUTES, name) if is_noted else -1
                    if slot >= 0 and ends[k, _ATTRIBUTES[slot, 1], 0] < 0:
                        ends[k, _ATTRIBUTES[slot, 1]] = start, stop
                if j < 0:
                    with_tags, with_quotes = with_quotes, False
                    i = n if not with_tags and n - i < MAX_CUT_TAG_BYTES else i
                    continue
                i = j
                if is_noted:
                    rows[k, TAG], rows[k, TEXT_START], rows[k, TEXT_END] = tag, o, o if tag else n
                    open_link = open_link if tag else k
                    left[is_link] -= 1
                    k += 1
                is_hidden = NUM_NOTED_TAGS <= tag < len(TAGS) and i > hidden_end
                if is_hidden or (bits & RAW) != 0:
                    stop = n
                    if not endless[element]:
                        stop, i = syntax.end_of_raw(data, j, key)
                    if stop == n and (bits & CODE) == 0:
                        endless[element] = True
                        stop = i = j
                    if (bits & TITLE) != 0 and title_start < 0:
                        title_start, title_end = j, stop
                    elif is_hidden:
                        hidden_end, i = stop, j
                continue

        first, is_shown = i, i >= hidden_end  # a `<` here is text
        while i < n and (data[i] != 60 or i == first or not with_tags):
            code = second = 0
            if data[i] >= 128:
                code, i = syntax.code_point(data, i)
            elif data[i] == 38 and with_tags:
                code, second, i = syntax.reference(data, i, references)
            if code == 0:
                code = syntax.to_signed(data[i])
                i += 1
            while code > 0:
                if classes[code] == WHITE:
                    space |= is_shown
                elif is_shown:
                    if space and o > 0:
                        out[o] = 32
                        o += 1
                    space = False
                    out[o] = code
                    o += 1
                code, second = second, 0
    return k, o, title_start, title_end

"""A page's tags that name other pages, and its visible text, in one pass over the bytes and without a tree.

Tokenizes as corpus.extract.reader does (comments, raw text, character references, quoted attributes; linear in the page
whatever it holds), but keeps no stack: which element is inside which says nothing about links. Of the tags that matter
it notes where the values of their attributes stand; what they mean is page.py's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.extract.syntax import (
    ENDS_ATTRIBUTE,
    ENDS_TAG,
    code_point,
    end_of_comment,
    end_of_raw,
    hash_until,
    lookup,
    put,
    reference,
)
from corpus.extract.tables import BREAK, CELL, CODE, HASH_PRIME, HASH_START, RAW, TITLE, name_hash

Array = npt.NDArray[Any]

MAX_CUT_TAG_BYTES = 2_000  # a tag that the page's end cut off is dropped up to this length

# Tags that get a row: those that are links first. The last holds text that no browser shows.
(TAG_A, TAG_AREA, TAG_LINK, TAG_FRAME, TAG_META, TAG_BASE, TAG_HTML, TAG_HIDDEN) = range(8)
TAGS = {"a": TAG_A, "area": TAG_AREA, "link": TAG_LINK, "frame": TAG_FRAME, "iframe": TAG_FRAME}
TAGS |= {"meta": TAG_META, "base": TAG_BASE, "html": TAG_HTML, "noscript": TAG_HIDDEN, "template": TAG_HIDDEN}
# Attributes whose values are noted; each has two columns of a row, from FIRST_VALUE on.
ATTRIBUTES = ("href", "src", "rel", "hreflang", "content", "name", "http-equiv", "lang", "type", "xml:lang")
(HREF, SRC, REL, HREFLANG, CONTENT, NAME, HTTP_EQUIV, LANG, TYPE, XML_LANG) = range(len(ATTRIBUTES))

# Columns of a row: what the tag is, and where the text of a link begins and ends in the text.
(TAG, TEXT_START, TEXT_END, FIRST_VALUE) = range(4)
ROW_COLUMNS = FIRST_VALUE + 2 * len(ATTRIBUTES)

# Classes of characters.
(OTHER, WHITE, NUMBER, HAN, NUMERAL, PUNCTUATION, KANA) = range(7)

# What `info` holds.
(NUM_ROWS, NUM_LINKS, TEXT_BYTES, BARE_BYTES, TITLE_START, TITLE_END) = range(6)
NUM_COUNTS = 6  # from here on: bytes of text of each class
INFO_COLUMNS = NUM_COUNTS + KANA + 1


def _hash_table(numbers: Mapping[str, int]) -> Array:
    """int64[64, 2] for corpus.extract.syntax.lookup: hash of the name, number."""
    table = np.zeros((64, 2), np.int64)
    for name, number in numbers.items():
        slot = (name_hash(name) >> 17) & 63
        while table[slot, 0] != 0:
            slot = (slot + 1) & 63
        table[slot] = name_hash(name), number
    return table


def _characters() -> Array:
    """uint8[65536], the class of each character."""
    table = np.full(0x10000, OTHER, np.uint8)
    for first, last, kind in (
        (0x09, 0x0D, WHITE),
        (0x20, 0x20, WHITE),
        (0x30, 0x39, NUMBER),
        (0x2000, 0x200F, WHITE),  # the invisible count as white
        (0x3000, 0x303F, PUNCTUATION),
        (0x3040, 0x30FF, KANA),
        (0x30FB, 0x30FC, OTHER),  # the dot of foreign names, and a dash
        (0x3400, 0x4DBF, HAN),
        (0x4E00, 0x9FFF, HAN),
        (0xF900, 0xFAFF, HAN),
        (0xFF01, 0xFF65, PUNCTUATION),
        (0xFF10, 0xFF19, NUMBER),
        (0xFF21, 0xFF3A, OTHER),
        (0xFF41, 0xFF5A, OTHER),
        (0xFF66, 0xFF9F, KANA),
    ):
        table[first : last + 1] = kind
    for character in "\0\u00a0\u2028\u2029\u3000\ufeff\ufffe\uffff":
        table[ord(character)] = WHITE
    for character in "〇零一二三四五六七八九十廿卅":
        table[ord(character)] = NUMERAL
    return table


TAG_NUMBERS = _hash_table(TAGS)
ATTRIBUTE_NUMBERS = _hash_table({name: number for number, name in enumerate(ATTRIBUTES)})
CHARACTERS = _characters()


@kernel(leaf=True)
def noted_attributes(data: Array, i: int, with_quotes: bool, row: Array) -> int:
    """Read the attributes that begin at i: where the tag ends, or -1; the first value of each noted one goes to `row`."""
    n = len(data)
    while i < n:
        c = np.int64(data[i])
        if c == 62:
            return i + 1
        if c == 32 or c == 47 or 9 <= c <= 13:
            i += 1
            continue
        key = HASH_START
        if data[i] == 61:  # an equals sign may begin a name
            key = (key ^ 61) * HASH_PRIME
            i += 1
        key, i = hash_until(data, i, n, key, ENDS_ATTRIBUTE)
        while i < n and (data[i] == 32 or 9 <= data[i] <= 13):
            i += 1
        start = stop = i
        if i < n and data[i] == 61:
            i += 1
            while i < n and (data[i] == 32 or 9 <= data[i] <= 13):
                i += 1
            if i >= n:
                return -1
            quote = data[i]
            start = i
            closed = False
            if (quote == 34 or quote == 39) and with_quotes:
                start = i + 1
                stop = start
                while stop < n and data[stop] != quote:
                    stop += 1
                closed = stop < n
                i = stop + 1 if closed else start
            if not closed:
                while i < n and data[i] != 62 and data[i] != 32 and not 9 <= data[i] <= 13:
                    i += 1
                stop = i
        if len(row) > 0:
            slot = lookup(ATTRIBUTE_NUMBERS, key)
            column = FIRST_VALUE + 2 * ATTRIBUTE_NUMBERS[slot, 1]
            if slot >= 0 and row[column] < 0:
                row[column] = start
                row[column + 1] = stop
    return -1


@kernel(leaf=True)
def read_text(
    data: Array,
    i: int,
    references: Array,
    with_tags: bool,
    space: bool,
    out: Array,
    o: int,
    bare: Array,
    b: int,
    counts: Array,
) -> tuple[int, int, int, bool]:
    """Read text up to the next tag; a `<` at i is text. Returns i, o, b and whether white space is due."""
    n = len(data)
    start = i
    c: Any = 0  # signed, as numba would make a float of signed and unsigned
    code: Any = 0
    while i < n:
        c = np.int64(data[i])
        second = 0
        if c < 128:
            if c == 60 and i > start and with_tags:
                break
            if c == 38 and with_tags:
                code, second, i = reference(data, i, references)
                if code == 0:
                    code = 38
                    i += 1
            else:
                code = c
                i += 1
        else:
            code, i = code_point(data, i)
        while code > 0:
            kind = OTHER
            if code < 0x10000:
                kind = CHARACTERS[code]
            elif 0x20000 <= code <= 0x3FFFF:
                kind = HAN
            if kind == WHITE:
                space = True
            else:
                if space and o > 0:
                    out[o] = 32
                    o += 1
                space = False
                first = o
                o = put(out, o, code)
                counts[kind] += o - first
                if kind != NUMBER and kind != NUMERAL:
                    while first < o:
                        bare[b] = out[first]
                        b += 1
                        first += 1
            code = second
            second = 0
    return i, o, b, space


@kernel()
def read_tags(
    data: Array,
    elements: Array,
    references: Array,
    with_tags: bool,
    max_links: int,
    out: Array,
    bare: Array,
    rows: Array,
    info: Array,
) -> None:
    """Read a page into `rows`, `out` and `bare`.

    Args:
        data: uint8[n], the page in UTF-8.
        elements, references: tables.Tables.
        with_tags: False for plain text.
        max_links: rows of links; as many as are left in `rows` are for other tags.
        out: uint8[>= 2 n + 64], the text, white space collapsed.
        bare: uint8[>= 2 n + 64], the text without white space, digits and Chinese numerals.
        rows: int32[:, ROW_COLUMNS], -1 where there is no value; the tags in the page's order.
        info: int64[INFO_COLUMNS].
    """
    n = len(data)
    no_row = np.empty(0, np.int32)
    max_others = len(rows) - max_links
    with_quotes = with_comments = True
    endless = np.zeros(len(elements), np.bool_)  # raw text elements that end nowhere in the rest of the page
    i = o = b = num_rows = num_links = num_others = 0
    open_link = -1
    title_start = title_end = -1
    hidden_end = 0  # of the element without visible text that we are in
    counts = np.zeros(KANA + 1, np.int64)  # bytes of each class
    no_counts = np.zeros(KANA + 1, np.int64)
    space = False
    while i < n:
        if data[i] == 60 and i + 1 < n and with_tags:
            following = data[i + 1]
            if following == 33 or following == 63:
                j = end_of_comment(data, i, with_comments)
                if j < 0:
                    with_comments = False
                else:
                    i = j
                continue
            is_end = following == 47
            j = i + 2 if is_end else i + 1
            if is_end and j < n and data[j] == 62:
                i = j + 1
                continue
            if j < n and 97 <= (data[j] | 32) <= 122:
                key, j = hash_until(data, j, n, HASH_START, ENDS_TAG)
                element = lookup(elements, key)
                bits = elements[element, 1] if element >= 0 else 0
                if (bits & (BREAK | CELL)) != 0:
                    space = True
                slot = lookup(TAG_NUMBERS, key)
                tag = TAG_NUMBERS[slot, 1] if slot >= 0 else -1
                if tag == TAG_A and open_link >= 0:
                    rows[open_link, TEXT_END] = o
                    open_link = -1
                if is_end:
                    while j < n and data[j] != 62:
                        j += 1
                    i = j + 1
                    continue

                is_link = 0 <= tag <= TAG_FRAME
                noted = num_links < max_links if is_link else 0 <= tag < TAG_HIDDEN and num_others < max_others
                row = rows[num_rows] if noted else no_row
                row[:] = -1
                end = noted_attributes(data, j, with_quotes, row)
                if end < 0:
                    if with_quotes:
                        with_quotes = False
                    elif n - i < MAX_CUT_TAG_BYTES:
                        i = n
                    else:
                        with_tags = False
                    continue
                i = end
                if tag == TAG_HIDDEN and i > hidden_end and not endless[element]:
                    hidden_end, _ = end_of_raw(data, i, key)
                    if hidden_end == n:
                        endless[element] = True
                        hidden_end = 0
                if noted:
                    row[TAG] = tag
                    row[TEXT_START] = row[TEXT_END] = o
                    if tag == TAG_A:
                        open_link = num_rows
                    if is_link:
                        num_links += 1
                    else:
                        num_others += 1
                    num_rows += 1
                if (bits & RAW) != 0:
                    is_title = (bits & TITLE) != 0 and title_start < 0
                    stop = n
                    if not endless[element]:
                        stop, i = end_of_raw(data, end, key)
                    if stop == n and (bits & CODE) == 0:
                        endless[element] = True
                        stop = end
                        while is_title and stop < n and data[stop] != 60:
                            stop += 1
                        i = stop
                    if is_title:
                        title_start = end
                        title_end = stop
                continue
            if is_end:  # a bogus comment
                while i < n and data[i] != 62:
                    i += 1
                i += 1
                continue

        if i < hidden_end:
            i, _, _, _ = read_text(data, i, references, with_tags, space, out, o, bare, b, no_counts)
        else:
            i, o, b, space = read_text(data, i, references, with_tags, space, out, o, bare, b, counts)

    if open_link >= 0:
        rows[open_link, TEXT_END] = o
    info[NUM_ROWS] = num_rows
    info[NUM_LINKS] = num_links
    info[TEXT_BYTES] = o
    info[BARE_BYTES] = b
    info[TITLE_START] = title_start
    info[TITLE_END] = title_end
    info[NUM_COUNTS : NUM_COUNTS + KANA + 1] = counts

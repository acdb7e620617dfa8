"""Pieces of HTML syntax, as kernels: attributes, character references, comments, raw text; all linear in what they
read.

Rules and names of states are the HTML standard's (section 13.2.5, tokenization), read as of 2024; what a cut or broken
page would lose by them is told in reader.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.tables import (
    ATTRIBUTE_ARIA_HIDDEN,
    ATTRIBUTE_CLASS,
    ATTRIBUTE_COLSPAN,
    ATTRIBUTE_HIDDEN,
    ATTRIBUTE_HREF,
    ATTRIBUTE_ID,
    ATTRIBUTE_ITEMPROP,
    ATTRIBUTE_ROLE,
    ATTRIBUTE_ROWSPAN,
    ATTRIBUTE_STYLE,
    HASH_PRIME,
    HASH_START,
    KIND_ATTRIBUTE,
    KIND_ITEMPROP,
    KIND_NAME,
    KIND_ROLE,
    KIND_WORD,
    Array,
)
from corpus.kernels.code_points import decode

MAX_REFERENCE_CHARS = 32  # the longest name has 31
HIDDEN, HAS_HREF, IS_CLOSED = 1, 2, 4  # what attributes() found

IS_BLANK = np.isin(np.arange(256), list(b"\t\n\v\f\r "))
ENDS_TAG = np.isin(np.arange(256), list(b"\t\n\v\f\r />"))
ENDS_ATTRIBUTE = np.isin(np.arange(256), list(b"\t\n\v\f\r />="))
_WINDOWS_1252 = np.array(
    [ord(bytes([byte]).decode("cp1252", "ignore") or chr(byte)) for byte in range(0x80, 0xA0)], np.int64
)


@kernel()
def to_signed(byte: Any) -> Any:
    """A byte as int64: of signed and unsigned numbers together numba would make a float."""
    return np.int64(byte)


@kernel()
def lookup(table: Array, key: int) -> int:
    """The row of a key in a hash table of tables.py, or -1."""
    mask = len(table) - 1
    slot = (key >> 17) & mask
    while table[slot, 0] != 0:
        if table[slot, 0] == key:
            return slot
        slot = (slot + 1) & mask
    return -1


@kernel()
def hash_until(data: Array, i: int, end: int, key: int, stops: Array) -> tuple[int, int]:
    """The hash of the name at i in lower case, and where it ends: at a byte of `stops` (bool[256]) or at `end`."""
    while i < end and not stops[data[i]]:
        c: Any = np.int64(data[i])
        if 65 <= c <= 90:
            c |= 32
        key = (key ^ c) * HASH_PRIME
        i += 1
    return key, i


@kernel()
def hides(data: Array, i: int, end: int) -> bool:
    """Whether a style attribute says display:none."""
    while i + 12 <= end:
        if (
            (data[i] | 32) == 100  # d
            and (data[i + 1] | 32) == 105
            and (data[i + 2] | 32) == 115
            and (data[i + 3] | 32) == 112
            and (data[i + 4] | 32) == 108
            and (data[i + 5] | 32) == 97
            and (data[i + 6] | 32) == 121
        ):
            i += 7
            while i < end and (data[i] == 32 or data[i] == 58):  # blanks and the colon
                i += 1
            if (
                i + 4 <= end
                and (data[i] | 32) == 110
                and (data[i + 1] | 32) == 111
                and (data[i + 2] | 32) == 110
                and (data[i + 3] | 32) == 101
            ):
                return True
        else:
            i += 1
    return False


@kernel()
def hints_of(data: Array, i: int, end: int, kind: int, names: Array) -> int:
    """The hints of a list of names, and of the words of each: `newsList-body2` is news, list and body."""
    found = 0
    while i < end:
        if IS_BLANK[data[i]]:
            i += 1
            continue
        name = HASH_START + kind
        word = HASH_START + KIND_WORD
        was_lower = False
        length = 0
        while i < end and not IS_BLANK[data[i]]:
            c: Any = np.int64(data[i])
            is_upper = 65 <= c <= 90
            if is_upper:
                c |= 32
            is_lower = 97 <= c <= 122
            if length > 0 and (not is_lower or (is_upper and was_lower)):
                found |= hint(names, word)
                word = HASH_START + KIND_WORD
                length = 0
            if is_lower:
                word = (word ^ c) * HASH_PRIME
                length += 1
            was_lower = is_lower and not is_upper
            name = (name ^ c) * HASH_PRIME
            i += 1
        found |= hint(names, name)
        if length > 0 and kind == KIND_NAME:
            found |= hint(names, word)
    return found


@kernel()
def hint(names: Array, key: int) -> int:
    """The value of a key, or 0."""
    row = lookup(names, key)
    return int(names[row, 1]) if row >= 0 else 0


@kernel()
def decimal(data: Array, i: int, end: int) -> int:
    """The number at i, 0xFFFF at most; 0 where there is none."""
    value = 0
    while i < end and 48 <= data[i] <= 57:
        value = min(value * 10 + (data[i] - 48), 0xFFFF)
        i += 1
    return value


@kernel()
def end_of_raw(data: Array, i: int, key: int) -> tuple[int, int]:
    """Where the end tag of a raw text element begins, and where what follows it begins; (n, n) if it never ends."""
    n = len(data)
    while i < n:
        if data[i] != 60 or i + 2 >= n or data[i + 1] != 47:
            i += 1
            continue
        start = i
        i += 2
        value = HASH_START
        while i < n and 65 <= (data[i] & 0xDF) <= 90:
            value = (value ^ to_signed(data[i] | 32)) * HASH_PRIME
            i += 1
        if value == key:
            while i < n and data[i] != 62:
                i += 1
            return start, i + 1
    return n, n


@kernel()
def reference(data: Array, i: int, references: Array) -> tuple[int, int, int]:
    """The character reference at an ampersand: its one or two code points and where it ends; (0, 0, i) if it is
    none."""
    n = len(data)
    start = i
    i += 1
    if i < n and data[i] == 35:  # '#'
        i += 1
        code = 0
        base = 16 if i < n and (data[i] | 32) == 120 else 10
        i += base == 16
        first = i
        while i < n and (48 <= data[i] <= 57 or (base == 16 and 97 <= (data[i] | 32) <= 102)):
            digit = data[i] - 48 if data[i] <= 57 else (data[i] | 32) - 87
            code = min(code * base + digit, 0x110000)
            i += 1
        if i == first:
            return 0, 0, start
        if i < n and data[i] == 59:
            i += 1
        if 0x80 <= code < 0xA0:
            code = _WINDOWS_1252[code - 0x80]
        if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000:
            code = 0xFFFD
        return code, 0, i
    value = HASH_START
    found = -1
    end = start
    while i < n and i - start <= MAX_REFERENCE_CHARS and (48 <= data[i] <= 57 or 65 <= (data[i] & 0xDF) <= 90):
        value = (value ^ to_signed(data[i])) * HASH_PRIME
        i += 1
        row = lookup(references, value)
        if row >= 0 and ((i < n and data[i] == 59) or references[row, 3] == 1):
            found = row
            end = i
    if found < 0:
        return 0, 0, start
    if end < n and data[end] == 59:
        end += 1
    return int(references[found, 1]), int(references[found, 2]), end


@kernel()
def end_of_comment(data: Array, i: int, with_comments: bool) -> int:
    """Behind the markup declaration or comment that begins with `<!` or `<?` at i; -1 behind a comment without an end.

    Without `with_comments` a comment, too, ends at its first `>`.
    """
    n = len(data)
    if with_comments and i + 3 < n and data[i + 1] == 33 and data[i + 2] == 45 and data[i + 3] == 45:
        i += 4
        if i < n and data[i] == 62:
            return i + 1
        if i + 1 < n and data[i] == 45 and data[i + 1] == 62:
            return i + 2
        while i < n:
            if data[i] == 45 and i + 2 < n and data[i + 1] == 45:
                if data[i + 2] == 62:
                    return i + 3
                if data[i + 2] == 33 and i + 3 < n and data[i + 3] == 62:
                    return i + 4
            i += 1
        return -1
    while i < n and data[i] != 62:
        i += 1
    return i + 1


@kernel()
def next_attribute(data: Array, i: int, key: int, with_quotes: bool) -> tuple[int, int, int, int]:
    """The first attribute from i on: hash of its name (`key` is the empty one's), its value's ends, and where it ends.

    The hash is 0 where the tag ends before an attribute; its end is -1 where the page ends before the tag.
    """
    n = len(data)
    while i < n and (data[i] == 47 or IS_BLANK[data[i]]):
        i += 1
    if i < n and data[i] == 62:
        return 0, i, i, i + 1
    if i < n and data[i] == 61:  # an equals sign may begin a name
        key = (key ^ 61) * HASH_PRIME
        i += 1
    key, i = hash_until(data, i, n, key, ENDS_ATTRIBUTE)
    while i < n and IS_BLANK[data[i]]:
        i += 1
    start = stop = i
    if i < n and data[i] == 61:
        i += 1
        while i < n and IS_BLANK[data[i]]:
            i += 1
        start, stop = i, n
        if with_quotes and i < n and (data[i] == 34 or data[i] == 39):
            quote = data[i]
            start = stop = i + 1
            while stop < n and data[stop] != quote:
                stop += 1
        i = stop + 1
        if stop == n:  # no quotes, or none that closes
            i = start
            while i < n and data[i] != 62 and not IS_BLANK[data[i]]:
                i += 1
            stop = i
    if i >= n:
        return 0, n, n, -1
    return key, start, stop, i


@kernel()
def attributes(data: Array, i: int, names: Array, with_quotes: bool) -> tuple[int, int, int]:
    """Read the attributes that begin at i: where the tag ends (-1: nowhere), bits, and the hints of class, id and role.

    The bits are HIDDEN, HAS_HREF and IS_CLOSED (`/>`); from bit 8 on colspan, from bit 24 on rowspan.
    """
    bits = value = 0
    while True:
        before = i
        key, start, stop, i = next_attribute(data, i, HASH_START + KIND_ATTRIBUTE, with_quotes)
        if key == 0:
            if i - 2 >= before and data[i - 2] == 47:
                bits |= IS_CLOSED
            return i, bits, value
        row = lookup(names, key)
        if row < 0:
            continue
        known = names[row, 1]
        if known == ATTRIBUTE_HREF:
            bits |= HAS_HREF
        elif known == ATTRIBUTE_HIDDEN:
            bits |= HIDDEN
        elif known == ATTRIBUTE_ARIA_HIDDEN:
            if stop - start == 4 and (data[start] | 32) == 116:
                bits |= HIDDEN
        elif known == ATTRIBUTE_STYLE:
            if hides(data, start, stop):
                bits |= HIDDEN
        elif known == ATTRIBUTE_COLSPAN:
            bits |= decimal(data, start, stop) << 8
        elif known == ATTRIBUTE_ROWSPAN:
            bits |= decimal(data, start, stop) << 24
        else:
            kind = KIND_NAME
            if known == ATTRIBUTE_ROLE:
                kind = KIND_ROLE
            elif known == ATTRIBUTE_ITEMPROP:
                kind = KIND_ITEMPROP
            elif known != ATTRIBUTE_CLASS and known != ATTRIBUTE_ID:
                continue
            value |= hints_of(data, start, stop, kind, names)


code_point = decode


@kernel()
def put(out: Array, o: int, code: int) -> int:
    """Write a code point as UTF-8 at o; returns where the next one goes."""
    if code < 0x80:
        out[o] = code
        return o + 1
    if code < 0x800:
        out[o] = 0xC0 | code >> 6
        out[o + 1] = 0x80 | (code & 0x3F)
        return o + 2
    if code < 0x10000:
        out[o] = 0xE0 | code >> 12
        out[o + 1] = 0x80 | (code >> 6 & 0x3F)
        out[o + 2] = 0x80 | (code & 0x3F)
        return o + 3
    out[o] = 0xF0 | code >> 18
    out[o + 1] = 0x80 | (code >> 12 & 0x3F)
    out[o + 2] = 0x80 | (code >> 6 & 0x3F)
    out[o + 3] = 0x80 | (code & 0x3F)
    return o + 4


@kernel()
def put_bullet(out: Array, o: int, number: int) -> int:
    """Write `• `, or of an ordered list the item's number and a full stop."""
    if number == 0:
        return put(out, put(out, o, 0x2022), 32)
    digits = 1
    while digits * 10 <= number:
        digits *= 10
    while digits > 0:
        out[o] = 48 + number // digits % 10
        o += 1
        digits //= 10
    return put(out, put(out, o, 46), 32)


@kernel()
def trim_end(out: Array, start: int, o: int, is_pre: bool) -> int:
    """Where a line from `start` to `o` ends without spaces, ideographic ones and byte order marks only outside pre."""
    while o > start:
        if out[o - 1] == 32 or out[o - 1] == 9:
            o -= 1
        elif (
            not is_pre
            and o - start >= 3
            and (
                (out[o - 3] == 0xE3 and out[o - 2] == 0x80 and out[o - 1] == 0x80)
                or (out[o - 3] == 0xEF and out[o - 2] == 0xBB and out[o - 1] == 0xBF)
            )
        ):
            o -= 3
        else:
            break
    return o

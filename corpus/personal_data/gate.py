"""Where personal data may begin: one pass over a batch's bytes, which leaves Python a few places to look at.

A place is the first character of a run of digits that is long enough with the separators people write in numbers, or
follows a letter as in identity numbers, of four numbers between dots, of a hexadecimal group before a colon, an at
sign, a province's character before a letter, or a word that announces an account (微信, QQ, 护照, 电话). Nothing is decided
here, but a false alarm costs a look from Python: what a form can never confirm in code, versions and tables is left
out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.kernels.code_points import decode

Array = npt.NDArray[Any]

NUMBER, DOTTED, GROUPS, AT, PLATE, ACCOUNT, LETTERED = range(1, 8)

PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"
# The first two characters of words before an account, Latin in lower case, half-width; and what their third character
# is, of passport and WhatsApp the fifth. `#`: a number follows.
WORD_PAIRS = (
    "微信 薇信 威信 徽信 v信 w信 vx wx wec wei v: v❤ v♥ 薇❤ 薇♥ 薇: 加v 加微 加薇 加w +v +微 qq 扣扣 叩叩 球球 企鹅 q群 q号 q: 加q +q "
    "护照 pap 通行证證 回乡证證 回鄉证證 台胞证證 臺胞证證 tel whs "
    "电话# 电話# 電話# 传真# 傳真# 座机# 固话# 热线# 熱線# 手机# 手機# 致电# 致電# 电洽# 電洽#"
).split(" ")
CALLED = ord("#")
MIN_DIGITS = 10  # of a telephone number with its area code
MIN_LONG_DIGITS = 15  # of a card
MAX_SEPARATORS = 3  # in a row
BYTES_A_PLACE = 256  # text with more places is read twice
MAX_GAP = 4  # characters between a colon and the account
MIN_ACCOUNT = 5  # characters of an account, separators included
MAX_CALL = 8  # characters between 电话 and the number

_SKIPPABLE = " *·•♡❤♥️"

_OTHER, _DIGIT, _AT, _PROVINCE, _WORD = range(5)


class Places(NamedTuple):
    """By row, then character: the row, the character's index in its document, and what may be there."""

    rows: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int64]


class _Tables(NamedTuple):
    flags: npt.NDArray[np.uint8]  # by code point of the first plane
    pairs: npt.NDArray[np.int64]  # sorted: first << 32 | second << 16 | telling letter, 0 for any
    skippable: npt.NDArray[np.bool_]


def find_places(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Places:
    """All places of a batch."""
    capacity = 1024 + int(offsets[-1] - offsets[0]) // BYTES_A_PLACE
    while True:
        out = np.empty((3, capacity), np.int64)
        count = _find_places(offsets, data, _tables(), out)
        if count <= capacity:
            return Places(*out[:, :count])
        capacity = count


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    flags = np.zeros(0x10000, np.uint8)
    skippable = np.zeros(0x10000, np.bool_)
    skippable[list(map(ord, _SKIPPABLE))] = True
    for code in (*range(48, 58), *range(0xFF10, 0xFF1A), 0x24EA, *range(0x2460, 0x2469)):
        flags[code] = _DIGIT
    flags[list(map(ord, "@＠[［(（{｛"))] = _AT
    flags[list(map(ord, PROVINCES))] = _PROVINCE
    pairs = []
    for first, second, *letters in map(tuple, WORD_PAIRS):
        for code in {ord(first), ord(first.upper()), _wide(first), _wide(first.upper())}:
            flags[code] = _WORD
        pairs += [ord(first) << 32 | ord(second) << 16 | ord(letter) for letter in letters or "\0"]
    return _Tables(flags, np.array(sorted(pairs), np.int64), skippable)


def _wide(character: str) -> int:
    return ord(character) + 0xFEE0 if "!" <= character <= "~" else ord(character)


@kernel(leaf=True)
def _half(c: Any) -> Any:
    """A code point in its half-width, lower-case form; circled digits as digits."""
    c = np.int64(c)
    if 0xFF01 <= c < 0xFF5F:
        c -= 0xFEE0
    if 65 <= c <= 90:
        return c + 32
    if 0x2460 <= c < 0x2469:
        return c - 0x2460 + 49
    if c == 0x24EA:
        return np.int64(48)
    if c == 0x3000:
        return np.int64(32)
    return c


@kernel(leaf=True)
def _next(data: Array, i: Any) -> Any:
    """The code point at byte i in its half-width form, and the byte behind it."""
    c, after = decode(data, i)
    return _half(c), after


@kernel(leaf=True)
def _is_separator(c: Any) -> Any:
    is_dot = c == 46 or c == 0xB7 or c == 0x2022 or c == 0x2027 or c == 0x2219 or c == 0x30FB  # those of window.py
    return is_dot or c == 32 or c == 45 or c == 40 or c == 41 or 0x2010 <= c <= 0x2015 or c == 0x2212


@kernel(leaf=True)
def _is_alphanumeric(c: Any) -> Any:
    return 48 <= c <= 57 or 97 <= (c | 32) <= 122


@kernel(leaf=True)
def _is_group(data: Array, i: Any, end: Any) -> Any:
    """Four hexadecimal digits and a colon at byte i, as public IPv6 addresses begin."""
    c = np.int64(0)
    for _ in range(4):
        if i >= end:
            return False
        c, i = _next(data, i)
        if not (48 <= c <= 57 or 97 <= c <= 102):
            return False
    return i < end and _next(data, i)[0] == 58


@kernel(leaf=True)
def _is_dotted(data: Array, i: Any, end: Any) -> bool:
    """Four numbers up to 255 between dots at byte i."""
    for part in range(4):
        value = np.int64(0)
        digits = 0
        c = np.int64(0)
        while i < end and digits <= 3:
            c, i = _next(data, i)
            if not 48 <= c <= 57:
                break
            value = 10 * value + c - 48
            digits += 1
        if digits == 0 or value > 255 or (part < 3 and c != 46):
            return False
    return True


@kernel(leaf=True)
def _number_kind(data: Array, i: Any, end: Any, before: Any) -> int:
    """What a run of digits that begins at byte i may be, by its digits and separators and the character before."""
    first = second = opening = np.int64(0)  # the first two digits, and what ends the first run
    digits = run = separators = dots = lead = 0
    short = True  # at most three digits between dots
    at = i
    while at < end and digits < 24:
        c, after = _next(data, at)
        if 48 <= c <= 57:
            if digits == 0:
                first = c
            elif digits == 1:
                second = c
            digits += 1
            run += 1
            separators = 0
            short &= run <= 3
        else:
            if lead == 0:
                lead = digits
                opening = c
            separators += 1
            if not _is_separator(c) or separators > MAX_SEPARATORS:
                break
            dots += dots >= 0 and c == 46 and run > 0 and digits <= 9 and short
            run = 0
        at = after
    if (first == 50 or first == 51) and digits <= 4 and _is_group(data, i, end):
        return GROUPS
    if lead == 0:
        lead = digits
    if 65 <= before <= 90 or 0xFF21 <= before <= 0xFF3A:  # A123456(7), A123456A, A123456789
        if (lead == 6 and opening in (40, 32, 97)) or (7 <= lead <= 9 and not 97 <= opening <= 122):
            return LETTERED
    if first == 49:
        enough = digits >= MIN_DIGITS + 1
    elif first == 48:
        enough = digits >= MIN_DIGITS or (digits == MIN_DIGITS - 1 and lead <= 4)
    elif first == 56 and (second == 53 or second == 54 or second == 56):  # 852, 86, 886
        enough = digits >= MIN_DIGITS + (second != 54)
    else:
        enough = digits >= MIN_LONG_DIGITS
    if enough or (lead == 7 and digits == 8 and opening in (40, 47)):  # 1234567(8)
        return NUMBER
    return DOTTED if dots >= 3 and _is_dotted(data, i, end) else 0


@kernel(leaf=True)
def _is_account(data: Array, i: Any, end: Any) -> bool:
    """Whether an account may stand behind the colon before byte i: five of its characters in a row, after a few
    signs."""
    length = 0
    for _ in range(MAX_GAP + MIN_ACCOUNT):
        if i >= end:
            return False
        c, i = _next(data, i)
        if _is_alphanumeric(c) or (length > 0 and (c == 95 or _is_separator(c))):
            length += 1
            if length == MIN_ACCOUNT:
                return True
        elif length > 0:
            return False
    return False


@kernel(leaf=True)
def _is_called(data: Array, i: Any, end: Any) -> bool:
    """Whether a digit stands in the few characters from byte i on, of the same line."""
    for _ in range(MAX_CALL):
        if i >= end:
            return False
        c, i = _next(data, i)
        if c == 10 or 48 <= c <= 57:
            return bool(c != 10)
    return False


@kernel(leaf=True)
def _is_at(data: Array, after: Any, end: Any, before: Any) -> Any:
    """Whether an at sign can be an address's: between a name and a domain, or between spaces. Not @media, "@"."""
    following = _next(data, after)[0] if after < end else np.int64(0)
    if before == 32:
        return following == 32
    is_name = _is_alphanumeric(before) or before in (37, 43, 45, 46, 95) or before >= 0x80  # % + - . _
    return is_name and (_is_alphanumeric(following) or following == 32)


@kernel(leaf=True)
def _word_kind(data: Array, i: Any, end: Any, tables: Any) -> int:
    """ACCOUNT where a word that announces one begins at byte i."""
    first, i = _next(data, i)
    second = third = np.int64(0)
    for k in range(3):
        if i >= end:
            return 0
        second, i = _next(data, i)
        if k == 2 or second >= 0x10000 or not tables.skippable[second]:
            break
        if second == 0x2764 or second == 0x2665:
            key = (first << 32) | (second << 16)
            if tables.pairs[min(np.searchsorted(tables.pairs, key), len(tables.pairs) - 1)] == key:
                return ACCOUNT
    if second >= 0x10000:
        return 0
    behind = i
    if i < end:
        third, _ = _next(data, i)
    if second == 58 and not _is_account(data, i, end):
        return 0
    telling = third
    if first == 112 or second == 104:  # passport, WhatsApp
        for _ in range(3):
            if i < end:
                telling, i = _next(data, i)
    key = (first << 32) | (second << 16)
    at = np.searchsorted(tables.pairs, key)  # vx, but not vxlan
    while at < len(tables.pairs) and tables.pairs[at] >> 16 == key >> 16:
        letter = tables.pairs[at] & 0xFFFF
        if letter == CALLED:
            return ACCOUNT if _is_called(data, behind, end) else 0
        if letter == telling or (
            letter == 0 and not (min(first, second, third) >= 97 and max(first, second, third) <= 122)
        ):
            return ACCOUNT
        at += 1
    return 0


@kernel()
def _find_places(offsets: Array, data: Array, tables: Any, out: Array) -> int:
    flags = tables.flags
    count = 0
    for row in range(len(offsets) - 1):
        i = offsets[row]
        end = offsets[row + 1]
        character = 0
        before = np.int64(0)
        while i < end:
            lead = data[i]
            if 0xE0 <= lead < 0xF0:
                c = (np.int64(lead & 15) << 12) | (np.int64(data[i + 1] & 63) << 6) | np.int64(data[i + 2] & 63)
                after = i + 3
            elif lead < 0x80:
                c = np.int64(lead)
                after = i + 1
            elif lead < 0xE0:
                c = (np.int64(lead & 31) << 6) | np.int64(data[i + 1] & 63)
                after = i + 2
            else:
                c = np.int64(0)
                after = i + 4
            flag = flags[c]
            if flag and not (flag == _WORD and 97 <= (before | 32) <= 122 and c < 0x80):
                kind = 0
                if flag == _DIGIT:
                    if flags[before] != _DIGIT:
                        kind = _number_kind(data, i, end, before)
                elif flag == _AT:
                    if c == 64 or c == 0xFF20:
                        if _is_at(data, after, end, before):
                            kind = AT
                    else:
                        at = after + (after < end and data[after] == 32)
                        if at + 1 < end and (data[at] | 32) == 97 and (data[at + 1] | 32) == 116:
                            kind = AT
                elif flag == _PROVINCE:
                    if after < end:
                        if 97 <= _next(data, after)[0] <= 122:
                            kind = PLATE
                else:
                    kind = _word_kind(data, i, end, tables)
                if kind:
                    if count < out.shape[1]:
                        out[0, count] = row
                        out[1, count] = character
                        out[2, count] = kind
                    count += 1
            before = c
            character += 1
            i = after
    return count

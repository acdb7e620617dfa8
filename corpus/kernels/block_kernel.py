"""Blocks: what a line is (code, formula, row of a table, item of a list, verse, speech), by its bytes and neighbours.

`line_kernel` calls `count_line` once a line, when it knows the line's classes. Long lines of Han without ASCII marks
and spaces, most of Chinese text, are prose at once; the bytes of the others are walked once more. Nothing looks ahead:
verse and dialogue, which only several lines make, are counted when the run of lines ends or a speaker comes back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.engine.compiled import kernel
from corpus.kernels.code_points import Array, code_point_class, decode, mix
from corpus.kernels.tables import BULLET, CLASS_MASK, DIGIT, SYMBOL

# What a line is.
PROSE, CODE, FORMULA, TABLE, LIST = range(5)

# Columns of a document's counts, in code points; `count_line` and `end_run` add to them.
CODE_CHARS, FORMULA_CHARS, TABLE_CHARS, LIST_CHARS, VERSE_LINES, METRE_CHARS, DIALOGUE_CHARS, TEXT_HAN = range(8)
NUM_BLOCK_COLUMNS = 8

# Columns of the state between lines, int64.
(
    FENCE,  # the byte of the open code fence, or 0
    MATH,  # inside $$, \[ or \begin
    LAST_BLOCK,
    LAST_CELLS,  # cells of the line before, by tabs or gaps
    LAST_COMMAS,  # commas of the line before that no space follows
    RUN_LINES,  # of the run of short lines
    RUN_CHARS,
    RUN_HAN,
    RUN_FUNCTIONS,
    RUN_MARKED,  # that end in a mark
    RUN_EVEN,  # that have as many Han as the line before, or the one before that
    RUN_LAST,  # Han of the line before
    RUN_BEFORE,  # Han of the line before that
    SPEAKER,  # the next place among the speakers
    SPEAKERS,  # hashes of the last NUM_SPEAKERS speakers; then the characters of lines that still wait for a second one
) = range(15)
NUM_SPEAKERS = 8
NUM_STATE_COLUMNS = SPEAKERS + 2 * NUM_SPEAKERS

MAX_VERSE_HAN = 32  # of a line
MIN_VERSE_LINES = 4
VERSE_FUNCTIONS = 12  # one function character in so many Han: lyrics have one in 4 to 8, menus one in 20 or fewer
MAX_SPEAKER_BYTES = 36  # twelve Han
MAX_FORMULA_BYTES = 400  # between two dollars
CODE_INDENT = 4
MAX_SIGN_GAP = 40  # code points a sign: prose in English has an apostrophe or a bracket now and then
MAX_CELL = 40  # mean code points of a row's cells, and of a formula's commands: no page without line breaks
MAX_TILDES = 24  # a longer line of them is a ruler
MAX_QUOTES = 4  # double ones in a formula's line


@kernel(leaf=True)
def count_line(
    data: Array,
    table: Array,
    counts: Array,
    state: Array,
    first: int,
    start: int,
    stop: int,
    length: int,
    han: int,
    latin: int,
    digits: int,
    ascii_marks: int,
    spaces: int,
    functions: int,
    is_marked: bool,
) -> int:
    """Count and tell the block of a line that begins at byte `first`; its text is bytes `start` to `stop`.

    `length` is its code points, `han` to `functions` count its classes, `spaces` with those before it; `is_marked`: it
    ends like a sentence.
    """
    mark = data[start]
    block = PROSE
    inline = inline_han = 0
    is_fence = (mark == 0x60 or mark == 0x7E) and stop - start >= 3 and data[start + 1] == mark == data[start + 2]
    is_fence = is_fence and han == 0 and (mark == 0x60 or stop - start <= MAX_TILDES)
    if state[FENCE] > 0:
        block = PROSE if 3 * han > length else CODE
        if is_fence and state[FENCE] == mark and latin == 0:
            state[FENCE] = 0
    elif is_fence:
        block = CODE
        state[FENCE] = mark
    elif ascii_marks > 1 or spaces - (start - first) > 1 or 2 * han < length or state[LAST_BLOCK] == CODE:
        indent = start - first if start > first and data[start - 1] < 0x80 else 0  # U+3000 opens a paragraph
        block, inline, inline_han = _look(data, state, start, stop, indent, length, han, latin, is_marked)
    else:
        state[MATH] = state[LAST_CELLS] = state[LAST_COMMAS] = 0
    if block == PROSE and _is_item(data, table, start, stop):
        block = LIST
    if block == CODE:
        counts[CODE_CHARS] += length
    elif block == FORMULA:
        counts[FORMULA_CHARS] += length
    elif block == TABLE:
        counts[TABLE_CHARS] += length
    else:
        counts[FORMULA_CHARS] += inline
        counts[TEXT_HAN] -= min(inline_han, han)
        if block == LIST:
            counts[LIST_CHARS] += length
    if block != CODE and block != FORMULA:
        counts[TEXT_HAN] += han
    is_comment = mark == 0x23 or mark == 0x2F or mark == 0x2A or start - first > 0  # # // * or indented
    if block != PROSE or not is_comment:  # what a comment says is text, and code goes on after it
        state[LAST_BLOCK] = block
    if block in (PROSE, LIST):
        counts[DIALOGUE_CHARS] += _spoken(data, state, start, stop, length)
    if block == PROSE and 2 <= han <= MAX_VERSE_HAN and digits == 0 and 10 * han >= 7 * (length - 2):
        state[RUN_EVEN] += han == state[RUN_LAST] or han == state[RUN_BEFORE]
        state[RUN_LINES] += 1
        state[RUN_CHARS] += length
        state[RUN_HAN] += han
        state[RUN_FUNCTIONS] += functions
        state[RUN_MARKED] += is_marked
        state[RUN_BEFORE] = state[RUN_LAST]
        state[RUN_LAST] = han
    else:
        end_run(counts, state)
    return block


@kernel(leaf=True)
def end_run(counts: Array, state: Array) -> None:
    """End a run of short lines; it is verse where it reads like text or its lines are of one length."""
    lines = state[RUN_LINES]
    if lines >= MIN_VERSE_LINES:
        mean = state[RUN_HAN] // lines
        is_text = VERSE_FUNCTIONS * state[RUN_FUNCTIONS] >= state[RUN_HAN]
        is_metre = mean >= 5 and 9 * state[RUN_EVEN] >= 4 * (lines - 1)  # couplets have half, headlines a fifth
        if is_text or is_metre or 2 * state[RUN_MARKED] >= lines:
            counts[VERSE_LINES] += state[RUN_CHARS]
    state[RUN_LINES : RUN_BEFORE + 1] = 0


@kernel(leaf=True)
def _look(
    data: Array, state: Array, start: int, stop: int, indent: int, length: int, han: int, latin: int, is_marked: bool
) -> tuple[int, int, int]:
    """The block of a line that holds ASCII or spaces, and the code points and the Han of formulas in it."""
    pipes = tabs = gaps = commas = quotes = commands = signs = inline = inline_han = 0
    opened = -1
    is_formula = False
    dollars = 0
    before = np.uint8(32)
    is_address = False
    for i in range(start, stop):
        byte = data[i]
        if is_address:  # its marks are no code
            is_address = 0x21 <= byte <= 0x7A and byte != 0x29
        if is_address:
            before = byte
            continue
        if byte > 0x7E or _is_letter(byte) or 0x30 <= byte <= 0x39:  # most of a line, and no mark
            before = byte
            continue
        if byte == 0x3A and i + 2 < stop and data[i + 1] == data[i + 2] == 0x2F:  # ://
            is_address = True
        after = data[i + 1] if i + 1 < stop else np.uint8(10)
        if byte == 0x7C:  # |
            pipes += 1
            signs += after == 0x7C
        elif byte == 0x09:
            tabs += 1
        elif byte == 0x20:
            gaps += before != 0x20 and after == 0x20
        elif byte == 0x24:  # $
            dollars += 1
            if opened >= 0 and i - opened > 1 and before != 0x20:
                if is_formula and i - opened < MAX_FORMULA_BYTES:
                    for k in range(opened, i + 1):
                        inline += data[k] & 0xC0 != 0x80
                        inline_han += data[k] >= 0xE3
                opened = -1
            elif opened < 0 or before == 0x20:
                opened = i
                is_formula = False
        elif byte == 0x5C:  # \ and a letter or a bracket
            if _is_letter(after) or after == 0x5B or after == 0x5D:
                commands += 1
                is_formula = True
                if (after == 0x5B and i == start) or (
                    after == 0x62 and _starts(data, i + 1, stop, 0x62, 0x65, 0x67)
                ):  # \[ \beg
                    state[MATH] = 1
                elif (after == 0x5D and state[MATH] == 1) or (
                    after == 0x65 and _starts(data, i + 1, stop, 0x65, 0x6E, 0x64)
                ):  # \] \end
                    state[MATH] = -1
        elif byte == 0x5E or byte == 0x5F or byte == 0x3D or byte == 0x2B or byte == 0x3C or byte == 0x3E:  # ^_=+<>
            is_formula = True
            if byte == 0x3D:
                signs += after == 0x3D or after == 0x3E or before == 0x20 or before in (0x21, 0x2B, 0x2D, 0x3A)
            elif byte == 0x3C:
                signs += after == 0x2F or _is_letter(after)
            elif byte == 0x3E:
                signs += before == 0x2D or before == 0x2F
            elif byte == 0x5F:
                signs += _is_letter(before) and _is_letter(after)
        elif byte == 0x28:  # (
            signs += after == 0x29 or _is_letter(before)
        elif byte == 0x7B or byte == 0x7D:  # { }
            signs += 1
        elif byte == 0x5B:
            signs += _is_letter(before) or after == 0x5D
        elif byte == 0x3B:
            signs += i == stop - 1 and han == 0
        elif byte == 0x3A or byte == 0x26 or byte == 0x2F:  # :: && //
            signs += after == byte and before != 0x3A
        elif byte == 0x2D:
            signs += before == 0x20 and (after == 0x2D or _is_letter(after))
        elif byte == 0x2E:
            signs += _is_letter(before) and _is_letter(after)
        elif byte == 0x2C:
            commas += after != 0x20
        elif byte == 0x22:
            quotes += 1
            signs += before in (0x28, 0x2C, 0x3A, 0x3D, 0x5B, 0x7B)  # ( , : = [ {
        before = byte
    is_display = state[MATH] != 0
    if dollars % 2 == 0 and dollars > 0 and stop - start == 2:  # $$ alone opens or closes
        state[MATH] = 0 if state[MATH] == 2 else 2
        is_display = True
    if state[MATH] == -1:
        state[MATH] = 0
    if quotes >= MAX_QUOTES:  # a program with backslashes and dollars in its strings
        is_display = False
        commands = inline = state[MATH] = 0
    if is_display and 2 * han < length:
        return FORMULA, 0, 0
    if is_display:
        state[MATH] = 0  # prose: what opened was none, or never closed
    if commands >= 2 and inline == 0 and 3 * han < length < MAX_CELL * commands:
        return FORMULA, 0, 0
    if pipes >= 2 and (data[start] == 0x7C or pipes >= 3) and signs < pipes:
        return TABLE, 0, 0
    cells = tabs if tabs > 0 else gaps
    is_row = (cells >= 2 or (cells == 1 and state[LAST_CELLS] == 1)) and length < MAX_CELL * (cells + 1)
    state[LAST_CELLS] = cells
    if is_row and data[start] != 0x2A and data[start] != 0x2D and not (signs >= 2 and 4 * han < length):
        return TABLE, 0, 0
    is_row = commas >= 2 and commas == state[LAST_COMMAS] and not is_marked and data[stop - 1] != 0x29
    state[LAST_COMMAS] = commas
    if is_row:
        return TABLE, 0, 0
    if inline > 0:
        return PROSE, inline, inline_han
    mark = data[start]
    last = data[stop - 1]
    signs += mark == 0x7D or mark == 0x40 or last == 0x7B or (last == 0x3A and 0x61 <= mark <= 0x7A)
    signs += (mark == 0x24 or mark == 0x23) and stop - start > 2 and data[start + 1] == 0x20 and han == 0
    is_code_before = state[LAST_BLOCK] == CODE
    if han == 0 and latin > 0:
        if MAX_SIGN_GAP * signs >= length or (is_code_before and last != 0x2E) or indent >= CODE_INDENT:
            return CODE, 0, 0
    elif han == 0:
        if is_code_before and length <= 8:
            return CODE, 0, 0
    elif latin > 0 and signs >= 2 and 4 * han < length <= MAX_SIGN_GAP * signs:
        return CODE, 0, 0
    elif mark == 0x3C and last == 0x3E and data[start + 1] in (0x6C, 0x6D, 0x73):  # <link <meta <script
        return CODE, 0, 0
    return PROSE, 0, 0


@kernel(leaf=True)
def _is_item(data: Array, table: Array, start: int, stop: int) -> Any:
    """Opens with a bullet, a number or a letter of a list: `- `, `3.`, `（一）`, `二、`, `①`, `B．`."""
    c, i = decode(data, start)
    entry = code_point_class(table, c)
    if entry & BULLET:
        return i < stop and (data[i] == 0x20 or data[i] >= 0x80)
    cls = entry & CLASS_MASK
    if cls == SYMBOL:
        return 0x2460 <= c <= 0x24FF or 0x2776 <= c <= 0x2793
    is_bracket = c == 0x28 or c == 0xFF08 or c == 0x5B or c == 0x3010
    if is_bracket:
        if i >= stop:
            return False
        c, i = decode(data, i)
        cls = code_point_class(table, c) & CLASS_MASK
    digits = 0
    is_letter = 0x41 <= c <= 0x48 or 0x61 <= c <= 0x68
    while digits < 4 and (cls == DIGIT or _is_numeral(c)) and i < stop:
        digits += 1
        c, i = decode(data, i)
        cls = code_point_class(table, c) & CLASS_MASK
    if digits == 0:
        if not is_letter or i >= stop:
            return False
        c, i = decode(data, i)
    if digits == 4:
        return False
    if is_bracket:
        return c == 0x29 or c == 0xFF09 or c == 0x5D or c == 0x3011
    if c == 0x2E:  # 3. but not 3.5
        return i < stop and not 0x30 <= data[i] <= 0x39
    return c == 0x3001 or c == 0xFF0E or c == 0x29 or c == 0xFF09


@kernel(leaf=True)
def _spoken(data: Array, state: Array, start: int, stop: int, length: int) -> Any:
    """Code points of speech that a line settles: its own, and those of a speaker's first line when they speak again."""
    if data[start] == 0xE2 and stop - start > 6 and data[start + 1] == 0x80 and data[start + 2] == 0x9C:  # “
        return length
    if data[start] == 0xE3 and stop - start > 6 and data[start + 1] == 0x80 and data[start + 2] in (0x8C, 0x8E):  # 「『
        return length
    colon = _colon(data, start, stop)
    if colon < 0:
        return 0
    hashed = np.uint64(0)
    letters = 0
    for i in range(start, colon):
        letters += not 0x30 <= data[i] <= 0x39
        if data[i] != 0x20:
            hashed = mix(hashed * np.uint64(31) + np.uint64(data[i]))
    if letters == 0:
        return 0
    speaker = np.int64(hashed >> np.uint64(1)) | 1
    for place in range(SPEAKERS, SPEAKERS + NUM_SPEAKERS):
        if state[place] == speaker:
            waiting = state[place + NUM_SPEAKERS]
            state[place + NUM_SPEAKERS] = 0
            return length + waiting
    place = SPEAKERS + state[SPEAKER]
    state[SPEAKER] = (state[SPEAKER] + 1) % NUM_SPEAKERS
    state[place] = speaker
    state[place + NUM_SPEAKERS] = length
    return 0


@kernel(leaf=True)
def _colon(data: Array, start: int, stop: int) -> int:
    """The byte of a colon near the beginning of a line, after something and not in ://; -1 where there is none."""
    for i in range(start, min(start + MAX_SPEAKER_BYTES, stop - 1)):
        byte = data[i]
        if byte == 0x3A or (byte == 0xEF and data[i + 1] == 0xBC and i + 2 < stop and data[i + 2] == 0x9A):
            return i if i > start and not (byte == 0x3A and data[i + 1] == 0x2F) else -1
    return -1


@kernel(leaf=True)
def _is_letter(byte: Any) -> Any:
    return 0x61 <= byte | 0x20 <= 0x7A


@kernel(leaf=True)
def _starts(data: Array, i: int, stop: int, a: int, b: int, c: int) -> bool:
    return i + 2 < stop and data[i] == a and data[i + 1] == b and data[i + 2] == c


@kernel(leaf=True)
def _is_numeral(c: Any) -> bool:
    """一二三四五六七八九十百"""
    if c < 0x4E00 or c > 0x767E:
        return False
    return c in (0x4E00, 0x4E8C, 0x4E09, 0x56DB, 0x4E94, 0x516D, 0x4E03, 0x516B, 0x4E5D, 0x5341, 0x767E)

"""Classes and lines: one pass over the bytes of a batch counts the classes of its code points and the shapes of its
lines.

Two thirds of Chinese text is Han, which carries no flag and opens nothing: it takes a short way through the loop. Lines
are compared exactly with earlier ones of the same hash. The shape of a line is looked at, in a second walk over its
bytes, only where it is short, holds a digit and does not end like a sentence: entries of lists, not paragraphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.engine.compiled import kernel
from corpus.kernels.block_kernel import METRE_CHARS, NUM_BLOCK_COLUMNS, NUM_STATE_COLUMNS, PROSE, count_line, end_run
from corpus.kernels.code_points import Array, code_point_class, decode, mix, slots_for
from corpus.kernels.tables import (
    ASCII_PUNCTUATION,
    BULLET,
    CLASS_MASK,
    CLAUSE_END,
    CLOSER,
    DIGIT,
    FUNCTION,
    HAN,
    HAN_EXTENSION,
    HIGH_LATIN,
    JAPANESE,
    LATIN,
    MOJIBAKE,
    NEWLINE,
    NUM_CLASSES,
    SENTENCE_END,
    STOP,
    TERMINAL,
    WHITESPACE,
    WIDE_PUNCTUATION,
)

LABEL_BELOW = 30  # code points: a headline or an entry of a menu is below this
ENTRY_BELOW = 100  # an entry of a list is below this
HASH_FACTOR = 0x9E3779B97F4A7C15
MIN_CLAUSES = 4  # of one metre: a quatrain; twice as many of 4 Han, which prose has as well
ENTITY_CHARS = 8  # of a name or number
ENTITIES = tuple(int.from_bytes(name.encode(), "big") for name in ("nbsp", "amp", "lt", "gt", "quot", "ldquo", "rdquo"))
MIN_HIGH_LATIN = 4  # accented letters in a row that no language writes: GBK, or UTF-8, read as Latin-1

# Columns of `measure_lines` after the NUM_CLASSES class counts.
(
    NUM_CHARS,
    NUM_LINES,
    LINE_CHARS,
    DUPLICATE_LINES,
    DUPLICATE_LINE_CHARS,
    BULLET_LINES,
    ELLIPSIS_LINES,
    STOP_LINES,
    TERMINAL_LINE_CHARS,
    LABEL_LINE_CHARS,
    LIKE_LINES,
    SENTENCE_ENDS,
    STRAY_MARKS,
    ISOLATED_LATIN,
    LONGEST_RUN,
    MOJIBAKE_CHARS,
    JAPANESE_HAN,
    PINYIN_GLOSSES,
    ESCAPED_CHARS,
    FUNCTION_HAN,
    HALF_MARKS,
    BLOCKS,  # the first of NUM_BLOCK_COLUMNS, see block_kernel
) = range(NUM_CLASSES, NUM_CLASSES + 22)
NUM_LINE_COLUMNS = BLOCKS + NUM_BLOCK_COLUMNS


@kernel()
def measure_lines(offsets: Array, data: Array, table: Array, out: Array) -> None:
    """Class counts and line statistics of each document into `out`, int64[documents, NUM_LINE_COLUMNS].

    A line is what stands between line feeds, without the white space around it; empty lines do not count.
    """
    max_lines = _most_line_feeds(offsets, data) + 1
    slots = np.zeros(slots_for(max_lines), np.uint32)  # base + line number; below base it is another document's
    mask = np.uint64(len(slots) - 1)
    base = np.uint32(1)
    line_start = np.empty(max_lines, np.int64)
    line_end = np.empty(max_lines, np.int64)
    line_hash = np.empty(max_lines, np.uint64)
    state = np.empty(NUM_STATE_COLUMNS, np.int64)  # of blocks, between lines
    opened = np.empty(NUM_CLASSES, np.int64)  # the class counts at the beginning of the line
    for row in range(len(offsets) - 1):
        counts = out[row]
        counts[:] = 0
        if np.int64(base) + max_lines >= 0xFFFFFFFF:
            slots[:] = 0
            base = np.uint32(1)
        i = offsets[row]
        end = offsets[row + 1]
        state[:] = 0
        opened[:] = 0
        first = i  # byte of the line
        functions = line_functions = line_han = half_marks = 0
        clause = clauses = clause_from = clause_han = 0  # Han of the last clause, how many had as many; where one began
        lines = isolated = longest_run = run = high = gloss = 0
        previous = before = np.uint32(0)
        previous_class = NEWLINE
        last_class = NEWLINE  # of the line, white space aside
        before_class = NEWLINE  # the class before the previous one
        previous_stop = False
        # state of the line: content runs from start to stop (bytes), `length` code points up to stop
        start = stop = i
        length = pending = dots = 0
        is_terminal = is_stop = is_bullet = is_open = has_digit = False
        likeness = np.uint64(0)  # of the line before
        content = np.uint64(0)  # a hash of the line's characters, and of how much white space is between them
        while i <= end:
            if i < end:
                c, after = decode(data, i)
                entry = code_point_class(table, c)
                cls = entry & CLASS_MASK
                counts[cls] += 1
            else:
                c, after, entry, cls = np.uint32(10), i + 1, NEWLINE, NEWLINE
            if HAN <= cls <= HAN_EXTENSION:
                if length == 0:
                    start = i
                content = (content ^ np.uint64(c) ^ (np.uint64(pending) << np.uint64(32))) * np.uint64(HASH_FACTOR)
                if length == clause_from:
                    clause_from += pending
                length += pending + 1
                pending = dots = high = gloss = 0
                stop = after
                last_class = cls
                run = run + 1 if c == previous else 1
                longest_run = max(longest_run, run)
                is_terminal = is_stop = previous_stop = False
                is_open = True
                if previous_class == LATIN and HAN <= before_class <= HAN_EXTENSION:
                    isolated += 1
                if entry & MOJIBAKE:
                    counts[MOJIBAKE_CHARS] += _mojibake_chars(before, previous, c, run)
                if entry & JAPANESE:
                    counts[JAPANESE_HAN] += 1
                line_functions += entry & FUNCTION != 0
                line_han += 1
                more = after
                while after < end and 0xE4 <= data[after] <= 0xE9:  # a run of Han, few things to keep
                    following, beyond = decode(data, after)
                    entry = code_point_class(table, following)
                    cls = entry & ~FUNCTION
                    if not HAN <= cls <= HAN_EXTENSION or following == c:  # another flag, or the same again
                        break
                    counts[cls] += 1
                    line_functions += cls != entry
                    content = (content ^ np.uint64(following)) * np.uint64(HASH_FACTOR)
                    previous = c
                    c = following
                    after = beyond
                cls = last_class
                if after > more:
                    length += (after - more) // 3
                    line_han += (after - more) // 3
                    stop = after
                    run = 1
            elif cls == NEWLINE:
                if length > 0:
                    lines += 1
                    counts[LINE_CHARS] += length
                    counts[BULLET_LINES] += is_bullet
                    counts[STOP_LINES] += is_stop
                    if is_terminal:
                        counts[TERMINAL_LINE_CHARS] += length
                    if dots >= 3:
                        counts[ELLIPSIS_LINES] += 1
                    number = lines - 1
                    line_start[number] = start
                    line_end[number] = stop
                    line_hash[number] = mix(content)
                    if _find_line(data, line_start, line_end, line_hash, slots, mask, base, number):
                        counts[DUPLICATE_LINES] += 1
                        counts[DUPLICATE_LINE_CHARS] += length
                    if length > clause_from:  # without a mark; lines of 4 or 6 are entries of a menu
                        size = length - clause_from if length - clause_from in (5, 7) else 0
                        clause, clauses = _count_clause(counts, clause, clauses, line_han - clause_han, size)
                    block = count_line(
                        data,
                        table,
                        counts[BLOCKS:],
                        state,
                        first,
                        start,
                        stop,
                        length,
                        line_han,
                        counts[LATIN] - opened[LATIN],
                        counts[DIGIT] - opened[DIGIT],
                        counts[ASCII_PUNCTUATION] - opened[ASCII_PUNCTUATION],
                        counts[WHITESPACE] - opened[WHITESPACE],
                        line_functions,
                        is_terminal,
                    )
                    functions += line_functions
                    if (
                        block == PROSE
                        and length < LABEL_BELOW
                        and 3 * line_han >= length
                        and counts[WIDE_PUNCTUATION] == opened[WIDE_PUNCTUATION]
                        and HAN <= last_class <= HAN_EXTENSION
                    ):
                        counts[LABEL_LINE_CHARS] += length
                    shape = np.uint64(0)
                    if has_digit and length < ENTRY_BELOW and not is_terminal:
                        shape = _shape(data, table, start, stop)
                        counts[LIKE_LINES] += shape == likeness
                    likeness = shape
                for k in (LATIN, DIGIT, ASCII_PUNCTUATION, WIDE_PUNCTUATION, WHITESPACE):
                    opened[k] = counts[k]
                content = np.uint64(0)
                first = after
                line_han = line_functions = clause_from = clause_han = 0
                length = pending = dots = run = high = gloss = 0
                is_terminal = is_stop = is_bullet = is_open = has_digit = previous_stop = False
            elif cls == WHITESPACE:
                if length > 0:
                    pending += 1
                run = high = gloss = 0
            else:
                if length == 0:
                    start = i
                    is_bullet = entry & BULLET != 0
                    half_marks -= is_bullet and cls == WIDE_PUNCTUATION  # it is counted among those, and is no mark
                content = (content ^ np.uint64(c) ^ (np.uint64(pending) << np.uint64(32))) * np.uint64(HASH_FACTOR)
                length += pending + 1
                pending = 0
                stop = after
                last_class = cls
                has_digit |= cls == DIGIT
                is_stop = c == 0x2E or (entry & SENTENCE_END != 0 and c != 0x2026)  # . and all but …
                run = run + 1 if c == previous and run > 0 else 1
                longest_run = max(longest_run, run)
                if c == 0x2026:  # … counts as three dots
                    dots += 3
                elif c == 0x2E or c == 0x3002:
                    dots += 1
                elif entry & CLOSER == 0:
                    dots = 0
                if entry & CLOSER == 0:
                    is_terminal = entry & TERMINAL != 0
                    if entry & SENTENCE_END:
                        counts[SENTENCE_ENDS] += is_open
                        is_open = False
                    else:
                        is_open = True
                if cls == ASCII_PUNCTUATION and HAN <= previous_class <= HAN_EXTENSION:
                    half_marks += entry & CLAUSE_END != 0
                if entry & CLAUSE_END and length - 1 > clause_from:
                    clause, clauses = _count_clause(
                        counts, clause, clauses, line_han - clause_han, length - 1 - clause_from
                    )
                    clause_from, clause_han = length, line_han
                if entry & STOP:
                    if previous_stop:
                        counts[STRAY_MARKS] += 1
                    previous_stop = True
                else:
                    previous_stop = False
                if entry & HIGH_LATIN:
                    high += 1
                    if high >= MIN_HIGH_LATIN:
                        counts[MOJIBAKE_CHARS] += 1 if high > MIN_HIGH_LATIN else MIN_HIGH_LATIN
                else:
                    if high > 0 and 0xA1 <= c < 0xC0:  # two bytes of UTF-8, read as Latin-1
                        counts[MOJIBAKE_CHARS] += 2 if high < MIN_HIGH_LATIN else 1
                    high = 0
                if c == 0x28 or c == 0xFF08:  # after the second of two Han
                    gloss = 1 if HAN <= previous_class <= HAN_EXTENSION and 0x3400 <= before < 0xA000 else 0
                elif gloss > 0:
                    if cls == LATIN and c < 0x250 and gloss & 0xFF <= 6:
                        gloss += 1 if c < 0x80 else 0x101  # letters and, above, those with a tone mark
                    else:
                        counts[PINYIN_GLOSSES] += gloss > 0xFF and (c == 0x29 or c == 0xFF09)
                        gloss = 0
                if c == 0x26 or c == 0x5C:
                    counts[ESCAPED_CHARS] += _escape_chars(data, i, end)
            before_class = previous_class
            previous_class = cls
            before = previous
            previous = c
            i = after
        _count_clause(counts, clause, clauses, 0, 1)
        end_run(counts[BLOCKS:], state)
        base += np.uint32(lines)
        counts[NUM_CHARS] = counts[:NUM_CLASSES].sum()
        counts[NUM_LINES] = lines
        counts[FUNCTION_HAN] = functions
        counts[HALF_MARKS] = half_marks
        counts[ISOLATED_LATIN] = isolated
        counts[LONGEST_RUN] = longest_run


@kernel(leaf=True)
def _count_clause(counts: Array, clause: int, clauses: int, han: int, length: int) -> tuple[int, int]:
    """Go on to a clause of so many Han; many in a row of one metre, 4 to 7 Han, are verse."""
    if han == clause and han == length:
        return clause, clauses + 1
    if clauses >= (MIN_CLAUSES if clause > 4 else 2 * MIN_CLAUSES):
        counts[BLOCKS + METRE_CHARS] += clauses * (clause + 1)
    return (han, 1) if han == length and 4 <= han <= 7 else (0, 0)


@kernel(leaf=True)
def _mojibake_chars(before: Any, previous: Any, c: Any, run: int) -> int:
    """Characters of mojibake that the suspect c adds: 锟斤拷 烫烫烫 屯屯屯, or 锛 銆 鈥 and what follows each."""
    if c == 0x62F7:  # 锟斤拷: two U+FFFD in UTF-8, read as GBK
        return 3 if before == 0x951F and previous == 0x65A4 else 0
    if c == 0x70EB or c == 0x5C6F:  # 烫 屯: memory that was never written (0xCC, 0xCD), read as GBK
        return 3 if run == 3 else run > 3
    return 1 if previous in (0x951B, 0x9286, 0x9225) else 2  # ，。“ in UTF-8 begin so, read as GBK


@kernel(leaf=True)
def _escape_chars(data: Array, i: Any, end: Any) -> Any:
    """Length of the escape that begins here, 0 where none does: &nbsp; &#20013; \\u4e2d."""
    name = np.int64(0)
    for k in range(i + 1, min(i + 2 + ENTITY_CHARS, end)):
        c, at = data[k], k - i
        is_hex = 0x30 <= c <= 0x39 or 0x41 <= (c & 0xDF) <= 0x46
        if data[i] == 0x26:
            if c == 0x3B:
                return at + 1 if name in ENTITIES or (data[i + 1] == 0x23 and at > 2) else 0
            if not (0x30 <= c <= 0x39 or 0x61 <= (c | 0x20) <= 0x7A or (c == 0x23 and at == 1)):
                return 0
            name = (name << 8) | np.int64(c)
        elif at == 1:
            if c != 0x75:
                return 0
        elif not is_hex or (at == 2 and not 0x34 <= c <= 0x39):
            return 0
        elif at == 5:
            return 6
    return 0


@kernel(leaf=True)
def _shape(data: Array, table: Array, start: int, stop: int) -> Any:
    """A hash of a line with every run of Han, Latin letters or digits as one sign."""
    shape = np.uint64(1)
    previous = NEWLINE
    i = start
    while i < stop:
        c, i = decode(data, i)
        cls = code_point_class(table, c) & CLASS_MASK
        if HAN <= cls <= HAN_EXTENSION:
            cls = HAN
        if cls != previous or cls not in (HAN, LATIN, DIGIT):
            shape = mix(shape * np.uint64(31) + np.uint64(cls if cls in (HAN, LATIN, DIGIT) else c))
        previous = cls
    return shape


@kernel(leaf=True)
def _most_line_feeds(offsets: Array, data: Array) -> int:
    most = 0
    for row in range(len(offsets) - 1):
        feeds = 0
        for i in range(offsets[row], offsets[row + 1]):
            feeds += data[i] == 10
        most = max(most, feeds)
    return most


@kernel(leaf=True)
def _find_line(
    data: Array, starts: Array, ends: Array, hashes: Array, slots: Array, mask: Any, base: Any, number: int
) -> bool:
    """True when line `number` equals an earlier one; otherwise it is entered into the table."""
    size = ends[number] - starts[number]
    slot = hashes[number] & mask
    while slots[slot] >= base:
        other = np.int64(slots[slot] - base)
        if hashes[other] == hashes[number] and ends[other] - starts[other] == size:
            k = 0
            while k < size and data[starts[other] + k] == data[starts[number] + k]:
                k += 1
            if k == size:
                return True
        slot = (slot + np.uint64(1)) & mask
    slots[slot] = base + np.uint32(number)
    return False

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
from corpus.kernels.code_points import Array, code_point_class, decode, mix, slots_for
from corpus.kernels.tables import (
    BULLET,
    CLASS_MASK,
    CLOSER,
    DIGIT,
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
)

SHORT_BELOW = 10  # code points: a line below this is a label or a line of verse
LABEL_BELOW = 30  # a headline or an entry of a menu is below this
ENTRY_BELOW = 100  # an entry of a list is below this
HASH_FACTOR = 0x9E3779B97F4A7C15
MIN_HIGH_LATIN = 4  # accented letters in a row that no language writes: GBK, or UTF-8, read as Latin-1

# Columns of `measure_lines` after the NUM_CLASSES class counts.
(
    NUM_CHARS,
    NUM_LINES,
    LINE_CHARS,
    LONGEST_LINE,
    DUPLICATE_LINES,
    DUPLICATE_LINE_CHARS,
    BULLET_LINES,
    ELLIPSIS_LINES,
    TERMINAL_LINES,
    TERMINAL_LINE_CHARS,
    SHORT_LINES,
    SHORT_LINE_CHARS,
    LABEL_LINE_CHARS,
    COUNTED_LINES,
    LIKE_LINES,
    NUM_SENTENCES,
    SENTENCE_ENDS,
    STRAY_MARKS,
    ISOLATED_LATIN,
    LONGEST_RUN,
    MOJIBAKE_CHARS,
    JAPANESE_HAN,
) = range(NUM_CLASSES, NUM_CLASSES + 22)
NUM_LINE_COLUMNS = NUM_CLASSES + 22


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
    for row in range(len(offsets) - 1):
        counts = out[row]
        counts[:] = 0
        if np.int64(base) + max_lines >= 0xFFFFFFFF:
            slots[:] = 0
            base = np.uint32(1)
        i = offsets[row]
        end = offsets[row + 1]
        lines = isolated = longest_run = run = high = 0
        previous = before = np.uint32(0)
        previous_class = NEWLINE
        last_class = NEWLINE  # of the line, white space aside
        before_class = NEWLINE  # the class before the previous one
        previous_stop = True  # a line opens
        # state of the line: content runs from start to stop (bytes), `length` code points up to stop
        start = stop = i
        length = pending = dots = 0
        is_terminal = is_bullet = is_open = has_digit = False
        likeness = counting = np.uint64(0)  # of the line before
        content = np.uint64(0)  # a hash of the line's characters, white space aside
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
                content = (content ^ np.uint64(c)) * np.uint64(HASH_FACTOR)
                length += pending + 1
                pending = dots = high = 0
                stop = after
                last_class = cls
                run = run + 1 if c == previous else 1
                longest_run = max(longest_run, run)
                is_terminal = previous_stop = False
                is_open = True
                if previous_class == LATIN and HAN <= before_class <= HAN_EXTENSION:
                    isolated += 1
                if entry & MOJIBAKE:
                    counts[MOJIBAKE_CHARS] += _mojibake_chars(before, previous, c)
                if entry & JAPANESE:
                    counts[JAPANESE_HAN] += 1
                first = after
                while after < end and 0xE4 <= data[after] <= 0xE9:  # a run of Han, few things to keep
                    following, beyond = decode(data, after)
                    entry = code_point_class(table, following)
                    if not HAN <= entry <= HAN_EXTENSION or following == c:  # a flag, or the same again
                        break
                    counts[entry] += 1
                    content = (content ^ np.uint64(following)) * np.uint64(HASH_FACTOR)
                    previous = c
                    c = following
                    after = beyond
                if after > first:
                    length += (after - first) // 3
                    stop = after
                    run = 1
            elif cls == NEWLINE:
                if length > 0:
                    lines += 1
                    counts[LINE_CHARS] += length
                    counts[LONGEST_LINE] = max(counts[LONGEST_LINE], length)
                    counts[NUM_SENTENCES] += is_open
                    counts[BULLET_LINES] += is_bullet
                    if is_terminal:
                        counts[TERMINAL_LINES] += 1
                        counts[TERMINAL_LINE_CHARS] += length
                    if length < SHORT_BELOW:
                        counts[SHORT_LINES] += 1
                        counts[SHORT_LINE_CHARS] += length
                    if length < LABEL_BELOW and HAN <= last_class <= HAN_EXTENSION:
                        counts[LABEL_LINE_CHARS] += length
                    if dots >= 3:
                        counts[ELLIPSIS_LINES] += 1
                    number = lines - 1
                    line_start[number] = start
                    line_end[number] = stop
                    line_hash[number] = mix(content)
                    if _find_line(data, line_start, line_end, line_hash, slots, mask, base, number):
                        counts[DUPLICATE_LINES] += 1
                        counts[DUPLICATE_LINE_CHARS] += length
                    shape = count = np.uint64(0)
                    if has_digit and length < ENTRY_BELOW and not is_terminal:
                        shape, count = _shapes(data, table, start, stop)
                        counts[LIKE_LINES] += shape == likeness
                        counts[COUNTED_LINES] += count == counting
                    likeness, counting = shape, count
                content = np.uint64(0)
                length = pending = dots = run = high = 0
                is_terminal = is_bullet = is_open = has_digit = False
                previous_stop = True
            elif cls == WHITESPACE:
                if length > 0:
                    pending += 1
                run = high = 0
            else:
                if length == 0:
                    start = i
                    is_bullet = entry & BULLET != 0
                content = (content ^ np.uint64(c)) * np.uint64(HASH_FACTOR)
                length += pending + 1
                pending = 0
                stop = after
                last_class = cls
                has_digit |= cls == DIGIT
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
                        counts[NUM_SENTENCES] += is_open
                        is_open = False
                    else:
                        is_open = True
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
                    high = 0
            before_class = previous_class
            previous_class = cls
            before = previous
            previous = c
            i = after
        base += np.uint32(lines)
        counts[NUM_CHARS] = counts[:NUM_CLASSES].sum()
        counts[NUM_LINES] = lines
        counts[ISOLATED_LATIN] = isolated
        counts[LONGEST_RUN] = longest_run


@kernel(leaf=True)
def _mojibake_chars(before: Any, previous: Any, c: Any) -> int:
    """Characters of mojibake that end with the suspect c: 锟斤拷 烫烫烫 屯屯屯, or 锛 銆 鈥 and what follows each."""
    if c == 0x62F7:  # 锟斤拷: two U+FFFD in UTF-8, read as GBK
        return 3 if before == 0x951F and previous == 0x65A4 else 0
    if c == 0x70EB or c == 0x5C6F:  # 烫 屯: memory that was never written (0xCC, 0xCD), read as GBK
        return 3 if before == c and previous == c else 0
    return 2  # ，。“ in UTF-8 begin so, read as GBK


@kernel(leaf=True)
def _shapes(data: Array, table: Array, start: int, stop: int) -> tuple[Any, Any]:
    """Two hashes of a line: every run of Han, Latin letters or digits as one sign; and only runs of digits so."""
    shape = count = np.uint64(1)
    previous = NEWLINE
    i = start
    while i < stop:
        c, i = decode(data, i)
        cls = code_point_class(table, c) & CLASS_MASK
        if HAN <= cls <= HAN_EXTENSION:
            cls = HAN
        if cls != previous or cls not in (HAN, LATIN, DIGIT):
            shape = mix(shape * np.uint64(31) + np.uint64(cls if cls in (HAN, LATIN, DIGIT) else c))
        if cls != DIGIT or previous != DIGIT:
            count = mix(count * np.uint64(31) + np.uint64(DIGIT if cls == DIGIT else c))
        previous = cls
    return shape, count


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

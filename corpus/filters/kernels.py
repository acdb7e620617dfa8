"""The statistics kernels: one pass over the UTF-8 bytes of a batch for classes and lines (250 MB/s a core), one for
repetition (75 MB/s).

An Arrow large_string column is a byte buffer and offsets; the kernels read it in place and make no Python string
(creating them would cost more than the class kernel itself). The GIL is released. All results are integers, except
one entropy, so that a statistic never depends on the order or the batch a document came in.

Repetition is exact and cheap for the same reason. An n-gram can only repeat where its two (n-1)-grams repeat, so each
length is looked up only at the positions that survived the one before: all of a document for pairs, a tenth of it for
5-grams. An n-gram is named by the position it was first seen at, so the key (name of the first n-1 characters, last
character) is compared exactly and no hash collision can change a number. The field computes nine independent tables
(11 MB/s by the same kind of kernel).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.filters.tables import (
    BULLET,
    CLASS_MASK,
    CLOSER,
    CODE_POINTS,
    HAN,
    HAN_RARE,
    LATIN,
    NEWLINE,
    NUM_CLASSES,
    OTHER,
    PRIVATE_USE,
    STOP,
    TERMINAL,
    WHITESPACE,
)

Array = npt.NDArray[Any]

SHORT_BELOW = 10  # code points: a line below this is a label or a line of verse
LABEL_BELOW = 30  # a headline or an entry of a menu is below this
MAX_REPETITION_CHARS = 1 << 20  # repetition is measured on this much of a document: 40 MB of scratch, no more

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
    STRAY_MARKS,
    ISOLATED_LATIN,
    LONGEST_RUN,
) = range(NUM_CLASSES, NUM_CLASSES + 16)
NUM_LINE_COLUMNS = NUM_CLASSES + 16

# Columns of `measure_repetition`.
REPETITION_CHARS = 0
TOP_2_GRAM = 1  # then 3, 4
SEEN_5_GRAM = 4  # then 6, 7, 8, 9, 10
NUM_REPETITION_COLUMNS = 10
MIN_TOP, MAX_TOP = 2, 4
MIN_SEEN, MAX_SEEN = 5, 10


@kernel()
def decode(data: Array, i: Any) -> tuple[Any, int]:
    """The code point at byte i of valid UTF-8, and the index after it."""
    c = np.uint32(data[i])
    if c < 0x80:
        return c, i + 1
    if c < 0xE0:
        return ((c & 0x1F) << 6) | (np.uint32(data[i + 1]) & 0x3F), i + 2
    if c < 0xF0:
        return (
            ((c & 0x0F) << 12) | ((np.uint32(data[i + 1]) & 0x3F) << 6) | (np.uint32(data[i + 2]) & 0x3F),
            i + 3,
        )
    return (
        ((c & 0x07) << 18)
        | ((np.uint32(data[i + 1]) & 0x3F) << 12)
        | ((np.uint32(data[i + 2]) & 0x3F) << 6)
        | (np.uint32(data[i + 3]) & 0x3F)
    ), i + 4


@kernel()
def code_point_class(table: Array, c: Any) -> int:
    """Class and flags of a code point; planes 2 and 3 are Han, 15 and 16 private use."""
    if c < CODE_POINTS:
        return int(table[c])
    if c < 0x40000:
        return HAN_RARE
    if c >= 0xF0000:
        return PRIVATE_USE
    return OTHER


@kernel()
def measure_lines(offsets: Array, data: Array, table: Array, out: Array) -> None:
    """Class counts and line statistics of each document into `out`, int64[documents, NUM_LINE_COLUMNS].

    A line is what stands between line feeds, without the white space around it; empty lines do not count. Its
    bytes are compared exactly with earlier lines of the same hash.
    """
    max_lines = _most_line_feeds(offsets, data) + 1
    capacity = 16
    while capacity < 2 * max_lines:
        capacity *= 2
    slots = np.zeros(capacity, np.uint32)  # base + line number; below base it is another document's
    mask = np.uint64(capacity - 1)
    base = np.uint32(1)
    line_start = np.empty(max_lines, np.int64)
    line_end = np.empty(max_lines, np.int64)
    line_hash = np.empty(max_lines, np.uint64)
    counts = np.empty(NUM_CLASSES, np.int64)
    for row in range(len(offsets) - 1):
        counts[:] = 0
        if np.int64(base) + max_lines >= 0xFFFFFFFF:
            slots[:] = 0
            base = np.uint32(1)
        i = offsets[row]
        end = offsets[row + 1]
        chars = 0
        lines = line_chars = longest_line = duplicates = duplicate_chars = bullets = ellipses = 0
        terminals = terminal_chars = shorts = short_chars = label_chars = 0
        stray = isolated = longest_run = run = 0
        previous = np.uint32(0)
        previous_class = NEWLINE
        last_class = NEWLINE  # of the line, white space aside
        before_class = NEWLINE  # the class before the previous one
        previous_stop = False
        # state of the line: content runs from start to stop (bytes), `length` code points up to stop
        start = stop = i
        length = pending = 0
        is_terminal = is_bullet = False
        dots = 0
        while i <= end:
            if i < end:
                c, after = decode(data, i)
                entry = code_point_class(table, c)
                cls = entry & CLASS_MASK
                counts[cls] += 1
                chars += 1
            else:
                c, after, entry, cls = np.uint32(10), i + 1, NEWLINE, NEWLINE
            if cls == NEWLINE:
                if length > 0:
                    lines += 1
                    line_chars += length
                    longest_line = max(longest_line, length)
                    if is_bullet:
                        bullets += 1
                    if is_terminal:
                        terminals += 1
                        terminal_chars += length
                    if length < SHORT_BELOW:
                        shorts += 1
                        short_chars += length
                    if length < LABEL_BELOW and HAN <= last_class <= HAN_RARE:
                        label_chars += length
                    if dots >= 3:
                        ellipses += 1
                    number = lines - 1
                    line_start[number] = start
                    line_end[number] = stop
                    line_hash[number] = _hash_bytes(data, start, stop)
                    if _find_line(data, line_start, line_end, line_hash, slots, mask, base, number):
                        duplicates += 1
                        duplicate_chars += length
                length = pending = dots = 0
                is_terminal = is_bullet = False
                run = 0
                previous_stop = True
            elif cls == WHITESPACE:
                if length > 0:
                    pending += 1
                run = 0
            else:
                if length == 0:
                    start = i
                    is_bullet = entry & BULLET != 0
                length += pending + 1
                pending = 0
                stop = after
                last_class = cls
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
                if entry & STOP:
                    if previous_stop:
                        stray += 1
                    previous_stop = True
                else:
                    previous_stop = False
            if previous_class == LATIN and HAN <= before_class <= HAN_RARE and HAN <= cls <= HAN_RARE:
                isolated += 1
            before_class = previous_class
            previous_class = cls
            previous = c
            i = after
        base += np.uint32(lines)
        for k in range(NUM_CLASSES):
            out[row, k] = counts[k]
        out[row, NUM_CHARS] = chars
        out[row, NUM_LINES] = lines
        out[row, LINE_CHARS] = line_chars
        out[row, LONGEST_LINE] = longest_line
        out[row, DUPLICATE_LINES] = duplicates
        out[row, DUPLICATE_LINE_CHARS] = duplicate_chars
        out[row, BULLET_LINES] = bullets
        out[row, ELLIPSIS_LINES] = ellipses
        out[row, TERMINAL_LINES] = terminals
        out[row, TERMINAL_LINE_CHARS] = terminal_chars
        out[row, SHORT_LINES] = shorts
        out[row, SHORT_LINE_CHARS] = short_chars
        out[row, LABEL_LINE_CHARS] = label_chars
        out[row, STRAY_MARKS] = stray
        out[row, ISOLATED_LATIN] = isolated
        out[row, LONGEST_RUN] = longest_run


@kernel()
def _most_line_feeds(offsets: Array, data: Array) -> int:
    most = 0
    for row in range(len(offsets) - 1):
        feeds = 0
        for i in range(offsets[row], offsets[row + 1]):
            feeds += data[i] == 10
        most = max(most, feeds)
    return most


@kernel()
def _mix(x: Any) -> Any:
    """A 64-bit finaliser: every input bit reaches every output bit."""
    x ^= x >> np.uint64(32)
    x *= np.uint64(0xD6E8FEB86659FD93)
    x ^= x >> np.uint64(32)
    return x


@kernel()
def _hash_bytes(data: Array, start: int, stop: int) -> Any:
    h = np.uint64(stop - start)
    i = start
    while i + 8 <= stop:
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[i + k]) << np.uint64(8 * k)
        h = _mix(h ^ word)
        i += 8
    word = np.uint64(0)
    while i < stop:
        word = (word << np.uint64(8)) | np.uint64(data[i])
        i += 1
    return _mix(h ^ word)


@kernel()
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


@kernel()
def measure_repetition(offsets: Array, data: Array, table: Array, out: Array, entropy: Array) -> None:
    """Repeated n-grams of each document without its white space.

    `out`, int64[documents, NUM_REPETITION_COLUMNS]: the characters looked at; the occurrences of the most frequent
    2-, 3- and 4-gram that occurs twice or more (0 without one); the characters covered by a 5- ... 10-gram that
    started earlier in the document. `entropy`, float64[documents]: of single characters, in nats.
    """
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    size = min(longest, MAX_REPETITION_CHARS) + 1
    capacity = 16
    while capacity < 2 * size:
        capacity *= 2
    codes = np.empty(size, np.uint32)
    names = np.empty(size, np.uint32)  # where the n-gram of a position was first seen
    next_names = np.empty(size, np.uint32)
    occurrences = np.empty(size, np.uint32)  # by name
    depth = np.empty(size, np.uint8)  # the longest n whose n-gram at this position occurs twice or more
    active = np.empty(size, np.uint32)
    slots = np.zeros(capacity, np.uint32)
    first = np.zeros(0x110000, np.uint32)
    base = np.uint32(1)  # a slot below it belongs to an earlier document or length
    for row in range(len(offsets) - 1):
        n = 0
        i = offsets[row]
        while i < offsets[row + 1] and n < MAX_REPETITION_CHARS:
            c, i = decode(data, i)
            cls = code_point_class(table, c) & CLASS_MASK
            if cls != WHITESPACE and cls != NEWLINE:
                codes[n] = c
                n += 1
        out[row, :] = 0
        out[row, REPETITION_CHARS] = n
        if np.int64(base) + 12 * np.int64(n) >= 0xFFFFFFFF:
            slots[:] = 0
            first[:] = 0
            base = np.uint32(1)
        # single characters: names and entropy
        distinct = 0
        for i in range(n):
            c = codes[i]
            if first[c] < base:
                first[c] = base + np.uint32(i)
                occurrences[i] = 0
                active[distinct] = i
                distinct += 1
            name = np.uint32(first[c] - base)
            names[i] = name
            occurrences[name] += 1
        total = 0.0
        for k in range(distinct):
            count = np.float64(occurrences[active[k]])
            total += count * np.log(count)
        entropy[row] = max(0.0, np.log(np.float64(n)) - total / n) if n else 0.0
        num_active = 0
        for i in range(n):
            depth[i] = 0
            if occurrences[names[i]] > 1:
                depth[i] = 1
                active[num_active] = i
                num_active += 1
        base += np.uint32(n)
        for length in range(2, MAX_SEEN + 1):
            if num_active < 2:
                break
            mask = np.uint32(15)
            while mask < 2 * num_active:
                mask = 2 * mask + np.uint32(1)
            used = 0
            for k in range(num_active):
                i = active[k]
                if i + length > n or depth[i + 1] < length - 1:
                    continue
                active[used] = i
                used += 1
                last = codes[i + length - 1]
                name = names[i]
                h = _mix((np.uint64(name) << np.uint64(32)) | np.uint64(last))
                slot = np.uint32(h >> np.uint64(16)) & mask
                while True:
                    entry = slots[slot]
                    if entry < base:
                        slots[slot] = base + np.uint32(i)
                        occurrences[i] = 1
                        next_names[i] = i
                        break
                    other = np.uint32(entry - base)
                    if names[other] == name and codes[other + length - 1] == last:
                        occurrences[other] += 1
                        next_names[i] = other
                        break
                    slot = (slot + np.uint32(1)) & mask
            base += np.uint32(n)
            names, next_names = next_names, names
            num_active = 0
            top = 0
            covered = 0
            covered_to = 0
            for k in range(used):
                i = active[k]
                name = names[i]
                count = occurrences[name]
                if count > 1:
                    depth[i] = length
                    active[num_active] = i
                    num_active += 1
                    top = max(top, count)
                    if name != i:
                        covered += i + length - max(i, covered_to)
                        covered_to = i + length
            if length <= MAX_TOP:
                out[row, TOP_2_GRAM + length - MIN_TOP] = top
            elif length >= MIN_SEEN:
                out[row, SEEN_5_GRAM + length - MIN_SEEN] = covered

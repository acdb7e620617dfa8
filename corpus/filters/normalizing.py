"""The kernels of normalisation: what `corpus.normalize` says of one string, done to a batch of Arrow text.

One scan says which documents need work; they are rewritten into a new buffer, the others are copied as they are. What
needs Unicode's composition (a mark that composes or reorders, a joiner, nine marks in a row) or another number of bytes
(ﬁ, a radical whose ideograph is beyond plane 0) is left to Python: 1 page in 100. A test holds both to the same bytes
and the same counts.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus import normalize
from corpus.engine.compiled import kernel
from corpus.kernels.code_points import decode
from corpus.kernels.tables import CODE_POINTS

Array = npt.NDArray[Any]

# What is to be done to a code point. The first ones are kinds of change, in the order of `normalize.MAPPED`.
LINE_ENDS, SPACES, SENTENCEPIECE_SPACE, SURROGATES, INVISIBLE, RADICALS, PRESENTATION_FORMS, WHITE_SPACE = range(8)
KINDS = (*(kind for kind, _, _ in normalize.MAPPED), "white_space")
NUM_KINDS = len(KINDS)
KEEP, MARK, COMPOSE = range(NUM_KINDS, NUM_KINDS + 3)  # MARK: kept, but no more than MAX_MARKS of them in a row

CLEAN, REWRITE, PYTHON = 0, 1, 2  # what a document needs
MAX_MARKS = normalize.MAX_MARKS_PER_BASE  # kernels see the constants of their own module only
MAX_SPACES = normalize.MAX_INNER_SPACES
_STANDING_IN = normalize.RADICALS | normalize.PRESENTATION_FORMS
_THREE_BYTES = {ord(one): list(other.encode()) for one, other in _STANDING_IN.items() if len(other.encode()) == 3}


@lru_cache(maxsize=1)
def action_table() -> npt.NDArray[np.uint8]:
    """uint8[0x20000]: what normalisation does to each code point of planes 0 and 1."""
    everything = "".join(map(chr, range(CODE_POINTS)))
    composing = {
        chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
    }  # jamo: no decomposition listed
    for character in everything:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            composing.add(chr(int(parts[1], 16)))
    table = np.full(CODE_POINTS, KEEP, np.uint8)
    for code, character in enumerate(everything):
        if unicodedata.category(character)[0] == "M":
            table[code] = COMPOSE if unicodedata.combining(character) else MARK
        is_composed = 0xF900 <= code < 0xFB00 or unicodedata.is_normalized("NFC", character)
        if character in composing or character in "\u200c\u200d" or not is_composed:
            table[code] = COMPOSE
    for action, (_, pattern, _) in enumerate(normalize.MAPPED):
        for match in re.finditer(pattern, everything):
            table[match.start()] = action
    for code in map(ord, _STANDING_IN):
        if code not in _THREE_BYTES:
            table[code] = COMPOSE
    table.setflags(write=False)
    return table


@lru_cache(maxsize=1)
def replacement_table() -> npt.NDArray[np.uint8]:
    """uint8[0x10000, 3]: the UTF-8 of what stands for a radical or a presentation form, where it has as many bytes."""
    table = np.zeros((0x10000, 3), np.uint8)
    table[list(_THREE_BYTES)] = list(_THREE_BYTES.values())
    return table


@kernel(leaf=True)
def action_of(table: Array, c: Any) -> int:
    """The action for a code point; beyond plane 1 few are touched."""
    if c < CODE_POINTS:
        return int(table[c])
    if (c & 0xFFFE) == 0xFFFE or 0xE0000 <= c < 0xE0080:
        return INVISIBLE
    if 0xE0100 <= c < 0xE01F0:
        return MARK
    return KEEP


@kernel(leaf=True)
def scan(offsets: Array, data: Array, table: Array, out: Array) -> None:
    """CLEAN, REWRITE or PYTHON for each document, uint8[documents]. REWRITE may be a false alarm, CLEAN never is."""
    for row in range(len(offsets) - 1):
        i = offsets[row]
        end = offsets[row + 1]
        dirty = i < end and data[i] == 10
        need = CLEAN
        feeds = spaces = marks = 0
        inside = False  # something other than a space stood in this line
        while i < end:
            byte = data[i]
            if 0xE4 <= byte <= 0xE9:  # U+4000 to U+9FFF, two thirds of Chinese text: nothing to do
                i += 3
                feeds = spaces = marks = 0
                inside = True
                continue
            if 32 < byte < 0x7F:
                i += 1
                feeds = spaces = marks = 0
                inside = True
                continue
            c, i = decode(data, i)
            if c == 10:
                feeds += 1
                if feeds >= 3 or spaces > 0:
                    dirty = True
                spaces = marks = 0
                inside = False
            elif c == 32 or c == 9:
                feeds = marks = 0
                spaces += 1
                if inside and spaces > MAX_SPACES:
                    dirty = True
            elif c == 0x3000:
                feeds = marks = 0
                spaces = 1
                inside = True
            else:
                action = action_of(table, c)
                if action < NUM_KINDS:
                    dirty = True  # a mark may stand next to the one before it once this is gone
                    continue
                marks = marks + 1 if action == MARK else 0
                if action == COMPOSE or marks > MAX_MARKS:
                    need = PYTHON
                    break
                feeds = spaces = 0
                inside = True
        if need == CLEAN and (dirty or feeds > 0 or spaces > 0):
            need = REWRITE
        out[row] = need


@kernel()
def rewrite(
    offsets: Array,
    data: Array,
    table: Array,
    replacements: Array,
    needs: Array,
    out_offsets: Array,
    out: Array,
    changes: Array,
) -> None:
    """Documents that need REWRITE in normal form, the others as they are, into `out` and its `out_offsets`.

    `out` is uint8 of at least the batch's bytes (nothing grows); `changes`, int64[documents, NUM_KINDS], must be zero.
    """
    position = 0
    for row in range(len(offsets) - 1):
        out_offsets[row] = position
        i = offsets[row]
        end = offsets[row + 1]
        if needs[row] != REWRITE:
            out[position : position + end - i] = data[i:end]
            position += end - i
            continue
        first = position
        content_end = position  # behind the last character of the line that is no white space
        run_start = position  # of spaces and tabs
        feeds = spaces = tabs = 0
        is_indent = True  # the run opens its line
        is_indented: Any = False  # the line
        was_wide: Any = False  # the character before the run
        shaped = 0
        replaced = np.uint32(0)  # the character that another stands for
        while i < end:
            byte = data[i]
            if 0xE4 <= byte <= 0xE9:
                c, after = np.uint32(0x4E00), i + 3
            elif byte < 0x80:
                c, after = np.uint32(byte), i + 1
            else:
                c, after = decode(data, i)
            if c < 0x21 or (0x7F <= c < 0x4E00) or c >= 0xA000:
                action = action_of(table, c)
                if action == INVISIBLE:
                    changes[row, INVISIBLE] += 1
                    i = after
                    continue
                if action == SPACES:
                    changes[row, SPACES] += 1
                    c = np.uint32(32)
                elif action == LINE_ENDS:
                    changes[row, LINE_ENDS] += 1
                    if c == 13 and after < end and data[after] == 10:
                        after += 1
                    c = np.uint32(10)
                elif INVISIBLE < action < WHITE_SPACE:
                    changes[row, action] += 1
                    replaced = c
            if c == 10:
                shaped |= position != content_end
                position = content_end
                feeds += 1
                if position > first and feeds <= 2:
                    out[position] = 10
                    position += 1
                else:
                    shaped = 1
                content_end = position
                spaces = 0
                is_indent = True
                i = after
                continue
            if c == 32 or c == 9:
                if spaces == 0:
                    run_start = position
                    tabs = 0
                spaces += 1
                tabs += c == 9
                out[position] = c
                position += 1
                i = after
                continue
            is_wide = c >= 0x80 and c != 0x2581 and (replaced == 0 or replacements[replaced, 0] >= 0x80)
            if is_indent:
                is_indented = spaces > 0
            elif spaces > MAX_SPACES and tabs == 0 and not is_indented and (was_wide or is_wide):
                shaped = 1
                out[run_start] = 9
                position = run_start + 1
            spaces = 0
            is_indent = False
            was_wide = is_wide
            if c == 0x2581:
                changes[row, SENTENCEPIECE_SPACE] += 1
                out[position] = 0x5F
                position += 1
            elif replaced != 0:
                for k in range(3):
                    out[position] = replacements[replaced, k]
                    position += 1
                replaced = np.uint32(0)
            else:
                for k in range(i, after):
                    out[position] = data[k]
                    position += 1
            i = after
            if c != 0x3000:
                content_end = position
                feeds = 0
        shaped |= position != content_end
        position = content_end
        while position > first and out[position - 1] == 10:
            position -= 1
            shaped = 1
        changes[row, WHITE_SPACE] = shaped
    out_offsets[len(offsets) - 1] = position

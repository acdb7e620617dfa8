"""What the line model (model.py) sees of a line: its text, the elements around it, their names, and its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.model import BLOCK, score
from corpus.extract.reader import (
    HAS_YEAR,
    IN_FORM,
    IS_ENDED,
    IS_FOLDED,
    IS_HEADING,
    IS_ITEM,
    IS_PRE,
    LINE_END,
    LINE_FLAGS,
    LINE_LETTERS,
    LINE_LINKED,
    LINE_LINKS,
    LINE_MARKS,
    LINE_NODE,
    LINE_READ,
    LINE_START,
    NODE_BITS,
    NODE_HINTS,
    NODE_KEY,
    NODE_PARENT,
)
from corpus.extract.tables import HASH_PRIME, HASH_START, Array
from corpus.extract.words import KINDS
from corpus.kernels.code_points import slots_for

LINKED_RATIO = 0.7  # share of link letters from which a line counts as links
MIN_PROSE_LETTERS = 15  # of a line with a mark, hardly linked: prose
NUM_HINTS = 14
NUM_KINDS = len(KINDS)
LEVELS = 4  # elements around a line that are described
NUM_LEVEL = 9
FLAGS = (IS_ENDED, IS_HEADING, IS_ITEM, IS_PRE, IS_FOLDED, IN_FORM, HAS_YEAR)
LINE_FEATURES = 24
PLACE_FEATURES = 23
f32 = np.float32  # what x holds: tuples of one type can be written into a row
NUM_FEATURES = 2 * NUM_HINTS + 2 * NUM_KINDS + LINE_FEATURES + LEVELS * NUM_LEVEL + PLACE_FEATURES


@kernel()
def describe(
    out: Array,
    lines: Array,
    nodes: Array,
    verdicts: Array,
    covered: Array,
    title_line: int,
    model: Any,
    x: Array,
    scores: Array,
) -> None:
    """Write the features of all lines, and the log-odds that each is of the article.

    Args:
        out: uint8[bytes], the text.
        lines: int32[lines, LINE_COLUMNS].
        nodes: int64[nodes, NODE_COLUMNS].
        verdicts: uint8[lines] of lines.py.
        covered: int32[lines, kinds], bytes of furniture words.
        title_line: the line that says what the title says, or -1.
        model: LineModel.
        x: float32[rows, NUM_FEATURES] for the features, whole BLOCKs; with fewer rows than lines they are used again.
        scores: float32[lines], the result.
    """
    n, m = len(lines), len(nodes)
    own = np.zeros(n, np.float32)
    prose = np.zeros(n, np.float32)
    sums = np.zeros((m, 6), np.float32)  # letters, linked, prose, lines, lines of links, marks
    words = np.zeros(m, np.float32)
    page_prose: Any = np.float32(0)
    page_letters: Any = np.float32(0)
    for r in range(n):
        letters, linked = lines[r, LINE_LETTERS], lines[r, LINE_LINKED]
        own[r] = letters - linked
        is_prose = linked < 0.3 * letters and lines[r, LINE_MARKS] > 0 and own[r] >= MIN_PROSE_LETTERS
        if is_prose and (lines[r, LINE_FLAGS] & IS_PRE) == 0:
            prose[r] = own[r]
        node = lines[r, LINE_NODE]
        sums[node, 0] += letters
        sums[node, 1] += linked
        sums[node, 2] += prose[r]
        sums[node, 3] += 1
        sums[node, 4] += lines[r, LINE_LINKS] > 0 and linked >= LINKED_RATIO * letters
        sums[node, 5] += lines[r, LINE_MARKS]
        for kind in range(NUM_KINDS):
            words[node] += covered[r, kind]
        page_prose += prose[r]
        page_letters += letters
    for node in range(m - 1, 0, -1):
        around = nodes[node, NODE_PARENT]
        for column in range(6):
            sums[around, column] += sums[node, column]
        words[around] += words[node]

    names = np.zeros(m, np.int64)  # hints of the elements around
    kind_of = np.zeros(m, np.int64)  # row of the first sibling alike
    alike = np.zeros((m, 3), np.float32)  # of those: how many, how many with links, their prose
    size = slots_for(m)
    table = np.zeros(size, np.int64)
    for node in range(1, m):
        around = nodes[node, NODE_PARENT]
        names[node] = names[around] | nodes[node, NODE_HINTS]
        if sums[node, 3] == 0:
            continue
        key = (around * 1000003) ^ nodes[node, NODE_KEY] ^ (nodes[node, NODE_HINTS] * 7919)
        slot = (key >> 7 ^ key) & (size - 1)
        while table[slot] != 0 and not (
            nodes[table[slot], NODE_PARENT] == around
            and nodes[table[slot], NODE_KEY] == nodes[node, NODE_KEY]
            and nodes[table[slot], NODE_HINTS] == nodes[node, NODE_HINTS]
        ):
            slot = (slot + 1) & (size - 1)
        if table[slot] == 0:
            table[slot] = node
        kind_of[node] = table[slot]
        alike[kind_of[node], 0] += 1
        alike[kind_of[node], 1] += sums[node, 1] > 0
        alike[kind_of[node], 2] += sums[node, 2]

    main = 0  # the smallest element with half of the prose, whose parent has it too
    inside = np.zeros(m, np.int64)
    inside[0] = 1
    for node in range(1, m):
        if 2 * sums[node, 2] > page_prose and nodes[node, NODE_PARENT] == main:
            main = node
            inside[:] = 0
            inside[node] = 1
        elif inside[nodes[node, NODE_PARENT]] > 0:
            inside[node] = inside[nodes[node, NODE_PARENT]] + 1

    again = np.zeros(n, np.int32)  # lines of the same text
    size = slots_for(n)
    seen = np.zeros((size, 2), np.int64)
    slots = np.zeros(n, np.int64)
    for r in range(n):
        key = np.int64(HASH_START)
        for i in range(lines[r, LINE_START], lines[r, LINE_END]):
            key = (key ^ np.int64(out[i])) * HASH_PRIME
        key |= 1
        slot = (key >> 17) & (size - 1)
        while seen[slot, 0] != 0 and seen[slot, 0] != key:
            slot = (slot + 1) & (size - 1)
        seen[slot, 0] = key
        seen[slot, 1] += 1
        slots[r] = slot
    for r in range(n):
        again[r] = seen[slots[r], 1]

    walkers, totals = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.float32)
    done: Any = np.float32(0)
    since_related = since_comments = since_heading = 99
    since_prose: Any = np.float32(0)
    for r in range(n):
        node, flags = lines[r, LINE_NODE], lines[r, LINE_FLAGS]
        letters, linked, links = lines[r, LINE_LETTERS], lines[r, LINE_LINKED], lines[r, LINE_LINKS]
        at = r % len(x)
        near = nodes[node, NODE_HINTS]
        above = nodes[node, NODE_PARENT]
        near |= nodes[above, NODE_HINTS]
        for hint in range(NUM_HINTS):
            x[at, hint] = near >> hint & 1
            x[at, NUM_HINTS + hint] = names[node] >> hint & 1
        c = 2 * NUM_HINTS
        num_bytes = max(1, lines[r, LINE_END] - lines[r, LINE_START])
        for kind in range(NUM_KINDS):
            x[at, c] = min(1.0, covered[r, kind] / num_bytes)
            x[at, c + 1] = covered[r, kind] / 6
            c += 2
        read = max(1, lines[r, LINE_READ])
        before = r - 1 if r > 0 else r
        behind = r + 1 if r + 1 < n else r
        x[at, c : c + 7] = (
            f32(own[r]),
            f32(linked / max(1, letters)),
            f32(links),
            f32(linked),
            f32(letters / read),
            f32(lines[r, LINE_MARKS]),
            f32(lines[r, LINE_MARKS] / read),
        )
        c += 7
        for bit in FLAGS:
            x[at, c] = (flags & bit) != 0
            c += 1
        x[at, c : c + 10] = (
            f32(read),
            f32(verdicts[r]),
            f32(own[before]),
            f32(own[behind]),
            f32(lines[before, LINE_LINKED] / max(1, lines[before, LINE_LETTERS])),
            f32(lines[behind, LINE_LINKED] / max(1, lines[behind, LINE_LETTERS])),
            f32(lines[before, LINE_MARKS]),
            f32(lines[behind, LINE_MARKS]),
            f32((lines[behind, LINE_FLAGS] & IS_HEADING) != 0),
            f32(prose[before] + prose[behind]),
        )
        c += 10
        up = node
        for _ in range(LEVELS):
            first = kind_of[up]
            x[at, c : c + NUM_LEVEL] = (
                f32(sums[up, 1] / max(1, sums[up, 0])),
                f32(sums[up, 2] / max(1, page_prose)),
                f32(sums[up, 2] / max(1, sums[up, 0])),
                f32(sums[up, 4] / max(1, sums[up, 3])),
                f32(sums[up, 5] / max(1, sums[up, 0])),
                f32(words[up] / max(1, sums[up, 0])),
                f32(alike[first, 0]),
                f32(alike[first, 1] / max(1, alike[first, 0])),
                f32(alike[first, 2] / max(1, alike[first, 0])),
            )
            c += NUM_LEVEL
            up = nodes[up, NODE_PARENT]
        if verdicts[r] == 2:
            since_related = 0
        if verdicts[r] == 3:
            since_comments = 0
        if (flags & IS_HEADING) != 0:
            since_heading = 0
        x[at, c:] = (
            f32(inside[node]),
            f32(done / max(1, page_prose)),
            f32((page_prose - done) / max(1, page_prose)),
            f32(done),
            f32(page_prose - done),
            f32(page_prose),
            f32(page_prose / max(1, page_letters)),
            f32(r - title_line if title_line >= 0 else 0),
            f32(title_line >= 0 and r > title_line),
            f32(title_line < 0),
            f32(since_related),
            f32(since_comments),
            f32(since_heading),
            f32(since_prose),
            f32(r / n),
            f32(r),
            f32(n - r),
            f32(sums[main, 1] / max(1, sums[main, 0])),
            f32(sums[main, 3] / n),
            f32(nodes[node, NODE_BITS] & 0xFFFF),
            f32(again[r]),
            f32(again[behind]),
            f32(again[before]),
        )
        place = at % BLOCK
        if place == BLOCK - 1 or r == n - 1:
            score(model, x, at - place, walkers, totals)
            scores[r - place : r + 1] = totals[: place + 1]
        done += prose[r]
        since_prose = np.float32(0) if prose[r] > 0 else since_prose + letters
        since_related += 1
        since_comments += 1
        since_heading += 1


@kernel()
def cover(lines: Array, starts: Array, ends: Array, kinds: Array, covered: Array) -> None:
    """Add up the bytes of words (spans in order of their starts) in int32[lines, kinds]."""
    row = 0
    for index in range(len(starts)):
        while row < len(lines) and lines[row, LINE_END] <= starts[index]:
            row += 1
        if row < len(lines) and starts[index] >= lines[row, LINE_START]:
            covered[row, kinds[index]] += ends[index] - starts[index]

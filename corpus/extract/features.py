"""What the line model (model.py) sees of a line: its text, the elements around it, their names, and its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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
from corpus.extract.tables import HASH_PRIME, HASH_START
from corpus.extract.words import KINDS

Array = npt.NDArray[Any]

LINKED_RATIO = 0.7  # share of link letters from which a line counts as links
MIN_PROSE_LETTERS = 15  # of a line with a mark, hardly linked: prose
NUM_HINTS = 14
NUM_KINDS = len(KINDS)
LEVELS = 4  # elements around a line that are described
NUM_LEVEL = 9
FLAGS = (IS_ENDED, IS_HEADING, IS_ITEM, IS_PRE, IS_FOLDED, IN_FORM, HAS_YEAR)
LINE_FEATURES = 24
PLACE_FEATURES = 23
NUM_FEATURES = 2 * NUM_HINTS + 2 * NUM_KINDS + LINE_FEATURES + LEVELS * NUM_LEVEL + PLACE_FEATURES


@kernel(leaf=True)
def _set(x: Array, row: int, column: int, value: Any) -> int:
    x[row, column] = value
    return column + 1


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
    size = 8
    while size < 2 * m:
        size *= 2
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
    size = 8
    while size < 2 * n:
        size *= 2
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
        c = _set(x, at, c, own[r])
        c = _set(x, at, c, linked / max(1, letters))
        c = _set(x, at, c, links)
        c = _set(x, at, c, linked)
        c = _set(x, at, c, letters / read)
        c = _set(x, at, c, lines[r, LINE_MARKS])
        c = _set(x, at, c, lines[r, LINE_MARKS] / read)
        for bit in FLAGS:
            c = _set(x, at, c, np.float32((flags & bit) != 0))
        c = _set(x, at, c, read)
        c = _set(x, at, c, verdicts[r])
        c = _set(x, at, c, own[before])
        c = _set(x, at, c, own[behind])
        c = _set(x, at, c, lines[before, LINE_LINKED] / max(1, lines[before, LINE_LETTERS]))
        c = _set(x, at, c, lines[behind, LINE_LINKED] / max(1, lines[behind, LINE_LETTERS]))
        c = _set(x, at, c, lines[before, LINE_MARKS])
        c = _set(x, at, c, lines[behind, LINE_MARKS])
        c = _set(x, at, c, np.float32((lines[behind, LINE_FLAGS] & IS_HEADING) != 0))
        c = _set(x, at, c, prose[before] + prose[behind])
        up = node
        for _ in range(LEVELS):
            first = kind_of[up]
            c = _set(x, at, c, sums[up, 1] / max(1, sums[up, 0]))
            c = _set(x, at, c, sums[up, 2] / max(1, page_prose))
            c = _set(x, at, c, sums[up, 2] / max(1, sums[up, 0]))
            c = _set(x, at, c, sums[up, 4] / max(1, sums[up, 3]))
            c = _set(x, at, c, sums[up, 5] / max(1, sums[up, 0]))
            c = _set(x, at, c, words[up] / max(1, sums[up, 0]))
            c = _set(x, at, c, alike[first, 0])
            c = _set(x, at, c, alike[first, 1] / max(1, alike[first, 0]))
            c = _set(x, at, c, alike[first, 2] / max(1, alike[first, 0]))
            up = nodes[up, NODE_PARENT]
        if verdicts[r] == 2:
            since_related = 0
        if verdicts[r] == 3:
            since_comments = 0
        if (flags & IS_HEADING) != 0:
            since_heading = 0
        c = _set(x, at, c, inside[node])
        c = _set(x, at, c, done / max(1, page_prose))
        c = _set(x, at, c, (page_prose - done) / max(1, page_prose))
        c = _set(x, at, c, done)
        c = _set(x, at, c, page_prose - done)
        c = _set(x, at, c, page_prose)
        c = _set(x, at, c, page_prose / max(1, page_letters))
        c = _set(x, at, c, np.float32(r - title_line if title_line >= 0 else 0))
        c = _set(x, at, c, np.float32(title_line >= 0 and r > title_line))
        c = _set(x, at, c, np.float32(title_line < 0))
        c = _set(x, at, c, since_related)
        c = _set(x, at, c, since_comments)
        c = _set(x, at, c, since_heading)
        c = _set(x, at, c, since_prose)
        c = _set(x, at, c, r / n)
        c = _set(x, at, c, r)
        c = _set(x, at, c, n - r)
        c = _set(x, at, c, sums[main, 1] / max(1, sums[main, 0]))
        c = _set(x, at, c, sums[main, 3] / n)
        c = _set(x, at, c, np.float32(nodes[node, NODE_BITS] & 0xFFFF))
        c = _set(x, at, c, again[r])
        c = _set(x, at, c, again[behind])
        c = _set(x, at, c, again[before])
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

"""Tables: the lines of a table's cells become one line a row, cells apart by tabs; layout tables stay as they are."""

from __future__ import annotations

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.reader import (
    IS_ENDED,
    IS_FOLDED,
    IS_PRE,
    IS_SUSPECT,
    LINE_CHARS,
    LINE_END,
    LINE_FLAGS,
    LINE_LETTERS,
    LINE_LINKED,
    LINE_LINKS,
    LINE_MARKS,
    LINE_NODE,
    LINE_READ,
    LINE_ROW,
    LINE_START,
    MAY_BE_FOOTER,
    NODE_BITS,
    NODE_PARENT,
)
from corpus.extract.tables import CELL, TABLE, Array

MAX_CELL_CHARS = 500  # a table with a larger cell arranges a page, not data
MAX_CELL_LINES = 24


@kernel()
def fold_rows(out: Array, lines: Array, nodes: Array) -> int:
    """Fold the rows of data tables in place; returns the number of lines that are left.

    A table is one of data unless it holds another table, preformatted text, or a cell of more than MAX_CELL_CHARS
    characters or MAX_CELL_LINES lines. Breaks inside of a cell become spaces, empty cells stay as tabs.

    Args:
        out: uint8[bytes], the reader's text; changed in place.
        lines: int32[lines, LINE_COLUMNS]; changed in place.
        nodes: int64[nodes, NODE_COLUMNS].
    """
    num_nodes = len(nodes)
    cell_of = np.zeros(num_nodes, np.int64)
    table_of = np.zeros(num_nodes, np.int64)
    is_layout = np.zeros(num_nodes, np.bool_)
    chars = np.zeros(num_nodes, np.int64)
    count = np.zeros(num_nodes, np.int64)
    for node in range(1, num_nodes):
        around = nodes[node, NODE_PARENT]
        bits = nodes[node, NODE_BITS]
        cell_of[node] = node if (bits & CELL) != 0 else cell_of[around]
        table_of[node] = table_of[around]
        if (bits & TABLE) != 0:
            is_layout[table_of[around]] = True
            table_of[node] = node
            cell_of[node] = 0
    for row in range(len(lines)):
        if lines[row, LINE_ROW] > 0:
            cell = cell_of[lines[row, LINE_NODE]]
            chars[cell] += lines[row, LINE_CHARS]
            count[cell] += 1
            if chars[cell] > MAX_CELL_CHARS or count[cell] > MAX_CELL_LINES or (lines[row, LINE_FLAGS] & IS_PRE) != 0:
                is_layout[table_of[cell]] = True
    is_layout[0] = True
    k = row = 0
    while row < len(lines):
        first = row
        row += 1
        cell = cell_of[lines[first, LINE_NODE]]
        table = table_of[lines[first, LINE_NODE]]
        if k != first:
            lines[k, :] = lines[first, :]
        if lines[first, LINE_ROW] > 0 and not is_layout[table]:
            while row < len(lines) and lines[row, LINE_ROW] == lines[first, LINE_ROW]:
                following = cell_of[lines[row, LINE_NODE]]
                is_same = following == cell and cell > 0 and lines[row, LINE_END] > lines[row, LINE_START]
                out[lines[row - 1, LINE_END]] = 32 if is_same else 9
                cell = following
                for column in (LINE_CHARS, LINE_LINKS, LINE_LINKED, LINE_LETTERS, LINE_READ, LINE_MARKS):
                    lines[k, column] += lines[row, column]
                lines[k, LINE_CHARS] += 1
                lines[k, LINE_END] = lines[row, LINE_END]
                lines[k, LINE_FLAGS] |= lines[row, LINE_FLAGS]
                row += 1
            end = lines[k, LINE_END]
            while end > lines[k, LINE_START] and out[end - 1] <= 32:
                end -= 1
            lines[k, LINE_END] = end
            lines[k, LINE_NODE] = table
            lines[k, LINE_FLAGS] |= IS_FOLDED
            if row > first + 1:
                lines[k, LINE_FLAGS] &= ~(IS_SUSPECT | MAY_BE_FOOTER | IS_ENDED)
        k += 1
    return k

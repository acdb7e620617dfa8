"""HTML to lines of text, in one pass over the bytes and without a tree.

A parser builds a node for every element; text needs of them only where lines break, what is a link or preformatted,
and which elements end inside which. So this reader tokenizes as the HTML standard says (comments, raw text, character
references, quoted attributes) and keeps a stack of block elements only, with the standard's implied end tags where they
matter (p, li, dt, dd, cells and rows) and its scopes (an end tag in a cell closes nothing outside it). Formatting tags
are passed over. Time and memory are linear in the page whatever it holds. The stack is 512 deep as in browsers; deeper
elements are read and not stacked, so that no text is lost by depth. What a browser would drop at the end of a
cut page is kept where it is more than one tag: a quote that never closes, a `<` without any `>` behind it, what follows
a comment, title, textarea or iframe that never ends. Behind a script or style that never ends the rest is code.

Text goes out as UTF-8 with white space collapsed, one line a block, table cells behind tabs; for each line the counts
that the line rules (lines.py) decide by are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corpus.engine.compiled import kernel
from corpus.extract.syntax import (
    ENDS_TAG,
    HAS_HREF,
    HIDDEN,
    IS_CLOSED,
    attributes,
    code_point,
    end_of_comment,
    end_of_raw,
    hash_until,
    lookup,
    put,
    put_bullet,
    reference,
    trim_end,
)
from corpus.extract.tables import (
    BREAK,
    BREAKS_OUT,
    BYLINE,
    CELL,
    CLOSES_PARAGRAPH,
    CODE,
    COMMA,
    CONCEALED_HINT,
    DROPPED,
    END,
    FOREIGN,
    FORM,
    HASH_START,
    HEADING,
    HOLDS_HTML,
    IGNORED,
    INSIDE,
    ITEM,
    LETTER,
    LINK,
    LIST,
    NODE,
    OPENER,
    ORDERED,
    PARAGRAPH,
    PRE,
    PUSH,
    RAW,
    ROW,
    RUBY,
    SKIP,
    SPACE,
    START,
    TABLE,
    TERM,
    TITLE,
    VOID,
    Array,
)

MAX_DEPTH = 512
MAX_SPAN = 64  # columns that an empty cell, or a cell that spans several, may stand for
MAX_TABLES = 8  # one inside the other, in which cells may span rows
MAX_SPANNED = 1 << 20  # empty cells that a page may get for what its cells span
MAX_CUT_TAG_BYTES = 2_000  # a tag that the page's end cut off is dropped up to this length
MAX_ITEM_NUMBER = 9_999  # items after it get a bullet: a number must not be longer than what it stands for
MAX_START_CHARS = 60  # a line that begins like page furniture may be furniture up to this length
MAX_INSIDE_CHARS = 240  # a line that holds a footer's words may be a footer up to this length

# Columns of a line, and bits of its flags.
(LINE_START, LINE_END, LINE_CHARS, LINE_LINKS, LINE_LINKED, LINE_LETTERS, LINE_FLAGS) = range(7)
(LINE_READ, LINE_MARKS, LINE_NODE, LINE_ROW) = range(7, 11)
LINE_COLUMNS = 11
(IS_PRE, IS_HEADING, IN_FORM, IS_SUSPECT, IS_ENDED, HAS_YEAR, HAS_BYLINE, MAY_BE_FOOTER) = (1, 2, 4, 8, 16, 32, 64, 128)
(IS_ITEM, HAS_DAMAGE, IS_FOLDED) = (256, 512, 1024)

# Columns of a node: an element that holds lines. Row 0 is the page.
(NODE_PARENT, NODE_HINTS, NODE_KEY, NODE_BITS) = range(4)
NODE_COLUMNS = 4

# What `info` holds.
(NUM_LINES, NUM_NODES, OWN_LETTERS, SKIPPED_LETTERS, HIDDEN_CHARS, CONTROL_CHARS) = range(6)
INFO_COLUMNS = 6


@kernel()
def closed_by_end(stack_key: Array, stack_bits: Array, depth: int, key: int, bits: int) -> int:
    """Place on the stack of the element that an end tag closes, or -1; a table's row closes the open cell."""
    top = depth - 1
    if (bits & ROW) != 0:
        return closed_by_start(stack_bits, depth, bits)
    while top >= 0 and stack_key[top] != key:
        above = stack_bits[top]
        if (above & TABLE) != 0 and (bits & TABLE) == 0:
            return -1
        if (above & CELL) != 0 and (bits & (TABLE | CELL)) == 0:
            return -1
        if (above & LIST) != 0 and (bits & (ITEM | TERM)) != 0:
            return -1
        top -= 1
    return top


@kernel()
def closed_by_start(stack_bits: Array, depth: int, bits: int) -> int:
    """Place on the stack of the item, term, cell or part of a ruby that the start of a further one closes, or -1."""
    top = depth - 1
    closes = CELL if (bits & (ROW | CELL)) != 0 else bits & (ITEM | TERM | RUBY)
    stops = TABLE if closes == CELL else LIST | TABLE | CELL
    while top >= 0 and (stack_bits[top] & (closes | stops)) == 0:
        top -= 1
    return top if top >= 0 and (stack_bits[top] & closes) != 0 else -1


@kernel()
def ends_skipped(stack_bits: Array, skip_depth: int, depth: int, bits: int, is_end: bool) -> bool:
    """Whether a tag ends the skipped element without naming it: a block ends a ruby's part, HTML ends foreign
    content."""
    skipped = stack_bits[skip_depth]
    if (skipped & RUBY) != 0:
        return (bits & BREAK) != 0 and (bits & VOID) == 0
    if (skipped & FOREIGN) == 0 or (bits & (PARAGRAPH if is_end else BREAKS_OUT)) == 0:
        return False
    top = depth - 1
    while top > skip_depth and (stack_bits[top] & HOLDS_HTML) == 0:
        top -= 1
    return top == skip_depth


@kernel()
def empty_line(lines: Array, k: int, out: Array, o: int, node: int, row: int) -> None:
    """Write a line for a cell without text."""
    lines[k, :] = 0
    lines[k, LINE_START] = lines[k, LINE_END] = o
    lines[k, LINE_NODE] = node
    lines[k, LINE_ROW] = row
    out[o] = 10


@kernel()
def read_page(
    data: Array,
    elements: Array,
    names: Array,
    references: Array,
    characters: Array,
    use_names: bool,
    is_xml: bool,
    out: Array,
    lines: Array,
    nodes: Array,
    info: Array,
    max_spanned: int,
) -> None:
    """Read a page into `out` and `lines`.

    Args:
        data: uint8[n], the page in UTF-8.
        elements, names, references, characters: tables.Tables.
        use_names: whether styles and attributes may hide elements.
        is_xml: whether `<x/>` is a whole element.
        out: uint8[>= 2 n + 64], the text; a line feed behind each line.
        lines: int32[>= 2 + 2 tags + line feeds + max_spanned, LINE_COLUMNS].
        nodes: int64[>= 1 + tags, NODE_COLUMNS]: row of the element around it, hints (tables.py), the hash of its name,
            and what it is (tables.py).
        info: int64[INFO_COLUMNS].
        max_spanned: empty cells that what its cells span may add to a page; further ones are left out.
    """
    n = len(data)
    stack_key = np.empty(MAX_DEPTH, np.int64)
    stack_bits = np.empty(MAX_DEPTH, np.int64)
    stack_node = np.empty(MAX_DEPTH, np.int64)  # the element's row, or that of the element around it
    stack_value = np.empty(MAX_DEPTH, np.int64)  # of a list: the list around it; of a cell: its first line
    stack_count = np.zeros(MAX_DEPTH, np.int64)  # of a list: items so far; of a table or cell: the outer column or row
    stack_spare = np.zeros(MAX_DEPTH, np.int64)  # of a cell: further columns that it spans
    depth = keep = 0  # open elements; how many of them are to stay open
    skip_depth = -1  # place on the stack of the element that is skipped
    list_top = -1
    num_pre = num_headings = 0
    in_link = link_in_paragraph = in_paragraph = in_form = has_title = False
    link_depth = form_depth = 0
    with_quotes = with_tags = with_comments = True
    endless = np.zeros(len(elements), np.bool_)  # raw text elements that end nowhere in the rest of the page
    i = o = line_start = 0
    c: Any = 0  # a byte; signed, as numba would make a float of signed and unsigned
    code: Any = 0
    k = 0  # lines
    num_nodes = 1
    nodes[0, :] = 0
    num_tables = column = num_rows = 0
    spans = np.zeros((MAX_TABLES, MAX_SPAN), np.int64)  # rows that a cell above goes on into, for each column
    hints = read = marks = row_of = hidden = controls = 0
    own = skipped = 0
    want_break = 0  # 1: end the line if it holds anything; 2: end it anyway (inside pre)
    space = bullet = begun = pre_start = False
    number = chars = links = linked = letters = flags = 0
    seen: Any = 0  # of the line's characters
    last: Any = 0

    while True:
        if want_break > 0:
            o = trim_end(out, line_start, o, (flags & IS_PRE) != 0)
            if o > line_start or (want_break == 2 and num_pre > 0):
                if (flags & IS_PRE) == 0 and chars <= MAX_INSIDE_CHARS:
                    if (seen & INSIDE) != 0:
                        flags |= IS_SUSPECT | MAY_BE_FOOTER
                    elif chars <= MAX_START_CHARS and ((seen & START) != 0 or links > 0):
                        flags |= IS_SUSPECT
                if in_form:
                    flags |= IN_FORM
                if (last & END) != 0:
                    flags |= IS_ENDED
                if (seen & BYLINE) != 0:
                    flags |= HAS_BYLINE
                if num_pre > 0:
                    flags |= IS_PRE
                around = stack_node[depth - 1] if depth > 0 else 0
                lines[k, LINE_START] = line_start
                lines[k, LINE_END] = o
                lines[k, LINE_CHARS] = chars
                lines[k, LINE_LINKS] = links
                lines[k, LINE_LINKED] = linked
                lines[k, LINE_LETTERS] = letters
                lines[k, LINE_FLAGS] = flags
                lines[k, LINE_READ] = read
                lines[k, LINE_MARKS] = marks
                lines[k, LINE_NODE] = around
                lines[k, LINE_ROW] = row_of
                k += 1
                out[o] = 10
                o += 1
                line_start = o
            chars = links = linked = letters = flags = seen = last = read = marks = 0
            space = begun = False
            want_break = 0

        while depth > keep:
            depth -= 1
            bits = stack_bits[depth]
            if (bits & NODE) != 0:
                if o > line_start:
                    want_break = 1
                    depth += 1
                    break
                if (bits & CELL) != 0:
                    spare = min(stack_spare[depth], max_spanned)
                    max_spanned -= spare
                    for _ in range(spare + (k == stack_value[depth])):
                        empty_line(lines, k, out, o, stack_node[depth], row_of)
                        k += 1
                        o += 1
                        line_start = o
                    row_of = stack_count[depth]
                if (bits & TABLE) != 0:
                    num_tables -= 1
                    column = stack_count[depth]
            if (bits & PRE) != 0:
                num_pre -= 1
            if (bits & HEADING) != 0:
                num_headings -= 1
            if (bits & LIST) != 0:
                list_top = stack_value[depth]
            if (bits & ITEM) != 0:
                bullet = False
            if depth == skip_depth:
                skip_depth = -1
            if in_link and depth < link_depth:
                in_link = False
            if in_form and depth < form_depth:
                in_form = False
        if want_break > 0:
            continue

        if i >= n:
            if o > line_start:
                want_break = 1
                continue
            if depth > 0:
                keep = 0
                continue
            break

        c = np.int64(data[i])
        if c == 60 and i + 1 < n and with_tags:
            following = data[i + 1]
            if following == 33 or following == 63:
                j = end_of_comment(data, i, with_comments)
                if j < 0:
                    with_comments = False
                else:
                    i = j
                continue
            is_end = following == 47
            j = i + 2 if is_end else i + 1
            if is_end and j < n and data[j] == 62:
                i = j + 1
                continue
            if j < n and 97 <= (data[j] | 32) <= 122:
                key, j = hash_until(data, j, n, HASH_START, ENDS_TAG)
                row = lookup(elements, key)
                bits = elements[row, 1] if row >= 0 else 0
                hints = elements[row, 2] if row >= 0 else 0
                if skip_depth >= 0 and ends_skipped(stack_bits, skip_depth, depth, bits, is_end):
                    keep = skip_depth
                    continue

                if is_end:
                    while j < n and data[j] != 62:
                        j += 1
                    if (bits & BREAK) != 0 and o > line_start:
                        want_break = 1
                        continue
                    i = j + 1
                    if (bits & LINK) != 0:
                        in_link = False
                    elif (bits & PARAGRAPH) != 0:
                        in_paragraph = False
                        if link_in_paragraph:
                            in_link = False
                    elif (bits & FORM) != 0:
                        in_form = False
                    if (bits & (PUSH | ROW)) != 0 or skip_depth >= 0 or (depth > 0 and stack_key[depth - 1] == key):
                        top = closed_by_end(stack_key, stack_bits, depth, key, bits)
                        if top >= 0:
                            keep = top
                    continue

                end, found, named = attributes(data, j, names, with_quotes)
                if end < 0:
                    if with_quotes:
                        with_quotes = False
                    elif n - i < MAX_CUT_TAG_BYTES:
                        i = n
                    else:
                        with_tags = False
                    continue
                if (bits & BREAK) != 0:
                    if o > line_start:
                        want_break = 1
                        continue
                    if (bits & CLOSES_PARAGRAPH) != 0 and depth > 0 and (stack_bits[depth - 1] & PARAGRAPH) != 0:
                        keep = depth - 1
                        continue
                # implied end tags
                if (bits & (ITEM | TERM | CELL | ROW | RUBY)) != 0:
                    top = closed_by_start(stack_bits, depth, bits)
                    if top >= 0:
                        keep = top
                        continue
                if (bits & CELL) != 0 and o > line_start:
                    want_break = 1
                    continue
                if (bits & ROW) != 0:
                    if column > 0 and 0 < num_tables <= MAX_TABLES:  # columns that the row before did not reach
                        for rest in range(column, MAX_SPAN):
                            spans[num_tables - 1, rest] -= spans[num_tables - 1, rest] > 0
                    column = 0
                    num_rows += 1
                i = end
                if (bits & IGNORED) != 0:
                    continue
                in_xml = (
                    is_xml or (bits & FOREIGN) != 0 or (skip_depth >= 0 and (stack_bits[skip_depth] & FOREIGN) != 0)
                )
                is_whole = (found & IS_CLOSED) != 0 and in_xml
                if (bits & RAW) != 0:
                    if is_whole:
                        continue
                    is_title = (bits & TITLE) != 0 and not has_title and skip_depth < 0
                    has_title |= is_title
                    stop = n
                    if not endless[row]:
                        stop, i = end_of_raw(data, end, key)
                    if stop == n and (bits & CODE) == 0:
                        endless[row] = True
                        i = end
                        while i < n and is_title and data[i] != 60:
                            i += 1
                    continue
                if (bits & LINK) != 0:
                    in_link = (found & HAS_HREF) != 0 and not is_whole
                    if in_link:
                        link_depth = depth
                        link_in_paragraph = in_paragraph
                        if skip_depth < 0:
                            links += 1
                elif (bits & PARAGRAPH) != 0:
                    in_paragraph = True
                elif (bits & FORM) != 0:
                    in_form = True
                    form_depth = depth
                elif (bits & ITEM) != 0:
                    bullet = True
                    number = 0
                    if list_top >= 0 and (stack_bits[list_top] & ORDERED) != 0:
                        stack_count[list_top] += 1
                        number = stack_count[list_top] if stack_count[list_top] <= MAX_ITEM_NUMBER else 0
                if (bits & VOID) != 0 or is_whole:
                    continue

                skips = (bits & SKIP) != 0 or (use_names and ((found & HIDDEN) != 0 or (named & CONCEALED_HINT) != 0))
                hints |= named
                if skip_depth >= 0:
                    skips = key == stack_key[skip_depth]
                is_node = (bits & (BREAK | CELL)) != 0 and skip_depth < 0 and not skips
                is_node = is_node and ((bits & (PUSH | CELL)) != 0 or hints != 0) and (bits & VOID) == 0
                if not (skips or is_node or (bits & PUSH) != 0):
                    continue
                if depth == MAX_DEPTH:
                    continue
                around = stack_node[depth - 1] if depth > 0 else 0
                stack_node[depth] = around
                bits &= ~NODE
                if is_node:
                    stack_node[depth] = num_nodes
                    nodes[num_nodes, NODE_PARENT] = around
                    nodes[num_nodes, NODE_HINTS] = hints
                    nodes[num_nodes, NODE_KEY] = key
                    nodes[num_nodes, NODE_BITS] = bits
                    bits |= NODE
                    if (bits & TABLE) != 0:
                        stack_count[depth] = column
                        if num_tables < MAX_TABLES:
                            spans[num_tables, :] = 0
                        num_tables += 1
                        column = 0
                    if (bits & CELL) != 0:
                        stack_count[depth] = row_of
                        row_of = num_rows
                        level = min(max(num_tables - 1, 0), MAX_TABLES - 1)
                        while column < MAX_SPAN and spans[level, column] > 0:  # a cell of a row above goes on here
                            spans[level, column] -= 1
                            column += 1
                            if max_spanned > 0:
                                empty_line(lines, k, out, o, around, row_of)
                                max_spanned -= 1
                                k += 1
                                o += 1
                        width = min(max(1, found >> 8 & 0xFFFF), MAX_SPAN)
                        for _extra in range(width):
                            if column < MAX_SPAN:
                                spans[level, column] = (found >> 24) - 1 if found >> 24 > 1 else 0
                                column += 1
                        stack_spare[depth] = width - 1
                        line_start = o
                        stack_value[depth] = k
                    num_nodes += 1
                if (bits & LIST) != 0:
                    stack_value[depth] = list_top
                    stack_count[depth] = 0
                    list_top = depth
                if (bits & PRE) != 0:
                    num_pre += 1
                    pre_start = True
                if (bits & HEADING) != 0:
                    num_headings += 1
                if skips and skip_depth < 0:
                    skip_depth = depth
                stack_key[depth] = key
                stack_bits[depth] = bits
                depth += 1
                keep = depth
                continue
            if is_end:  # a bogus comment
                while i < n and data[i] != 62:
                    i += 1
                i += 1
                continue

        if skip_depth >= 0:
            count = 1 if c > 32 else 0
            i += 1
            while i < n and data[i] != 60:
                if 0xE3 <= data[i] <= 0xE9 and not in_link:
                    skipped += 1
                count += data[i] > 32 and (data[i] & 0xC0) != 0x80
                i += 1
            if (stack_bits[skip_depth] & SKIP) != 0:
                controls += count
            else:
                hidden += count
            continue

        # text up to the next tag
        literal = c == 60
        while i < n:
            c = np.int64(data[i])
            second = 0
            if c < 128:
                if c == 60 and not literal and with_tags:
                    break
                literal = False
                if c == 32 or 9 <= c <= 13:
                    i += 1
                    if num_pre == 0:
                        space = True
                        continue
                    if c == 13:
                        continue
                    if c == 10:
                        if pre_start:
                            pre_start = False
                            continue
                        want_break = 2
                        break
                    code = c
                elif c == 38:
                    code, second, i = reference(data, i, references)
                    if code == 0:
                        code = 38
                        i += 1
                else:
                    code = c
                    i += 1
            else:
                code, i = code_point(data, i)
            pre_start = False
            while code > 0:
                known = np.int64(characters[code]) if code < 0x10000 else LETTER * ((code & 0xFFFE) != 0xFFFE)
                if (known & (SPACE | DROPPED)) != 0:
                    if (known & DROPPED) != 0:
                        code, second = second, 0
                        continue
                    if num_pre == 0:
                        space = True
                        code, second = second, 0
                        continue
                    code = 32
                elif code < 33 and num_pre == 0 and (code == 32 or 9 <= code <= 13):  # a white space reference
                    space = True
                    code, second = second, 0
                    continue
                if o == line_start and num_pre == 0:
                    if code == 0x3000 or code == 0xFEFF:
                        code, second = second, 0
                        continue
                    if bullet:
                        o = put_bullet(out, o, number)
                        chars += 2
                        flags |= IS_ITEM
                elif space and num_pre == 0:
                    out[o] = 32
                    o += 1
                    chars += 1
                space = bullet = False
                o = put(out, o, code)
                read += code > 32 and code != 0x3000
                if code == 0xFFFD:
                    flags |= HAS_DAMAGE
                if (known & (END | COMMA)) != 0:
                    marks += 1
                if code < 0x80:
                    if 48 <= code <= 57:
                        if (
                            o - line_start >= 4
                            and 48 <= out[o - 2] <= 57
                            and ((out[o - 4] == 50 and out[o - 3] == 48) or (out[o - 4] == 49 and out[o - 3] == 57))
                        ):
                            flags |= HAS_YEAR
                    elif code == 80:  # ICP
                        if o - line_start >= 3 and out[o - 2] == 67 and out[o - 3] == 73:
                            seen |= INSIDE
                    elif code == 116:  # Copyright, All Rights Reserved
                        if o - line_start >= 3 and out[o - 2] == 104 and out[o - 3] == 103:
                            seen |= INSIDE
                chars += 1
                seen |= known & (INSIDE | BYLINE)
                if not begun and (known & OPENER) == 0:
                    begun = True
                    seen |= known & START
                    if num_headings > 0:
                        flags |= IS_HEADING
                    if num_pre > 0:
                        flags |= IS_PRE
                last = known
                if (known & LETTER) != 0:
                    letters += 1
                    if in_link:
                        linked += 1
                        if links == 0:
                            links = 1
                    else:
                        own += 1
                code, second = second, 0

    info[:] = (k, num_nodes, own, skipped, hidden, controls)

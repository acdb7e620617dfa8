"""Tables for a terminal, in which Han takes two columns."""

from __future__ import annotations

from rich.cells import cell_len

from pretrain.columns import MOST_COLUMNS, align_table, wrap_paragraph


def test_columns_stand_below_each_other_whatever_they_are_written_in() -> None:
    rows = [["", "bits"], ["唐诗", "3.5"], ["news", "12.25"]]
    assert list(align_table(rows, "  ")) == ["         bits", "  唐诗    3.5", "  news  12.25"]


def test_a_name_neither_steers_the_terminal_nor_breaks_the_table() -> None:
    head, line = align_table([["", "bits"], ["\x1b[2J\n" + "百科" * 20, "3.5"]])
    assert line.startswith("?[2J?百科") and line.endswith("百   3.5"), "cut before a character that would not fit"
    assert cell_len(line) == cell_len(head) <= MOST_COLUMNS + 6
    assert list(wrap_paragraph("a\x1b[2Jb")) == ["a?[2Jb"]

"""Tables for a terminal, in which Han takes two columns."""

from __future__ import annotations

from pretrain.columns import aligned, num_columns, wrapped


def test_columns_stand_below_each_other_whatever_they_are_written_in() -> None:
    rows = [["", "bits"], ["唐诗", "3.5"], ["news", "12.25"]]
    assert list(aligned(rows, "  ")) == ["         bits", "  唐诗    3.5", "  news  12.25"]


def test_a_paragraph_is_folded_at_its_spaces() -> None:
    lines = list(wrapped("word " * 40 + "https://example.org/" + "x" * 90))
    assert all(num_columns(line) <= 80 for line in lines[:-1])
    assert lines[-1].strip() == "https://example.org/" + "x" * 90
    assert lines[1].startswith("  word")

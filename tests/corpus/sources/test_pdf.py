"""PDF: order, columns, joined lines, heads and numbers that go and are counted; files without text, locked, cut."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from corpus.engine.errors import UsageError
from corpus.sources import SourcesConfig, kinds, read
from tests.corpus.sources.document_files import Placed, pdf, placed, wrapped
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_archives import zipped
from tests.corpus.sources.test_stage import extract, rows
from tests.corpus.texts import document

PROSE = [re.sub("[0-9]", "几", document(number)).replace("\n", "") for number in range(8)]


def book(num_pages: int = 4, width: int = 33) -> tuple[list[list[Placed]], list[str]]:
    """Pages with a head and a number, and the paragraphs in them."""
    lines = wrapped("\n".join(PROSE), width)
    pages = []
    for number in range(num_pages):
        part = lines[number * 20 : number * 20 + 20]
        head = (80, 800, f"第{number // 2 + 1}章　学而{'时习' if number % 2 else ''}")
        pages.append([head, *placed(part), (290, 40, f"- {number + 7} -")])
    return pages, "".join(lines[: 20 * num_pages]).replace("\u3000\u3000", "\n").strip().split("\n")


def test_lines_are_joined_and_heads_and_numbers_counted(tmp_path: Path) -> None:
    pages, paragraphs = book(8)
    pages.insert(3, [])
    info = f"/Title <feff{'论语'.encode('utf-16-be').hex()}> /Author (Kong) /CreationDate (D:20190410120000)"
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.pdf").write_bytes(pdf(pages, info=info))
    folder = extract(tmp_path / "in", tmp_path / "out", meta=["author"])
    (row,) = rows(folder)
    assert row["text"].split("\n") == paragraphs
    assert (row["title"], row["date"]) == ("论语", "2019-04-10")
    assert '"author":"Kong"' in row["meta"]
    extra = folder.counts.extra
    assert extra["lines_removed.running_head"] == 8 and extra["lines_removed.page_number"] == 8
    assert extra["pages_without_text"] == 1 and extra["characters_removed.page_number"] == 3 * 3 + 5 * 4
    assert extra["characters_read"] == len("".join(paragraphs)) + sum(
        extra[f"characters_removed.{rule}"] for rule in ("running_head", "page_number")
    )


def test_two_columns_below_a_title_are_read_one_after_the_other(tmp_path: Path) -> None:
    left, right = wrapped(PROSE[0] + PROSE[1], 20), wrapped(PROSE[2] + PROSE[3], 20)
    size = min(len(left), len(right))
    left, right = left[:size], right[:size]
    both = [
        line for pair in zip(placed(left, 60), placed(right, 310), strict=True) for line in pair
    ]  # as some write it
    title = (60.0, 780.0, "论学而时习之的现代意义及其在当代基础教育中的实践路径研究与再思考")
    (record,), bad = read_all(tmp_path / "a.pdf", pdf([[*both, title]]))
    assert not bad and record.text is not None
    assert record.text.split("\n") == [title[2], "".join(left).strip("\u3000"), "".join(right).strip("\u3000")]


def test_tables_are_rows_and_words_have_spaces(tmp_path: Path) -> None:
    table = [(80.0 + 150 * x, 700.0 - 16 * y, f"{'甲乙丙'[x]}{y}") for y in range(6) for x in range(3)]
    (record,), _ = read_all(tmp_path / "a.pdf", pdf([[*table, (80, 560, "deep learning 学习")]]))
    assert record.text is not None
    assert record.text.split("\n") == [*(f"甲{y}\t乙{y}\t丙{y}" for y in range(6)), "deep learning 学习"]


def test_an_indent_begins_a_paragraph_behind_a_full_line(tmp_path: Path) -> None:
    full = [(PROSE[number] + PROSE[number + 1])[: 33 * 3 - 3] + "。" for number in range(4)]
    (record,), _ = read_all(tmp_path / "a.pdf", pdf([placed(wrapped("\n".join(full), 33))]))
    assert record.text is not None and record.text.split("\n") == full


def test_short_lines_and_gaps_end_a_paragraph_and_a_title_is_no_head(tmp_path: Path) -> None:
    title, pages, paragraphs = "第 2 章 学而", [], []
    for number in range(5):
        text = "".join(PROSE[number:] + PROSE[:number])
        paragraphs += [text[:80], text[100:199], text[200:280]]
        lines = wrapped("\n".join(paragraphs[-3:]), 33, indent="")
        head = (80.0, 790.0, title if number == 0 else f"第 {number + 2} 章 学而")
        pages.append([head, *placed(lines[:6]), *placed(lines[6:], top=600)])  # a gap between the last two
    (record,), _ = read_all(tmp_path / "a.pdf", pdf(pages, large=title))
    assert record.text is not None and record.text.split("\n") == [title, *paragraphs]
    assert record.removed["running_head"][0] == 4


def test_a_poem_and_short_lines_stay_lines(tmp_path: Path) -> None:
    lines = ["床前明月光", "疑是地上霜", "举头望明月", "低头思故乡"] * 5
    (record,), _ = read_all(tmp_path / "a.pdf", pdf([placed(lines)]))
    assert record.text == "\n".join(lines)


def test_writing_that_runs_downwards(tmp_path: Path) -> None:
    lines = ["abcdefghijklmnopqrstuvwxyz"[at:] + "0123456789" * 2 for at in range(4)]
    down = [(500.0 - 18 * x, 760.0 - 11 * y, char) for x, line in enumerate(lines) for y, char in enumerate(line)]
    (record,), _ = read_all(tmp_path / "a.pdf", pdf([down]))
    assert (record.text or "").split() == lines


def test_what_has_no_text_layer_is_never_guessed(tmp_path: Path) -> None:
    _, (bad,) = read_all(tmp_path / "scan.pdf", pdf([[], []]))
    assert bad.kind == "no_text_layer" and "2 pages" in bad.detail
    _, (bad,) = read_all(tmp_path / "garbage.pdf", pdf([placed(["\ue001\ue002\ue003\ue004学而" * 3])]))
    assert bad.kind == "no_text_layer" and "ToUnicode" in bad.detail
    single = [(80.0 + 10 * at, 700.0, char) for at, char in enumerate("学而时习之，不亦说乎")]
    good, other = read_all(tmp_path / "fonts.pdf", pdf([[*single, (80, 600, "abc")]]))
    if good:  # a font of this machine stands in for the one that is not embedded
        assert good[0].text == "学而时习之，不亦说乎\nabc"
    else:
        assert other[0].kind == "no_text_layer" and "fonts" in other[0].detail


def test_passwords(tmp_path: Path) -> None:
    pages, paragraphs = book(1)
    (record,), bad = read_all(tmp_path / "open.pdf", pdf([pages[0][1:-1]], password=b""))
    assert not bad and record.text is not None and record.text.split("\n") == paragraphs
    _, (bad,) = read_all(tmp_path / "locked.pdf", pdf(pages, password=b"secret"))  # type: ignore[assignment]
    assert bad.kind == "encrypted"  # type: ignore[attr-defined]


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.9, 0.999])
def test_a_cut_file_is_one_bad_record(tmp_path: Path, share: float) -> None:
    data = pdf(book()[0])
    good, bad = read_all(tmp_path / "a.pdf", data[: int(share * len(data))])
    assert not good and [one.kind for one in bad] == ["truncated"]
    good, bad = read_all(tmp_path / "a.pdf", b"%PDF-1.4\n" + bytes(range(256)) * 9 + b"%%EOF")
    assert not good and [one.kind for one in bad] == ["pdf"]


def test_a_file_without_end_costs_its_time(tmp_path: Path) -> None:
    kids = " ".join(["4 0 R"] * 40_000)
    data = pdf([placed([PROSE[0][:40]] * 40)]).replace(
        b"/Kids [4 0 R] /Count 1", f"/Kids [{kids}] /Count 40000".encode()
    )
    good, bad = read_all(tmp_path / "a.pdf", data, max_document_seconds=0.4)
    assert not good and [(one.kind, one.detail) for one in bad] == [("killed", "time")]


def test_in_archives_and_compressed(tmp_path: Path) -> None:
    import gzip

    data = pdf(book()[0])
    (record,), _ = read_all(tmp_path / "a.zip", zipped({"卷/../一.pdf": data}))
    assert record.member == "卷/../一.pdf" and record.key == "一.pdf"
    (again,), _ = read_all(tmp_path / "a.pdf.gz", gzip.compress(data))
    assert again.text == record.text and again.key == "a.pdf.gz"
    _, (bad,) = read_all(tmp_path / "a.pdf", data, kind="text")
    assert bad.kind == "left_out.pdf"


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(book()[0]))
    find = importlib.util.find_spec
    monkeypatch.setattr(kinds.importlib.util, "find_spec", lambda name: None if name == "pypdfium2" else find(name))
    with pytest.raises(UsageError, match=r"wenhai\[documents\]"):
        list(read(str(tmp_path / "a.pdf"), SourcesConfig()))
    with pytest.raises(ValueError, match=r"wenhai\[documents\]"):
        SourcesConfig(kind="pdf")
    with pytest.raises(UsageError, match=r"a\.pdf: .*wenhai\[documents\]"):  # before any work
        extract(tmp_path, tmp_path / "out")
    assert not list((tmp_path / "out").glob("extract-*/data"))


def test_a_title_that_is_no_text_costs_itself(tmp_path: Path) -> None:
    (record,), bad = read_all(tmp_path / "a.pdf", pdf([placed(["学而时习之"])], info="/Title <FEFFD800>"))
    assert (record.title, record.text) == (None, "学而时习之") and not bad

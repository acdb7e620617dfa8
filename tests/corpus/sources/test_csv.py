"""CSV and TSV: names from the first line, line ends in quotes, and a quote that never closes costs its line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from corpus.sources.formats import csv as formats_csv
from tests.corpus.sources.files import read_all


def test_rows_are_those_of_the_csv_module(tmp_path: Path) -> None:
    rows = [[f"题{index}", f'学而“时习”,\n"{index}"\r\n之', f"http://e.org/{index}"] for index in range(20)]
    for delimiter in ",\t;|":
        file = io.StringIO()
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([["title", "text", "url"], *rows])
        good, bad = read_all(tmp_path / "a.csv", file.getvalue().encode())
        texts = [[record.title, record.text, record.url] for record in good]
        assert texts == rows and not bad


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16"])
def test_what_spreadsheets_write(tmp_path: Path, encoding: str) -> None:
    text = "标题\ttext\n" + "".join(f"甲{index}\t学而时习之，不亦说乎？\n" for index in range(20))
    good, bad = read_all(tmp_path / "a.tsv", text.encode(encoding))
    assert len(good) == 20 and not bad
    assert good[3].text == "学而时习之，不亦说乎？" and good[3].fields == {"标题": "甲3"}


def test_bad_rows_cost_their_line(tmp_path: Path) -> None:
    lines = [
        "title,text",
        "一,甲",
        '二,"没有关上',  # a quote that never closes
        "三,丙,多",
        "四," + "x" * 300,
        "五",
        "六,己,,",
        '七,"庚',
    ]
    good, bad = read_all(tmp_path / "a.csv", "\n".join(lines).encode(), max_line_bytes=200)
    assert [(record.title, record.text) for record in good] == [("一", "甲"), ("六", "己")]
    assert [error.kind for error in bad] == ["csv", "csv", "too_long", "field", "csv"]
    data = "\n".join(lines).encode()
    assert [data[error.offset :].decode()[0] for error in bad] == list("二三四五七")


def test_names_of_columns_without_a_first_line(tmp_path: Path) -> None:
    good, bad = read_all(tmp_path / "a.csv", "1,论语,学而\n".encode(), columns=["label", "title", "text"])
    assert [(record.title, record.text, record.fields) for record in good] == [("论语", "学而", {"label": "1"})]
    assert not bad


def test_many_open_quotes_take_linear_time(tmp_path: Path) -> None:
    good, bad = read_all(tmp_path / "a.csv", b"title,text\n" + b'a,"b\n' * 5_000, max_line_bytes=20_000)
    assert len(good) + len(bad) == 5_000 or len(good) == 2_500


def test_quotes_that_open_again_and_again_do_not_read_a_file_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_read = 0
    read_line = formats_csv._Lines.__next__

    def counted(lines: formats_csv._Lines) -> str:
        nonlocal num_read
        num_read += 1
        return read_line(lines)

    monkeypatch.setattr(formats_csv._Lines, "__next__", counted)
    good, bad = read_all(tmp_path / "a.csv", b"text,x\n" + b'a"b,"c\n' * 5000, max_line_bytes=10_000)
    assert not good and [one.offset for one in bad] == [7 + 7 * index for index in range(5000)]
    assert num_read < 100_000

"""Sogou's collections: news and pages found by their bytes, however broken the tags between them are."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from corpus.sources import SourcesConfig, kind_of, read
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_stage import extract, rows


def news(index: int, content: str | None = None) -> bytes:
    content = f"第{index}篇：学而时习之，不亦说乎？" if content is None else content
    return (
        f"<doc>\n<url>http://example.org/{index}</url>\n<docno>{index:016x}</docno>\n"
        f"<contenttitle>标题{index}</contenttitle>\n<content>{content}</content>\n</doc>\n"
    ).encode("gb18030")


def web(index: int, html: bytes | None = None) -> bytes:
    html = f"<html><body><p>第{index}页：学而时习之</p></body></html>".encode("gbk") if html is None else html
    return (
        f"<doc>\n<docno>{index:016x}</docno>\n<url>http://example.org/{index}</url>\n".encode() + html + b"\n</doc>\n"
    )


def test_news_with_its_odd_spaces_and_bare_signs(tmp_path: Path) -> None:
    data = news(1, "\ue40c\ue40c甲\ue40c乙 A&B<C>。\ue40c\ue40c丙 &amp; 丁。")
    (record,), bad = read_all(tmp_path / "a.txt", data, kind="sogou")
    assert not bad
    assert record.text == "甲\u3000乙 A&B<C>。\n丙 &amp; 丁。"
    assert (record.kind, record.url, record.key) == ("text", "http://example.org/1", "http://example.org/1")
    assert (record.title, record.charset, record.fields) == ("标题1", "gb18030", {"docno": f"{1:016x}"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</doc>\n", b"\n"),
        (b"</content>\n</doc>\n", b"\n"),
        (b"</contenttitle>", b""),
        (b"</url>", b""),
        (b"</docno>\n", b""),
        (b"\n", b"\r\n"),
        (b"<contenttitle>", b"<contenttitle><contenttitle>"),
    ],
)
def test_missing_tags_cost_nothing(tmp_path: Path, old: bytes, new: bytes) -> None:
    data = news(0) + news(1).replace(old, new) + news(2)
    good, bad = read_all(tmp_path / "a.txt", data, kind="sogou")
    assert not bad
    assert [record.text for record in good] == [f"第{index}篇：学而时习之，不亦说乎？" for index in range(3)]
    assert [record.url for record in good] == [f"http://example.org/{index}" for index in range(3)]
    assert [record.offset for record in good] == [0, len(news(0)), data.rindex(b"<doc>")]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (b"<content>", b"<con", "field"),
        ("第1篇：学而时习之，不亦说乎？".encode("gbk"), b"\xff" * 30, "charset"),
        ("第1篇：学而时习之，不亦说乎？".encode("gbk"), b" ", "empty"),
        ("学".encode("gbk"), b"x" * 3000, "too_long"),
        (b"<doc>\n<url>", b"<dxx>\n<url>", "field"),
    ],
)
def test_a_damaged_record_costs_itself(tmp_path: Path, old: bytes, new: bytes, kind: str) -> None:
    data = news(0) + news(1).replace(old, new) + news(2)
    good, bad = read_all(tmp_path / "a.txt", data, kind="sogou", max_line_bytes=2000)
    assert [str(record.url)[-1] for record in good] == ["0", "2"]
    assert [(error.kind, error.offset) for error in bad] == [(kind, bad[0].offset)]
    assert len(news(0)) - 1 <= bad[0].offset <= len(news(0)) + 1


def test_pages_keep_their_bytes(tmp_path: Path) -> None:
    pages = [web(0), web(1, "<p>台灣</p></doc>\n<doc>x".encode("big5")), web(2).replace(b"</doc>", b""), web(3, b"")]
    good, bad = read_all(tmp_path / "a.txt", b"".join(pages), kind="sogou")
    assert [(record.kind, str(record.url)[-1]) for record in good] == [("html", "0"), ("html", "1"), ("html", "2")]
    assert good[1].raw == "<p>台灣</p></doc>\n<doc>x".encode("big5") and good[1].fields == {"docno": f"{1:016x}"}
    assert [error.kind for error in bad] == ["empty"]


@pytest.mark.parametrize("make", [news, web])
def test_a_cut_is_truncated_and_what_came_before_it_stays(tmp_path: Path, make: object) -> None:
    data = b"".join(make(index) for index in range(3))  # type: ignore[operator]
    good, bad = read_all(tmp_path / "a.txt", data[:-25], kind="sogou")
    assert len(good) == 2 and [error.kind for error in bad] == ["truncated"]
    good, bad = read_all(tmp_path / "a.gz", gzip.compress(data)[:-9], kind="sogou")
    assert [error.kind for error in bad] == ["truncated"] and len(good) >= 2
    parts = [gzip.compress(make(index)) for index in range(3)]  # type: ignore[operator]
    parts[1] = parts[1][:30] + b"\xff\xff\xff" + parts[1][33:]
    good, bad = read_all(tmp_path / "b.gz", b"".join(parts), kind="sogou")
    assert [str(record.url)[-1] for record in good] == ["0", "2"] and [error.kind for error in bad] == ["corrupt"]


def test_utf_8_copies_and_the_kind(tmp_path: Path) -> None:
    data = news(1).decode("gb18030").encode()
    for name, content in {"news.xml": data, "page": web(1), "x.gz": gzip.compress(data)}.items():
        (tmp_path / name).write_bytes(content)
        assert kind_of(tmp_path / name) == "sogou"
    (record,) = read(str(tmp_path / "news.xml"), SourcesConfig())
    assert record.text == "第1篇：学而时习之，不亦说乎？" and record.charset == "utf-8"  # type: ignore[union-attr]
    (tmp_path / "trec").write_bytes(b"<doc> text")
    assert kind_of(tmp_path / "trec") == "text"


def test_a_file_without_marks_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(web(0) + b"<doc" * 2_000_000 + web(1))
    tracemalloc.start()
    found = list(read(str(path), SourcesConfig(kind="sogou", max_line_bytes=50_000)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.kind for one in found] == ["too_long", "html"] and peak_bytes < 5_000_000


def test_through_the_stage(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(news(7).replace(b"<content>", b"") + b"".join(map(news, range(5))))
    (tmp_path / "in" / "b.txt").write_bytes(b"".join(map(web, range(10, 15))))
    folder = extract(tmp_path / "in", tmp_path / "out", kind="sogou", source="sogou")
    assert folder.counts.documents_in == 11 and folder.counts.errors == {"field": 1}
    found = {row["url"]: row for row in rows(folder)}
    assert len(found) == 10 and found["http://example.org/12"]["text"] == "第12页：学而时习之"
    assert found["http://example.org/3"]["title"] == "标题3" and found["http://example.org/3"]["source"] == "sogou"

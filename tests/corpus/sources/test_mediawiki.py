"""MediaWiki dumps: pages, what is none, damage that costs its page, and ranges of streams."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.storage import File
from corpus.sources import BadRecord, Record, SourcesConfig, can_be_cut, kind_of, read
from corpus.sources.config import InputConfig
from corpus.sources.packing import Source, pack
from tests.corpus.sources.files import read_all
from tests.corpus.sources.test_stage import extract, rows

HEAD = b"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="zh">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    <dbname>zhwiki</dbname>
    <base>https://zh.wikipedia.org/wiki/Wikipedia:%E9%A6%96%E9%A1%B5</base>
    <namespaces><namespace key="0" case="first-letter" /><namespace key="10">Template</namespace></namespaces>
  </siteinfo>
"""
TAIL = b"</mediawiki>\n"


def page(index: int, text: str | None = None, *, ns: int = 0, inner: str = "", model: str = "wikitext") -> bytes:
    text = f"'''第{index}页'''：学而时习之，不亦说乎？有朋自远方来，不亦乐乎？<ref>书</ref>" if text is None else text
    return f"""  <page>
    <title>第{index}页 甲&amp;乙</title>
    <ns>{ns}</ns>
    <id>{index}</id>{inner}
    <revision>
      <id>{index + 1000}</id>
      <timestamp>2024-05-06T07:08:09Z</timestamp>
      <contributor><username>某人</username><id>77</id></contributor>
      <model>{model}</model>
      <format>text/x-wiki</format>
      <text bytes="10" xml:space="preserve">{escape(text, quote=False)}</text>
    </revision>
  </page>
""".encode()


def dump(*pages: bytes) -> bytes:
    return HEAD + b"".join(pages) + TAIL


def streams(pages: list[bytes], size: int = 3) -> list[bytes]:
    """A multistream dump's streams: the head, some pages each, the tail."""
    groups = [b"".join(pages[start : start + size]) for start in range(0, len(pages), size)]
    return [bz2.compress(part) for part in (HEAD, *groups, TAIL)]


def numbers(records: list[Record]) -> list[int]:
    return [record.fields["page_id"] for record in records]


def test_a_page_becomes_a_record_without_its_authors(tmp_path: Path) -> None:
    (record,), bad = read_all(tmp_path / "a.xml", dump(page(7, "A & B < C")))
    assert not bad
    assert record == Record(
        key="https://zh.wikipedia.org/wiki/%E7%AC%AC7%E9%A1%B5_%E7%94%B2%26%E4%B9%99",
        offset=len(HEAD) + 2,
        raw=b"A & B < C",
        kind="wikitext",
        url="https://zh.wikipedia.org/wiki/%E7%AC%AC7%E9%A1%B5_%E7%94%B2%26%E4%B9%99",
        charset="utf-8",
        source="zhwiki",
        title="第7页 甲&乙",
        date="2024-05-06",
        fields={"page_id": 7},
    )
    assert "某人" not in str(record)
    (named,), _ = read_all(tmp_path / "a.xml", dump(page(7, "A & B < C")), name="百科")
    assert named.source is None  # the recipe's name counts


def test_what_is_no_article_is_counted(tmp_path: Path) -> None:
    pages = [
        page(1),
        page(2, "#重定向 [[甲]]", inner='\n    <redirect title="甲" />'),
        page(3, ns=10),
        page(4, "local p = {}", model="Scribunto"),
        page(5, " \n"),
        page(6, "学" * 400),
        page(7, ns=-1),
    ]
    good, bad = read_all(tmp_path / "a.xml", dump(*pages), max_page_bytes=1000)
    assert numbers(good) == [1]
    assert [error.kind for error in bad] == ["redirect", "namespace", "content_type", "empty", "too_long", "namespace"]
    good, bad = read_all(tmp_path / "a.xml", dump(*pages), namespaces=[10, 0])
    assert numbers(good) == [1, 3, 6] and good[1].fields["namespace"] == 10


def test_the_last_revision_counts_and_an_export_without_head_has_no_urls(tmp_path: Path) -> None:
    revision = page(1, "旧").partition(b"<revision>")[2].partition(b"</revision>")[0]
    both = page(1, "新").replace(b"<revision>", b"<revision>" + revision + b"</revision><revision>", 1)
    (record,), bad = read_all(tmp_path / "a.xml", b"<mediawiki>" + both + TAIL)
    assert record.raw == "新".encode() and not bad
    assert (record.url, record.source, record.key) == (None, None, "第1页 甲&乙")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"</text>", b"</txet>"),
        (b"<title>", b"<title"),
        ("学".encode(), b"\xe5\xff"),
        ("学".encode(), b"\x00"),
        ("学".encode(), b"&undefined;"),
        (b"</page>", b"</pag"),
        (b"<title>", b'<!DOCTYPE x [<!ENTITY a "b">]><title>'),
    ],
)
def test_a_damaged_page_costs_itself(tmp_path: Path, old: bytes, new: bytes) -> None:
    pages = [page(index) for index in range(5)]
    pages[2] = pages[2].replace(old, new)
    good, bad = read_all(tmp_path / "a.xml", dump(*pages))
    assert numbers(good) == [0, 1, 3, 4] and [error.kind for error in bad] == ["xml"]
    assert bad[0].offset == dump(*pages).index(pages[2]) + 2


def test_a_page_whose_start_is_lost_is_counted(tmp_path: Path) -> None:
    pages = [page(1), page(2).replace(b"<page>", b"<qage>"), page(3)]
    good, bad = read_all(tmp_path / "a.xml", dump(*pages))
    assert numbers(good) == [1, 3] and [error.kind for error in bad] == ["xml"]


def test_a_file_that_ends_inside_a_page_is_truncated(tmp_path: Path) -> None:
    data = dump(page(1), page(2))
    good, bad = read_all(tmp_path / "a.xml", data[:-100])
    assert numbers(good) == [1] and [error.kind for error in bad] == ["truncated"]
    good, bad = read_all(tmp_path / "a.xml.gz", gzip.compress(data)[:-30])
    assert [error.kind for error in bad] == ["truncated"]


def test_a_giant_page_costs_itself_and_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(dump(page(1), page(2, "甲" * 10_000_000), page(3)))
    tracemalloc.start()
    found = list(read(str(path), SourcesConfig(max_page_bytes=100_000)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [getattr(one, "kind", "") for one in found] == ["wikitext", "too_long", "wikitext"]
    assert peak_bytes < 5_000_000


def spans(path: Path, step: int, config: SourcesConfig) -> list[Record | BadRecord]:
    size = path.stat().st_size
    return [one for start in range(0, size, step) for one in read(str(path), config, (start, start + step))]


def crossing(pages: list[bytes], size: int) -> list[bytes]:
    """Streams cut anywhere, as parallel compressors cut them."""
    data = dump(*pages)
    return [bz2.compress(data[start : start + size]) for start in range(0, len(data), size)]


@pytest.mark.parametrize("layout", ["multistream", "crossing", "crossing marks", "one stream"])
@pytest.mark.parametrize("damage", ["", "inside", "head", "end", "garbage"])
def test_ranges_give_the_same_records_wherever_they_are_cut(tmp_path: Path, layout: str, damage: str) -> None:
    pages = [page(index, ns=10 if index % 5 == 1 else 0) for index in range(14)]
    parts = {
        "multistream": lambda: streams(pages),
        "crossing": lambda: crossing(pages, 900),
        "crossing marks": lambda: crossing(pages, 101),
        "one stream": lambda: [bz2.compress(dump(*pages))],
    }[layout]()
    middle = len(parts) // 2
    if damage == "inside":
        parts[middle] = parts[middle][:-20] + b"\xff\xff\xff" + parts[middle][-17:]
    elif damage == "head":
        parts[middle] = b"XXXXXXXXXXXX" + parts[middle][12:]
    elif damage == "end":
        parts[-1] = parts[-1][:-4]
    elif damage == "garbage":
        parts.append(b"no stream")
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(b"".join(parts))
    config = SourcesConfig()
    whole = list(read(str(path), config))
    bad = [one.offset for one in whole if isinstance(one, BadRecord)]
    assert len(set(bad)) == len(bad)
    damages = [one.kind for one in whole if isinstance(one, BadRecord) and one.kind != "namespace"]
    assert len(damages) == (1 if damage else 0), damages
    if not damage:
        assert numbers([one for one in whole if isinstance(one, Record)]) == [n for n in range(14) if n % 5 != 1]
    if layout == "multistream" and damage in ("inside", "head"):
        assert len(whole) == 14 - 3 + 1
    for step in (61, 333, 1_000, 5_000) if layout == "multistream" else (397, 1_000):
        assert spans(path, step, config) == whole, step


def test_what_can_be_cut() -> None:
    config = SourcesConfig()
    assert can_be_cut("s3://b/zhwiki-pages-articles-multistream.xml.bz2", config)
    assert can_be_cut("/a/B.XML.BZ2", SourcesConfig(kind="mediawiki"))
    assert not can_be_cut("/a/b.xml.bz2", SourcesConfig(kind="text"))
    assert not can_be_cut("/a/b.xml.bz2", SourcesConfig(keep_prefix=False))
    assert not any(can_be_cut(name, config) for name in ("/a.xml.gz", "/a.xml", "/a.jsonl.bz2", "/a.jsonl.gz"))
    assert can_be_cut("/a.jsonl", config)


def test_the_kind_is_known_by_name_or_first_bytes(tmp_path: Path) -> None:
    for name, data in {
        "a.xml.bz2": b"",
        "a.xml": dump(page(1)),
        "b": b'<?xml version="1.0"?>\n<mediawiki>',
        "c.bz2": bz2.compress(dump(page(1))),
    }.items():
        (tmp_path / name).write_bytes(data)
        assert kind_of(tmp_path / name) == "mediawiki", name
    (tmp_path / "d.xml").write_bytes(b"<feed>")
    assert kind_of(tmp_path / "d.xml") == "text"


def build(tmp_path: Path, name: str, **sources: Any) -> Any:
    return extract(tmp_path / "in", tmp_path / name, **sources)


def test_a_dump_through_the_stage_in_any_number_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpus.sources.packing.MIN_SPAN_BYTES", 1)
    (tmp_path / "in").mkdir()
    pages = [page(index) for index in range(30)]
    pages[4] = page(4, "#REDIRECT [[x]]", inner='<redirect title="x" />')
    pages[5] = page(5, "{{空}}[[Category:x]]")
    pages[6] = page(6, "{{Header|title=论语|author=[[孔子]]}}\n子曰：'''学'''而时习之。")
    (tmp_path / "in" / "zh.xml.bz2").write_bytes(b"".join(streams(pages)))
    whole, cut = build(tmp_path, "whole", meta="*"), build(tmp_path, "cut", task_bytes=700, meta="*")
    assert whole.manifest["tasks"] == 1 < cut.manifest["tasks"]
    assert rows(cut, "fates") == rows(whole, "fates") and cut.counts == whole.counts
    assert [{**row, "row": 0} for row in rows(cut)] == [{**row, "row": 0} for row in rows(whole)]
    counts = whole.counts
    assert (
        counts.errors
        == {"redirect": 1, "empty": 1}
        == dict(Counter(fate["rule"].removeprefix("error:") for fate in rows(whole, "fates")))
    )
    assert counts.documents_in == 30 == counts.documents_out + 2
    found = {row["title"]: row for row in rows(whole)}
    assert found["第0页 甲&乙"]["text"] == "第0页：学而时习之，不亦说乎？有朋自远方来，不亦乐乎？"
    book = found["第6页 甲&乙"]
    assert (book["source"], book["encoding"], book["date"], book["text"], book["meta"]) == (
        "zhwiki",
        "utf-8",
        "2024-05-06",
        "子曰：学而时习之。",
        '{"author":"孔子","page_id":6}',
    )


def test_only_a_large_dump_is_cut(tmp_path: Path) -> None:
    size, path = 100 << 20, tmp_path / "a.xml.bz2"
    path.write_bytes(bz2.compress(HEAD))
    tasks = pack(Source("wiki", files=(File(str(path), size, "0" * 64),)), InputConfig(task_bytes=40 << 20))
    assert [(task.params["start"], task.params["end"]) for task in tasks] == [
        (start, start + (40 << 20)) for start in range(0, size, 40 << 20)
    ]

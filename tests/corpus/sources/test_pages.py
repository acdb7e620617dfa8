"""HTML records through the child process: order, batches, and what does not need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corpus import sandbox
from corpus.engine.stage import Counts
from corpus.extract import ExtractConfig
from corpus.sources import BadRecord, Record, pages
from corpus.sources.stage import to_document
from tests.corpus.texts import document


def records() -> Iterator[Record | BadRecord]:
    for index in range(40):
        if index % 7 == 3:
            yield BadRecord(index, 1, "json", "no JSON")
        elif index % 5 == 0:
            yield Record(str(index), index, b"{}", "text", text=document(index))
        else:
            yield Record(str(index), index, f"<p>{index} {document(index)}".encode("gbk"), "html", charset="gbk")


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_records_keep_their_order_in_any_batches(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(pages, "BATCH_RECORDS", batch)
    found = list(pages.with_pages(records(), ExtractConfig()))
    assert [record.offset for record, _ in found] == list(range(40))
    for record, page in found:
        is_page = isinstance(record, Record) and record.kind == "html"
        assert (page is not None) == is_page
        if page is not None:
            assert page.text.decode().startswith(f"{record.offset} ") and page.encoding == "gb18030"


def test_text_alone_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "shared_sandbox", None)
    texts: list[Record | BadRecord] = [Record("1", 1, b"{}", "text", text="学而时习之"), BadRecord(2, 1, "json", "")]
    assert list(pages.with_pages(texts, ExtractConfig())) == [(text, None) for text in texts]


def test_the_author_goes_into_meta_where_it_is_asked_for() -> None:
    html = f"<meta name=author content=李四><p>作者：李四</p><p>{document(1)}"
    record = Record("1", 1, html.encode(), "html", fields={"warc_date": "2020"})
    ((_, page),) = pages.with_pages([record], ExtractConfig())
    counts = Counts()
    assert to_document(record, page, counts, ["*"])["meta"] == '{"author":"李四","warc_date":"2020"}'.encode()
    assert to_document(record, page, counts, ["author"])["meta"] == '{"author":"李四"}'.encode()
    assert to_document(record, page, counts)["meta"] is None and counts.extra["meta_left_out"] == 2

"""Articles on several pages: joined in the order of their links, counted, and told where a page is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpus.engine.stage import Counts, Folder
from corpus.report import ledger
from corpus.report.lookup import find
from corpus.sources import articles
from corpus.sources.shards import Row
from corpus.sources.template import TextConfig
from tests.corpus.sources.files import warc_record
from tests.corpus.sources.test_stage import extract, rows
from tests.corpus.texts import document

Pages = list[tuple[str, int, str | None]]  # name, number of its text, link to the next page


def record(name: str, number: int, link: str | None) -> bytes:
    following = f"<a href={link}>下一页</a>" if link else ""
    html = (
        f"<html><body><h1>标题</h1><p>{document(number)}</p>{following}<div class=footer>版权所有</div></body></html>"
    )
    return warc_record(number, html.encode()).replace(
        b"https://example.org/%d" % number, f"http://a.cn/{name}".encode()
    )


def read(tmp_path: Path, *files: Pages) -> Folder:
    folder = tmp_path / "in"
    folder.mkdir(parents=True)
    for number, pages in enumerate(files):
        (folder / f"{number}.warc").write_bytes(b"".join(record(*page) for page in pages))
    return extract(folder, tmp_path / "out")


def next_pages(build: Folder) -> dict[str, str | None]:
    return {row["url"].rpartition("/")[2]: json.loads(row["meta"] or "{}").get("next_page") for row in rows(build)}


WHOLE: Pages = [("t_2023.html", 1, "t_2023_2.html"), ("t_2023_2.html", 2, "t_2023_3.html"), ("t_2023_3.html", 3, None)]
OTHER: Pages = [("u.html", 4, None), ("v.html", 5, "w.html")]


def test_the_pages_of_an_article_become_one_document(tmp_path: Path) -> None:
    build = read(tmp_path, [WHOLE[0], OTHER[0], WHOLE[1], OTHER[1], WHOLE[2]])
    found = {row["url"]: row for row in rows(build)}
    joined = found.pop("http://a.cn/t_2023.html")
    positions = [joined["text"].index(document(number).splitlines()[0]) for number in (1, 2, 3)]
    assert positions == sorted(positions) and not any(next_pages(build)[name] for name in ("t_2023.html", "u.html"))
    assert found.keys() == {"http://a.cn/u.html", "http://a.cn/v.html"}
    fates = rows(build, "fates")
    assert [(fate["rule"], fate["url"], fate["place"].partition(":")[0]) for fate in fates] == [
        ("extract.joined", "http://a.cn/t_2023_2.html", "0.warc"),
        ("extract.joined", "http://a.cn/t_2023_3.html", "0.warc"),
    ]
    counts = build.counts
    assert (counts.documents_in, counts.documents_out, counts.dropped) == (5, 3, {"extract.joined": 2})
    assert counts.bytes_out == sum(len(row["text"].encode()) for row in rows(build)) and "goes_on" not in counts.extra
    out = str(tmp_path / "out")
    (page,) = find(out, "http://a.cn/t_2023_3.html")
    end = ledger.history(out, page)[-1].values
    assert end["rule"] == "extract.joined" and "http://a.cn/t_2023.html" in end["detail"]


def test_what_extraction_removed_is_summed_over_the_pages(tmp_path: Path) -> None:
    build = read(tmp_path, WHOLE)
    (edits,) = rows_of_edits(build)
    removed = {edit["kind"]: edit["count"] for edit in edits}
    assert removed == {
        f"extract.{key.partition('.')[2]}": count
        for key, count in build.counts.extra.items()
        if key.startswith("characters_removed.")
    }


def rows_of_edits(build: Folder) -> list[list[dict[str, Any]]]:
    return [row["edits"] for file in build.files("edits") for row in pq.read_table(file.url).to_pylist()]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([WHOLE[:1]], {"t_2023.html": "t_2023_2.html"}),
        ([WHOLE[:2]], {"t_2023.html": "t_2023_3.html"}),
        ([WHOLE[:1], WHOLE[1:]], {"t_2023.html": "t_2023_2.html", "t_2023_2.html": None}),
        ([[WHOLE[1], WHOLE[0]]], {"t_2023_2.html": "t_2023_3.html", "t_2023.html": "t_2023_2.html"}),
        # two pages that go on on one: the first has it
        (
            [[WHOLE[0], ("t_2023_1.html", 1, "t_2023_2.html"), *WHOLE[1:]]],
            {"t_2023_1.html": "t_2023_2.html", "t_2023.html": None},
        ),
    ],
)
def test_a_page_that_does_not_follow_is_told(files: list[Pages], told: dict[str, str | None], tmp_path: Path) -> None:
    build = read(tmp_path, *files)
    assert next_pages(build) == {url: link and f"http://a.cn/{link}" for url, link in told.items()}
    assert build.counts.extra.get("goes_on", 0) == len(list(filter(None, told.values())))


def test_few_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that has waited longest is written when too many wait, or too much."""
    pages: Pages = [(f"p{number}.html", number, f"p{number}_2.html") for number in range(4)]
    pages += [(f"p{number}_2.html", number + 10, None) for number in range(4)]
    monkeypatch.setattr(articles, "MAX_WAITING", 3)
    assert read(tmp_path / "1", pages).counts.dropped == {"extract.joined": 3}
    monkeypatch.setattr(articles, "MAX_WAITING", 256)
    monkeypatch.setattr(articles, "MAX_WAITING_BYTES", 2 * len(document(3).encode()))
    assert 1 <= read(tmp_path / "2", pages).counts.dropped["extract.joined"] <= 2


def test_a_next_page_of_ones_own_stays() -> None:
    written = Collected()
    waiting = articles.Articles(written, Counts(), TextConfig())  # type: ignore[arg-type]
    row = Row(
        url="http://a.cn/t.html",
        title=None,
        date=None,
        encoding=None,
        meta='{"next_page":"第二页"}'.encode(),
        text=b"a",
    )
    waiting.add(articles.Document(b"", "", row, "t.html:offset 0", {}), "t_2.html")
    assert not written.rows
    waiting.end()
    assert [row["meta"] for row in written.rows] == ['{"next_page":"第二页"}'.encode()]


class Collected:
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, identity: bytes, source: str, row: Row, place: str, removed: object) -> None:
        self.rows.append(row)

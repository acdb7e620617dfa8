"""A folder with every kind of file at once: what comes in, is left out or in error, and where each document was."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.engine.run import current
from tests.corpus.sources import test_mediawiki as wiki
from tests.corpus.sources import test_sogou as sogou
from tests.corpus.sources.document_files import docx, epub, page, paragraph, pdf, placed, wrapped
from tests.corpus.sources.files import warc_record
from tests.corpus.sources.test_archives import PNG, tarred, zipped
from tests.corpus.texts import document


def texts() -> list[str]:
    """Real ones where the test data is, else made ones."""
    data = os.environ.get("WENHAI_TEST_DATA")
    if not data:
        return [document(seed, 30) for seed in range(60)]
    with open(Path(data, "text", "lctt_articles.jsonl"), encoding="utf-8") as file:
        return [json.loads(line)["text"][:1500] for line in islice(file, 60)]


def files(texts: list[str]) -> dict[str, bytes]:
    """Every kind, two texts a file where it holds several."""
    rest = iter(texts)
    take = lambda: next(rest)  # noqa: E731
    rows = lambda: [{"content": take(), "id": index} for index in range(2)]  # noqa: E731

    def table(write: Any) -> bytes:
        write(pa.Table.from_pylist(rows()), sink := io.BytesIO())
        return sink.getvalue()

    def dump(found: Any, **options: Any) -> bytes:
        return json.dumps(found, ensure_ascii=False, **options).encode()

    def lines() -> bytes:
        return b"\n".join(map(dump, rows()))

    sheet = io.StringIO()
    writer = csv.DictWriter(sheet, ["id", "content"])
    writer.writeheader()
    writer.writerows(rows())
    html = "<html><title>标题</title><body>{}</body></html>".format(
        "".join(f"<p>{part}</p>" for part in take().split("\n"))
    )
    words = "".join(char for char in take() if "一" <= char <= "鿿" or char in "，。")[:900]
    return {
        "jsonl/a.jsonl": lines(),
        "jsonl/b.jsonl.gz": gzip.compress(lines()),
        "jsonl/c.jsonl.xz": lzma.compress(lines()),
        "jsonl/d.jsonl.bz2": bz2.compress(lines()),
        "array.json": dump(rows(), indent=1),
        "nested.json": dump([{"data": {"text": take()}}]),
        "sheet.csv": sheet.getvalue().encode("gb18030"),
        "part.parquet": table(pq.write_table),
        "saved/data-00000-of-00001.arrow": table(pyarrow.feather.write_feather),
        "saved/state.json": b"{}",
        "crawl.warc.gz": gzip.compress(warc_record(1, html.encode())),
        "page.html": html.replace("标题", "另一页").replace("。", "！").encode(),
        "zhwiki.xml": wiki.dump(wiki.page(1, take())),
        "news.dat": sogou.news(1, take().replace("\n", "")),
        "散文.txt": take().encode("gb18030"),
        "notes.md": b"---\ntitle: a\n---\n" + take().encode(),
        "paper.pdf": pdf([placed(wrapped(words, 30)[:40])]),
        "letter.docx": docx("".join(map(paragraph, take().replace("&", "").replace("<", "").split("\n")))),
        "book.epub": epub({"a.xhtml": page(f"<h1>一</h1><p>{words[::-1]}</p>")}),
        "more.zip": zipped({"内/a.jsonl": lines(), "b.txt": take().encode(), "c.png": PNG}),
        "more.tar.gz": gzip.compress(tarred({"d.txt": take().encode(), "e.zip": zipped({"f.txt": take().encode()})})),
        "picture.txt": PNG,
        "archive": b"Rar!\x1a\x07\x01\0" + bytes(30),
        "old.doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
        "scan.pdf": pdf([[]]),
        "cut.parquet": b"PAR1" + bytes(40),
        "empty.txt": b"",
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    for name, data in files(texts()).items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_bytes(data)
    (folder / "r.toml").write_text(
        'extends = "web_zh"\n[[sources]]\npath = "in"\ntext = ["text", "content", "data.text"]\nmax_error_ratio = 0.2\n'
    )
    command = ["run", "--recipe", str(folder / "r.toml"), "--out", str(folder / "out"), "--workers", "0", "--quiet"]
    assert main(command) == 4  # two files are nothing but errors, and are named
    return folder


def test_each_kind_comes_in_and_the_rest_is_counted(built: Path) -> None:
    counts = current(str(built / "out"), "extract").counts
    assert counts.dropped == {
        "left_out.png": 2,
        "left_out.rar": 1,
        "left_out.doc": 1,
        "left_out.datasets_metadata": 1,
        "left_out.link": 1,
    }
    assert counts.errors == {"no_text_layer": 1, "parquet": 1}
    assert counts.documents_in == counts.documents_out + 6 + 2
    places = [place for file in current(str(built / "out"), "extract").files("places") for place in places_of(file.url)]
    found = Counter(place.partition(":")[0].partition("!")[0] for place in places)
    assert set(found) == set(files(texts())) - LEFT and found["more.zip"] == 3 and found["more.tar.gz"] == 2
    assert found["part.parquet"] == found["sheet.csv"] == found["array.json"] == found["jsonl/c.jsonl.xz"] == 2


LEFT = {"saved/state.json", "picture.txt", "archive", "old.doc", "scan.pdf", "cut.parquet", "empty.txt"}


def places_of(path: str) -> list[str]:
    places: list[str] = pq.read_table(path)["place"].to_pylist()
    return places


def test_files_in_error_are_named(built: Path) -> None:
    tables = [pq.read_table(file.url) for file in current(str(built / "out"), "extract").files("quarantine")]
    rows = [(row["file"], row["rule"]) for table in tables for row in table.to_pylist()]
    assert sorted(rows) == [("cut.parquet", "error:parquet"), ("scan.pdf", "error:no_text_layer")]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("more.tar.gz!e.zip!f.txt:offset 0", "more.tar.gz!e.zip!f.txt:offset 0"),
        ("part.parquet:offset 1", "part.parquet:offset 1"),
        ("scan.pdf", "error:no_text_layer"),
        ("more.zip!c.png:offset 0", "left_out.png"),
    ],
)
def test_fates_are_found_by_file_and_offset(
    built: Path, capsys: pytest.CaptureFixture[str], key: str, told: str
) -> None:
    assert main(["explain", str(built / "out"), key]) == 0
    assert told in capsys.readouterr().out

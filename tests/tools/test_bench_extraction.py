"""The scoring of extraction on two tiny pages, and the table; no time is asserted."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.bench.corpus import extraction
from tools.bench.corpus.extraction import NAMES, author_is, score, shingles, title_is
from tools.bench.peers.extract_pages import EXTRACTORS, one

GOLD = "渡口的摆渡人把剩下的面粉分成了七份。这个办法后来传到了别的村子[3]\n1. 先磨面"
PAGE = "<title>山路_文海</title><h1>山路</h1><div class=a id=b><p>作者：李四 2021-03-04</p><p>"


def test_lines_that_count_neither_way_and_half_a_text() -> None:
    row = {"gold": GOLD, "title": "山路修宽了", "optional": ["（记者 李四）"]}
    whole = score(row, GOLD)
    assert whole[:5] == (1.0, 1.0, 1.0, 3, 3)
    assert score(row, "山路修宽了\n（记者李四）\n" + GOLD.replace("[3]", "")) == whole
    half = score(row, GOLD.split("。")[0])
    assert half.precision == 1.0 and 0.3 < half.recall < 0.7 and half.present == 1
    assert score(row, "") == (0.0, 0.0, 0.0, 0, 3, True)
    assert shingles("甲乙丙丁戊", set()) == {"甲乙丙丁": 1, "乙丙丁戊": 1} and not shingles("", set())


def test_facts_are_right_or_wrong() -> None:
    assert (
        title_is("山路 修宽了！", "山路修宽了")
        and not title_is("山路修宽了_文海", "山路修宽了")
        and not title_is("", "")
    )
    assert author_is("李四、张三", "张三") and not author_is("李四", "张三") and not author_is("", "")


def test_real_pages_with_and_without_names(test_data: Path) -> None:
    rows = [row for row in extraction.read_labelled(test_data / "html_real") if row["gold"]]
    assert len(rows) > 90
    for pages in (rows, [row | {"html": NAMES.sub("", row["html"])} for row in rows]):
        assert statistics.mean(score(row, extraction.ours(row["html"])["text"]).f1 for row in pages) > 0.94


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pages").mkdir()
    text = GOLD.replace("\n", "</p><p>") * 4
    (tmp_path / "pages/a.html").write_text(PAGE + text)
    (tmp_path / "pages/b.html.gz").write_bytes(gzip.compress("<ul><li><a href=/>文海网</a></ul>".encode("gbk")))
    rows = [
        {"file": "a.html", "site": "a", "genre": "news", "gold": GOLD * 4, "title": "山路", "date": "2021-03-04"},
        {"file": "b.html", "site": "b", "genre": "list", "gold": "", "title": None, "date": None, "author": None},
    ]
    rows[0]["author"] = "李四"
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {row["file"]: extraction.ours("<p>" + "别的文字" * 9) for row in rows}
    monkeypatch.setattr(extraction, "peers", lambda *_: {"a peer": found})
    arguments = {"labelled": tmp_path, "strip_classes": True, "peers": True, "out": None, "worst": 1}
    extraction.run(SimpleNamespace(**arguments))  # type: ignore[arg-type]
    _, _, ours, peer, genre, worst = capsys.readouterr().out.splitlines()
    assert "1.00  1.00   1.00,1.00    1/1" in ours and " +0.000 [" in ours
    assert "0.00   0.00,0.00    1/1" in peer and " +1.000 [" in peer
    assert genre.split()[:4] == ["news", "1", "ours", ours.split()[3]] and worst.endswith("a.html")
    assert NAMES.sub("", PAGE) == PAGE.replace(" class=a id=b", "")


def test_a_peer_that_fails_counts_as_empty() -> None:
    def fails(html: str) -> dict[str, object]:
        raise ValueError(html)

    assert one(fails, "页")["error"] == "ValueError: 页" and one(fails, "页")["text"] == "" and len(EXTRACTORS) == 7

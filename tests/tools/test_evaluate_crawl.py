"""The evaluation of the crawler: its exit code, the kills that it counts, and the peers it is timed beside."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tools.demo.warc import Page, write_warc
from tools.evaluate import crawl as evaluate_crawl
from tools.evaluate import crawl_kills
from tools.evaluate.crawl_kills import Deaths
from tools.fake_site.crawling import read_payloads
from tools.fake_site.expected import Row, digest_of


@pytest.mark.parametrize(("wrong", "code"), [((), 0), (("http://a.test/: lost",), 1)])
def test_the_exit_code_says_whether_anything_is_wrong(
    wrong: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(evaluate_crawl, "coverage", lambda out, data: [Row("allowed", "homes", 1, 1, wrong)])
    monkeypatch.setattr(evaluate_crawl, "second_visit", lambda out: [])
    assert evaluate_crawl.main(["--out", str(tmp_path / "new")]) == code
    assert ("WRONG homes: http://a.test/: lost" in capsys.readouterr().out) == bool(wrong)


def test_addresses_that_must_not_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_crawl.main(["ssrf"]) == 0
    out = capsys.readouterr().out
    assert "169.254.169.254" in out and out.endswith("0 wrong\n")


def test_payloads_of_an_archive(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pages = [Page(f"http://a.test/{number}", 0, b"page %d" % number) for number in range(3)]
    write_warc(tmp_path / "data" / "00000.warc.gz", pages, {"software": "test"})
    payloads = read_payloads(tmp_path)
    assert payloads == {page.url: digest_of(page.html) for page in pages}
    assert read_payloads(tmp_path, skip=3) == {pages[2].url: payloads[pages[2].url]}  # warcinfo and two pages


def test_what_a_killed_crawl_had_recorded(tmp_path: Path) -> None:
    assert crawl_kills._recorded(tmp_path) == set()
    database = sqlite3.connect(tmp_path / "frontier.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    assert crawl_kills._recorded(tmp_path) == set()
    database.execute("CREATE TABLE fates (id INTEGER, name TEXT)")
    database.execute("CREATE TABLE urls (url TEXT, fate INTEGER)")
    database.execute("INSERT INTO fates VALUES (1, 'fetched'), (2, 'drop:robots')")
    database.execute("INSERT INTO urls VALUES ('http://a.test/', 1), ('http://b.test/', 2), ('http://c.test/', NULL)")
    assert crawl_kills._recorded(tmp_path) == {"http://a.test/"}
    database.execute("BEGIN")
    database.execute("UPDATE urls SET fate = 1")
    assert crawl_kills._recorded(tmp_path) == {"http://a.test/"}
    database.close()


def test_requests_after_an_offset(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [json.dumps({"server": "1", "event": event}) + "\n" for event in ("request", "answered", "request")]
    log.write_text("".join(lines))
    assert crawl_kills._requests_after(log, 0) == 2
    assert crawl_kills._requests_after(log, len(lines[0])) == 1


def test_everything_wrong_after_kills_counts() -> None:
    assert Deaths(kills=3).wrong == 0
    assert Deaths(fetched_again=["a"], lost=["b"], extra=["c"], damaged=["d"]).wrong == 4


@pytest.mark.slow
def test_a_killed_crawl_is_the_same_crawl(tmp_path: Path) -> None:
    deaths = crawl_kills.die(tmp_path, None, times=5, seed=7, pages=300)
    assert deaths.wrong == 0, deaths
    assert deaths.kills >= 3 and max(deaths.committed) > 50 and deaths.pages > 400


@pytest.mark.slow
def test_speed_beside_scrapy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_crawl.main(["speed", "--pages", "300", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11 and all(lines[row][24:31].strip() == "300" for row in (3, 4, 5, 8, 9, 10))


@pytest.mark.slow
def test_the_demo_makes_a_dataset_of_a_crawl(tmp_path: Path) -> None:
    from tools.demo import crawl as crawl_demo

    out = tmp_path / "demo"
    assert crawl_demo.main(["--out", str(out), "--pages", "200"]) == 0
    assert (out / "crawl" / "MANIFEST.json").exists() and (out / "report.html").exists() and (out / "run.json").exists()

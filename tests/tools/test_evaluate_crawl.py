"""The evaluation of the crawler: its exit code, and the peers it is timed beside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.demo.debian_pages import Page, write_warc
from tools.evaluate import crawl as evaluate_crawl
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


@pytest.mark.slow
def test_speed_beside_scrapy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_crawl.main(["speed", "--pages", "300", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9 and all(lines[row][24:31].strip() == "300" for row in (3, 4, 7, 8))


@pytest.mark.slow
def test_the_demo_makes_a_dataset_of_a_crawl(tmp_path: Path) -> None:
    from tools.demo import crawl as crawl_demo

    out = tmp_path / "demo"
    assert crawl_demo.main(["--out", str(out), "--pages", "200"]) == 0
    assert (out / "crawl" / "MANIFEST.json").exists() and (out / "report.html").exists() and (out / "run.json").exists()

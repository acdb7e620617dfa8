"""Whole crawls of small sites on loopback: their books, their ends, what comes after."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpus.__main__ import main
from corpus.engine import durable
from corpus.engine.stage import Folder
from corpus.report.verify import verify
from tests.corpus.crawl.small_site import Answer, Child, Site, command, crawl, page, run, serve, tree

PLAIN = {"Content-Type": "text/plain"}
SITE = {
    "/robots.txt": Answer(b"User-agent: *\nDisallow: /secret\n", 200, PLAIN),
    "/": page(
        "首", ["/a", "/copy", "/moved", "/loop", "/secret", "/gone", "/hidden", "/picture", "http://other.test/"]
    ),
    "/a": page("甲", ["/b"]),
    "/b": page("乙", ["/", "/a"]),
    "/copy": page("乙", ["/", "/a"]),
    "/moved": Answer(b"", 301, {"Location": "/b"}),
    "/loop": Answer(b"", 302, {"Location": "/loop"}),
    "/hidden": page("丙", head='<meta name="robots" content="noindex">'),
    "/picture": Answer(b"\x89PNG", 200, {"Content-Type": "image/png"}),
}
FATES = {
    "/": "fetched",
    "/a": "fetched",
    "/b": "fetched",
    "/copy": "fetched",
    "/moved": "moved",
    "/loop": "drop:redirect_loop",
    "/secret": "drop:robots",
    "/gone": "error:http_404",
    "/hidden": "drop:noindex",
    "/picture": "error:content_type",
}


def fates(out: Path, site: Site) -> dict[str, str]:
    """Fate by path; URLs of other hosts whole."""
    table = pq.read_table(out / "urls.parquet", columns=["url", "fate"]).to_pylist()
    return {row["url"].removeprefix(site.url("")): row["fate"] for row in table}


def manifest(out: Path) -> dict[str, object]:
    value: dict[str, object] = json.loads((out / "MANIFEST.json").read_text())
    return value


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, list[tuple[str, str]], str, dict[str, str]]]:
    """A finished crawl of `SITE`: its folder, the requests, what it said, and the fates."""
    out = tmp_path_factory.mktemp("crawl") / "out"
    with serve(SITE) as site:
        said = crawl(site, out, seeds=["/"])
        yield out, list(site.requests), said, fates(out, site)


Finished = tuple[Path, list[tuple[str, str]], str, dict[str, str]]


def test_every_url_has_its_fate(finished: Finished) -> None:
    _, requests, _, found = finished
    one_of_two = {found["/b"], found["/copy"]}  # whichever came later has the payload of the other
    assert one_of_two == {"fetched", "revisit"}
    assert found | {"/b": "fetched", "/copy": "fetched"} == FATES | {"http://other.test/": "drop:scope"}
    paths = [path for _, path in requests]
    assert sorted(paths) == sorted(["/robots.txt", *(set(FATES) - {"/secret"})])
    assert paths[0] == "/robots.txt"


def test_the_books_balance_and_every_file_is_as_it_was_written(finished: Finished) -> None:
    out, _, _, found = finished
    value = manifest(out)
    counts = value["counts"]
    assert isinstance(counts, dict)
    assert counts["documents_in"] == len(found) == 11
    assert counts["documents_out"] == 4
    assert counts["dropped"] == {"moved": 1, "redirect_loop": 1, "robots": 1, "noindex": 1, "scope": 1}
    assert counts["errors"] == {"http_404": 1, "content_type": 1}
    assert counts["extra"]["answers"] == 8 and counts["extra"]["robots"] == 1 and counts["extra"]["hosts"] == 1
    assert counts["extra"]["chinese_bytes"] > 0.9 * counts["extra"]["text_bytes"] > 0
    assert {file.url for file in Folder.open(str(out)).listed()} == {
        "data/00000.warc.gz",
        "robots/00000.warc.gz",
        "urls.parquet",
    }
    assert verify(str(out)) == []


@pytest.mark.parametrize(
    "name",
    [
        "data/00000.warc.gz",
        "robots/00000.warc.gz",
        "urls.parquet",
        "MANIFEST.json",
        "manifest/00000.jsonl",
        "done/crawl.json",
    ],
)
def test_verify_sees_a_changed_byte_a_lost_and_a_foreign_file(finished: Finished, name: str) -> None:
    path = finished[0] / name
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        assert [problem.path for problem in verify(str(finished[0]))] == [str(path)]
        path.unlink()
        assert [problem.kind for problem in verify(str(finished[0]))] == ["missing"]
    finally:
        path.write_bytes(data)
    extra = finished[0] / "data/00009.warc.gz"
    extra.write_bytes(b"")
    try:
        assert [problem.kind for problem in verify(str(finished[0]))] == ["extra"]
    finally:
        extra.unlink()


def test_the_summary_says_what_became_of_all(finished: Finished, capsys: pytest.CaptureFixture[str]) -> None:
    out, _, said, _ = finished
    assert "http_404" in said and "next: " in said
    assert main(["status", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "complete" in shown and "noindex" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert main(["status", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "complete"


@pytest.mark.long
def test_a_finished_crawl_is_not_run_again_but_goes_on_with_more_seeds_and_pages(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serve(tree(20)) as site:
        crawl(site, out, "--max-pages", "5", "--quiet")
        assert len(site.paths()) == 5
        counts = manifest(out)["counts"]
        assert isinstance(counts, dict) and counts["dropped"]["max_pages"] > 0
        assert verify(str(out)) == []
        assert "up to date" in crawl(site, out, "--max-pages", "5") and len(site.paths()) == 5
        assert "http_404" in crawl(site, out, seeds=["/0", "/new"])
        assert sorted(site.paths()) == sorted([*tree(20), "/new"]) and verify(str(out)) == []
        assert set(fates(out, site)) == {*tree(20), "/new"}


@pytest.mark.long
def test_a_second_visit_asks_only_for_what_has_changed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    version = {"/1": "1"}

    def answers(path: str, headers: Mapping[str, str]) -> Answer:
        if path not in pages:
            return Answer(b"", 404)
        tag = f'"{path}-{version.get(path, "0")}"'
        if headers.get("If-None-Match") == tag:
            return Answer(b"", 304, {"ETag": tag})
        body = page(path + version.get(path, "0")).body if path != "/0" else pages[path].body
        return Answer(body, 200, {"Content-Type": "text/html; charset=utf-8", "ETag": tag})

    pages = tree(4)
    with serve(answers) as site:
        crawl(site, out, "--quiet")
        version["/1"] = "2"
        crawl(site, out, "--quiet", "--since", "2999-01-01")
        assert fates(out, site) == {"/0": "not_modified", "/1": "fetched", "/2": "not_modified", "/3": "not_modified"}
        assert len(site.paths()) == 8
        crawl(site, out, "--quiet", "--since", "2999-01-01")  # the same round, and it is finished
        assert len(site.paths()) == 8 and verify(str(out)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_the_same_command_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    out, started, pages = tmp_path / "out", threading.Event(), tree(40)

    def answers(path: str, _: Mapping[str, str]) -> Answer:
        if len(site.requests) == 20:
            started.wait(150)
            os.kill(child.pid, number)
        return pages.get(path, Answer(b"", 404))

    with serve(answers) as site:
        child = Child(command(site, out))
        started.set()
        code, said = child.wait()
        assert code == 75, said
        assert "Run the same command again" in said and "not asked for yet" in said and "Traceback" not in said
        assert 19 <= len(site.paths()) < 40
        crawl(site, out, "--quiet")
        assert sorted(site.paths()) == sorted(pages)  # each once: what was under way came to its end


def test_a_second_signal_ends_what_hangs(tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()

    def answers(path: str, _: Mapping[str, str]) -> Answer:
        if path == "/0":
            started.wait(150)
            os.kill(child.pid, signal.SIGINT)
            os.kill(child.pid, signal.SIGTERM)
            release.wait(150)
        return Answer(b"", 404)

    with serve(answers) as site:
        child = Child(command(site, tmp_path / "out"))
        started.set()
        code, said = child.wait()
        release.set()
    assert code == 75, said
    assert "Unclosed" not in said and "Traceback" not in said and "destroyed" not in said
    assert "not asked for yet" in said  # no fate was made up for what was cut off


def test_a_full_disk_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    out, pages = tmp_path / "out", tree(60)
    with serve(pages) as site:
        words = command(site, out, "--quiet", "--set", "crawl.file_bytes=20000")
        code, said = Child(words, file_bytes=30_000).wait()
        assert code == 1, said
        assert "Free space" in said and "Traceback" not in said
        crawl(site, out, "--quiet", "--set", "crawl.file_bytes=20000")
        assert fates(out, site) == dict.fromkeys(pages, "fetched")
        assert verify(str(out)) == []


def test_two_crawls_do_not_share_a_folder(tmp_path: Path) -> None:
    with serve({}) as site, durable.RunLock(tmp_path / "out"):
        said = crawl(site, tmp_path / "out", code=3)
    assert "in use by process" in said and not site.requests


def test_a_crawl_does_not_go_into_the_folder_of_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    with serve({}) as site:
        said = crawl(site, tmp_path, code=2)
    assert f"--out {tmp_path / 'crawl'}" in said and not site.requests


@pytest.mark.long
def test_a_recipe_with_a_crawl_needs_no_input(tmp_path: Path) -> None:
    recipe, out = tmp_path / "my.toml", tmp_path / "out"
    with serve(tree(12)) as site:
        recipe.write_text(
            'extends = "web_zh"\n[crawl]\n'
            f'seeds = ["{site.url("/0")}"]\ncontact = "me@example.org"\n'
            f'[crawl.network]\nports = [{site.port}]\nallow_addresses = ["127.0.0.0/8"]\n'
            'resolve = {"site.test" = "127.0.0.1"}\n'
            "[crawl.politeness]\nmin_delay_seconds = 0\nlatency_factor = 0\n"
            '[filter.quality]\nbigram_association = "off"\n'  # or nothing of these pages is kept
        )
        words = ["run", "--recipe", str(recipe), "--out", str(out), "--workers", "0"]
        said = run(*words)
        assert "stopped: nothing is left" in said and "next: python -m corpus run" not in said
        asked = len(site.requests)
        assert "crawl        up to date: 12 pages kept" in run(*words)
        assert len(site.requests) == asked == 13
    assert verify(str(out)) == []
    [extract] = out.glob("extract-*")
    assert json.loads((extract / "MANIFEST.json").read_text())["counts"]["documents_in"] == 12
    assert main(["status", str(out)]) == 0
    assert main(["plan", "--recipe", str(recipe), "--out", str(out)]) == 0


def test_without_input_and_without_crawl_a_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("run", "plan"):
        assert main([verb, "--recipe", "web_zh", "--out", str(tmp_path / "out")]) == 2
        assert "[crawl]" in capsys.readouterr().err
    assert not os.path.exists(tmp_path / "out")

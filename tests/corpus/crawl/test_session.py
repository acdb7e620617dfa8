"""A crawl that is opened again: what it remembers, and what it does not do twice."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from corpus.crawl import run, session
from corpus.crawl.config import CrawlConfig
from corpus.crawl.session import Session
from corpus.engine.errors import Stopped
from corpus.engine.stage import MANIFEST_NAME
from tests.corpus.crawl.small_site import Answer, Child, command, crawl, page, serve

SEEDS = ("http://a.cn/", "http://b.cn/")
LATER = datetime(2030, 1, 1, tzinfo=UTC)


def opened(folder: Path, *, seeds: Sequence[str] = SEEDS, follow: str = "hosts", **options: Any) -> Session:
    config = CrawlConfig(seeds=tuple(seeds), contact="me@example.org", follow=follow)  # type: ignore[arg-type]
    return Session(config, folder, list(seeds), **options)


def test_seeds_that_are_known_are_not_added_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr(session, "seed_links", None)
        opened(tmp_path).close()
    again = opened(tmp_path, seeds=(*SEEDS, "http://c.cn/"))
    assert again.frontier.counts() == {"pending": 3}
    again.close()


def test_a_round_goes_on_or_another_begins(tmp_path: Path) -> None:
    for since, goes_on, expected in ((LATER, True, 1), (LATER + timedelta(1), True, 1), (LATER, False, 1)):
        one = opened(tmp_path, since=since, goes_on=goes_on)
        assert one.frontier.round == expected
        one.close()
    other = opened(tmp_path, since=LATER + timedelta(2))
    assert other.frontier.round == 2
    other.close()


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("since", [timedelta(7), LATER, None])
def test_an_age_goes_on_with_the_round_that_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: bool, since: datetime | timedelta | None
) -> None:
    def note(*arguments: Any, goes_on: bool) -> None:
        assert goes_on == (isinstance(since, timedelta) and not finished)
        assert isinstance(arguments[-1], datetime) or since is None
        raise Stopped("seen")

    if finished:
        (tmp_path / MANIFEST_NAME).touch()
    monkeypatch.setattr(session, "Session", note)
    with pytest.raises(Stopped, match="seen"):
        run.crawl(CrawlConfig(seeds=SEEDS, contact="me@example.org"), str(tmp_path), since=since)


def test_each_file_and_the_tally_are_as_the_last_checkpoint_left_them(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.visits.tally.pages = 7
    one.checkpoint()
    one.close()
    again = opened(tmp_path)
    assert (again.visits.tally.pages, again.files) == (7, {})
    again.close()


@pytest.mark.long
def test_a_seed_that_moves_to_www_is_crawled_there_also_after_a_restart(tmp_path: Path) -> None:
    hosts = ("site.test", "www.site.test", "blog.site.test")

    def answers(path: str, headers: Any) -> Answer:
        host = headers["Host"].partition(":")[0]
        if path == "/robots.txt":
            return Answer(b"", 404)
        if host == "site.test":
            return Answer(b"", 301, {"Location": site.url(path, "www.site.test")})
        return page(host + path, ["/1", "/2", site.url("/", "blog.site.test")])

    with serve(answers) as site:
        for pages in ("1", "9"):
            crawl(site, tmp_path / "out", "--follow", "hosts", "--max-pages", pages, seeds=["/"], hosts=hosts)
    asked = [(host, path) for host, path in site.requests if path != "/robots.txt"]
    assert sorted(asked) == [("site.test", "/"), *(("www.site.test", path) for path in ("/", "/1", "/2"))]


@pytest.mark.long
@pytest.mark.parametrize("path", ["/robots.txt", "/hop"])
def test_stopped_while_robots_txt_is_awaited_nothing_is_made_up(tmp_path: Path, path: str) -> None:
    def answers(asked: str, _: Any) -> Answer:
        if asked == "/robots.txt" and path == "/hop":
            return Answer(b"", 302, {"Location": "/hop"})
        if asked == path and not ended.is_set():
            started.wait(150)
            os.kill(child[0].pid, signal.SIGTERM)
            os.kill(child[0].pid, signal.SIGINT)
        return Answer(b"", 404) if asked != "/0" else page(0)

    child: list[Child] = []
    started, ended = threading.Event(), threading.Event()
    with serve(answers) as site:
        words = command(site, tmp_path / "out")
        child.append(Child(words))
        started.set()
        code, said = child[0].wait()
        ended.set()
        assert code == 75, said
        assert "Traceback" not in said and "destroyed" not in said
        crawl(site, tmp_path / "out", "--quiet")
        status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["fates"] == {"pending": 0, "fetched": 1}

"""The options of `python -m corpus crawl`: what they mean, and what is refused before anything is asked for."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from corpus.__main__ import main
from corpus.crawl import run
from corpus.crawl.command import add_arguments, config_of, parse_since
from corpus.crawl.config import CrawlConfig
from corpus.crawl.seeds import read_seeds
from corpus.engine.errors import UsageError

LEAST = ["--out", "x", "--seeds", "https://a.cn/", "--contact", "me@example.org"]


def config(*words: str) -> CrawlConfig:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return config_of(parser.parse_args(words))


def test_options_go_where_the_recipe_has_them() -> None:
    made = config(
        *(*LEAST, "--agent", "mybot", "--follow", "hosts", "--max-pages", "5", "--max-pages-per-host", "3"),
        *("--concurrency", "8", "--delay", "0.5", "--allow-address", "127.0.0.0/8", "--port", "8080"),
        *("--resolve", "A.cn=127.0.0.1", "--set", "crawl.budget.max_depth=2"),
    )
    assert (made.agent, made.follow, made.concurrency) == ("mybot", "hosts", 8)
    assert (made.budget.max_pages, made.budget.max_pages_per_host, made.budget.max_depth) == (5, 3, 2)
    assert made.politeness.min_delay_seconds == 0.5
    assert made.network.ports == (80, 443, 8080) and made.network.allow_addresses == ("127.0.0.0/8",)
    assert made.network.resolve == {"a.cn": "127.0.0.1"}


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert config(*LEAST) == CrawlConfig(seeds=("https://a.cn/",), contact="me@example.org")


def test_an_option_is_stronger_than_the_file_and_set_than_both(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(
        'description = "a recipe"\n[filter]\n[crawl]\nseeds = ["https://a.cn/"]\ncontact = "a@b.cn"\nconcurrency = 3\n'
        "[crawl.network]\nports = [81]\n"
    )
    made = config("--out", "x", "--config", str(path), "--concurrency", "4", "--port", "82")
    assert (made.contact, made.concurrency, made.network.ports) == ("a@b.cn", 4, (81, 82))
    assert (
        config("--out", "x", "--config", str(path), "--concurrency", "4", "--set", "crawl.concurrency=5").concurrency
        == 5
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x", "--seeds", "https://a.cn/"], "--contact"),
        (["--out", "x", "--contact", "me@example.org"], "--seeds"),
        ([*LEAST, "--set", "budget.max_depth=2"], "begins with crawl."),
        ([*LEAST, "--set", "crawl.budget.max_dept=2"], "did you mean max_depth"),
        ([*LEAST, "--set", "crawl.network=2", "--port", "81"], "network"),
        ([*LEAST, "--resolve", "a.cn"], "HOST=ADDRESS"),
        ([*LEAST, "--agent", "my bot"], "agent"),
        ([*LEAST, "--concurrency", "0"], "concurrency"),
    ],
)
def test_a_mistake_is_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(*words)


def test_a_file_whose_sections_are_values(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("crawl = 3\n")
    with pytest.raises(UsageError, match="section"):
        config("--config", str(tmp_path / "a.toml"), *LEAST)
    (tmp_path / "b.toml").write_text("[crawl]\nnetwork = 3\n")
    with pytest.raises(UsageError, match="network"):
        config("--config", str(tmp_path / "b.toml"), *LEAST, "--port", "81", "--resolve", "a.cn=127.0.0.1")
    (tmp_path / "c.toml").write_text("[crawl.network]\nports = 3\n")
    with pytest.raises(UsageError, match="ports"):
        config("--config", str(tmp_path / "c.toml"), *LEAST, "--port", "81")


@pytest.mark.parametrize(
    "contact", ["me", "example.org", "me@", "ftp://example.org", "me@example.org\r\nX: y", "a b@c.cn"]
)
def test_nobody_crawls_without_a_contact(contact: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["crawl", "--seeds", "https://a.cn/", "--contact", contact, "--out", str(out)]) == 2
    assert "e-mail address" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("contact", ["me@example.org", "https://example.org/bot?who=1", "http://例子.中国/"])
def test_an_address_or_a_page_is_a_contact(contact: str) -> None:
    run.check_contact(contact)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "LIBRARIES", ("scrapy_is_not_here",))
    with pytest.raises(UsageError, match=r"pip install 'wenhai\[crawl\]'"):
        run.crawl(CrawlConfig(seeds=("https://a.cn/",), contact="me@example.org"), str(tmp_path / "out"))


def test_a_crawl_does_not_go_into_a_store() -> None:
    with pytest.raises(UsageError, match="local folder"):
        run.crawl(CrawlConfig(seeds=("https://a.cn/",), contact="me@example.org"), "s3://bucket/crawl")


def test_ages_and_dates() -> None:
    assert parse_since("12h") == timedelta(hours=12)
    assert parse_since("2w") == timedelta(days=14)
    assert parse_since("2026-11-01T08:00:00+08:00") == datetime(2026, 11, 1, tzinfo=UTC)
    for text in ("7", "d", "tomorrow", "-3d", ""):
        with pytest.raises(UsageError, match="--since"):
            parse_since(text)


def test_seeds_come_from_words_and_files(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_bytes("\ufeff# 种子\nhttp://A.cn\n\n  https://例子.中国/首页  # 一\r\nhttp://a.cn/\n".encode())
    assert read_seeds([str(path), "http://b.cn/#top"]) == [
        "http://a.cn/",
        "https://xn--fsqu00a.xn--fiqs8s/%E9%A6%96%E9%A1%B5",
        "http://b.cn/",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"http://a.cn/\nexample.org\nftp://b.cn/\n", r"seeds.txt:2: relative(.|\n)*seeds.txt:3: scheme"),
        (b"# nothing\n", "no URL"),
        (b"http://\xff/\n", "neither UTF-8 nor GB18030"),
    ],
)
def test_seeds_that_are_none(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "seeds.txt").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_seeds([str(tmp_path / "seeds.txt")])


def test_a_missing_file_of_seeds() -> None:
    with pytest.raises(UsageError, match="neither a URL"):
        read_seeds(["example.org"])


def test_what_must_not_change_between_runs(tmp_path: Path) -> None:
    begun = config(*LEAST)
    run.identify(tmp_path, begun)
    run.identify(tmp_path, config(*LEAST, "--max-pages", "9", "--delay", "3", "--seeds", "https://b.cn/"))
    with pytest.raises(UsageError, match="follow was domains and is now anywhere"):
        run.identify(tmp_path, config(*LEAST, "--follow", "anywhere"))
    with pytest.raises(UsageError, match=r"budget.max_depth was 30 and is now 3"):
        run.identify(tmp_path, config(*LEAST, "--set", "crawl.budget.max_depth=3"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_seeds_of_any_editor(tmp_path: Path, encoding: str, end: str) -> None:
    path = tmp_path / "seeds.txt"
    text = end.join(["# 新闻网站", "http://a.cn/", "", "http://a.cn/新闻", "http://a.cn/"])
    path.write_bytes(text.encode(encoding))
    assert read_seeds([str(path)]) == ["http://a.cn/", "http://a.cn/%E6%96%B0%E9%97%BB"]
    path.write_bytes((text + end + "坏").encode(encoding))
    with pytest.raises(UsageError, match=r"seeds.txt:6: relative"):
        read_seeds([str(path)])

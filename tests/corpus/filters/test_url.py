"""URL rules: a host with all below it in any spelling, words of paths, lists of one's own and their errors."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from corpus.engine import durable
from corpus.engine.errors import UsageError
from corpus.filters import load, url_rules
from corpus.filters.url_rules import UrlRules, pack_hosts
from tests.corpus.texts import document


@cache
def rules() -> UrlRules:
    return UrlRules(("Bad.example.com", "例子.公司", "1.2.3.4", "xn--bcher-kva.de."), ("bet", "/av/", "博彩", "casino"))


def blocked(*urls: str | None) -> list[bool]:
    return [bool(value) for value in rules().blocked(pa.array(urls, pa.string()))]


@pytest.mark.parametrize(
    "url",
    [
        "http://bad.example.com",
        "https://WWW.BAD.example.com./index.html",
        "//m.bad.example.com:8080?x=1",
        "bad.example.com/path",
        "http://user:secret@bad.example.com/",
        "http://新闻.例子.公司/a",
        "http://xn--fsqu00a.xn--55qx5d/a",
        "http://例子。公司/a",
        "http://1.2.3.4:80/",
        "https://www.bücher.de/x",
        "bad.example.com:8080/path",
        " http:\\\\a@b@bad.example.com\\x",
        "http://b%61d.example.com/",
        "http://ｂａｄ.example.com/",
        "http://" + "a." * 500 + "bad.example.com",
        "http://good.cn/bet365/a.html",
        "http://good.cn/a?site=BET",
        "http://good.cn/av/1.html",
        "http://good.cn/%E5%8D%9A%E5%BD%A9",
        "http://good.cn/online-casino",
    ],
)
def test_named(url: str) -> None:
    assert blocked(url) == [True]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://notbad.example.com/",
        "http://bad.example.com.cn/",
        "http://good.cn/alphabet/",
        "http://casino.good.cn/",  # a host is named by the list of hosts
        "http://good.cn/?u=bad.example.com",
        "http://11.2.3.4/",
        "",
        None,
        "不是地址",
        "http://[::1]/a",
    ],
)
def test_not_named(url: str | None) -> None:
    assert blocked(url) == [False]


def test_a_hostile_host_costs_no_more_than_a_host() -> None:
    """Suffixes of a million labels are 1 TB of text, which no time limit allows; only a host's length is looked at."""
    assert blocked("http://" + "a." * 1_000_000, "http://" + "例" * 100_000 + ".com") == [False, False]
    assert rules().is_blocked_host("a." * 1_000_000 + "bad.example.com")


def test_as_a_rule(tmp_path: Path) -> None:
    hosts, words = tmp_path / "hosts.txt", tmp_path / "words.txt"
    hosts.write_text("# mine\nbad.example.com\n", encoding="utf-8")
    words.write_text("bet\n", encoding="utf-8")
    judge = load(
        "web_zh", [f'filter.url.hosts=["{hosts}"]', f'filter.url.paths=["{words}"]', "filter.url.blocked.max=0"]
    )
    urls = ["http://bad.example.com/1", "http://good.example.com/1", None, "http://good.example.com/bet/1"]
    table = pa.table({"text": [document(seed) for seed in range(4)], "url": pa.array(urls, pa.string())})
    assert [verdict.rule for verdict in judge.apply(table)] == ["url.blocked", None, None, "url.blocked"]
    assert judge.apply([document(1)]).kept.all()
    hosts.write_text("worse.example.com\n", encoding="utf-8")
    assert load("web_zh").config.meaning()["url"] != judge.config.meaning()["url"]


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"filter\.url\.hosts: .*nowhere\.txt: No such file"):
        load("web_zh", [f'filter.url.hosts=["{tmp_path}/nowhere.txt"]'])
    (tmp_path / "hosts.txt").write_bytes(b"\xef\xbb\xbf# mine\r\nbad.example.com\r\nhttp://worse.example.com/\r\n")
    with pytest.raises(UsageError, match=r"'http://worse.example.com/' is no host"):
        load("web_zh", [f'filter.url.hosts=["{tmp_path}/hosts.txt"]'])
    (tmp_path / "long.txt").write_text("a" * 300, encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: 300 characters"):
        load("web_zh", [f'filter.url.hosts=["{tmp_path}/long.txt"]'])


def test_a_shipped_list_has_its_hosts_and_all_below_and_no_site_of_everybody() -> None:
    urls = UrlRules(("mine.example",), (), ("gambling", "porn", "scam"))
    assert [urls.is_blocked_host(host) for host in ("bet.188bet.com", "WWW.xvideos.com.", "a.mine.example")] == [
        True
    ] * 3
    common = "blog.sina.com.cn blogspot.com github.io com.cn cn zhihu.com tieba.baidu.com qq.com lofter.com pixnet.net"
    assert not any(urls.is_blocked_host(host) or urls.is_blocked_host(f"x.{host}") for host in common.split())
    assert not UrlRules((), (), ("porn",)).is_blocked_host("188bet.com")
    assert pickle.loads(pickle.dumps(urls)).digest == urls.digest != UrlRules(("mine.example",)).digest


def test_a_packed_list_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {f"host{i}.example.com" for i in range(1000)}
    (tmp_path / "some.hosts").write_bytes(pack_hosts(hosts))
    monkeypatch.setattr(url_rules, "FOLDER", tmp_path)
    monkeypatch.setitem(url_rules.SHIPPED, "some", durable.sha256_file(tmp_path / "some.hosts"))
    urls = UrlRules((), (), ("some",))
    assert all(map(urls.is_blocked_host, hosts)) and not urls.is_blocked_host("example.com")


def test_web_zh_drops_pages_of_listed_hosts() -> None:
    table = pa.table(
        {"text": [document(1, 30)] * 3, "url": ["https://m.188bet.com/a", "https://news.cn/188bet.com", None]}
    )
    assert load("web_zh").apply(table).table["rule"].to_pylist() == ["url.blocked", None, None]


def test_white_space_in_an_address_hides_no_host() -> None:
    urls = pa.array(["http://188\tbet.com/", "ht\ntp://188bet.com", " http://188bet.com", "http://188 bet.com/"])
    assert UrlRules((), (), ("gambling",)).blocked(urls).tolist() == [True, True, True, False]

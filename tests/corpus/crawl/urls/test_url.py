"""URLs are read as browsers read them; keys are shared by spellings of one page and by nothing else."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from w3lib.url import safe_url_string

from corpus.crawl.config import CrawlConfig
from corpus.crawl.urls import url as url_module
from corpus.crawl.urls.url import BadUrl, Scope, canonical, domain_of, host_of, key_of, normalize, to_link

BASE = "http://a.cn/p/q?r=1"
READ = [  # link, what it means on BASE; after url.spec.whatwg.org
    ("", "http://a.cn/p/q?r=1"),
    ("#x", "http://a.cn/p/q?r=1"),
    ("?", "http://a.cn/p/q"),
    ("?s", "http://a.cn/p/q?s"),
    ("b", "http://a.cn/p/b"),
    ("./b/../c", "http://a.cn/p/c"),
    ("../../../b", "http://a.cn/b"),
    ("..", "http://a.cn/"),
    (".", "http://a.cn/p/"),
    ("/b/%2E%2e/c/%2e", "http://a.cn/c/"),
    ("/b/..%2e", "http://a.cn/b/..%2e"),
    ("/b/%2e./%2e", "http://a.cn/"),
    ("b/.../c", "http://a.cn/p/b/.../c"),
    ("/b//c", "http://a.cn/b//c"),
    ("\\b\\c?d\\e", "http://a.cn/b/c?d%5Ce"),
    ("//b.cn", "http://b.cn/"),
    ("\\\\b.cn\\c", "http://b.cn/c"),
    ("https:b", "https://b/"),
    ("http:b", "http://a.cn/p/b"),
    ("http:/b", "http://a.cn/b"),
    ("https:////b.cn//c", "https://b.cn//c"),
    (" \t\n/b \x00", "http://a.cn/b"),
    ("ht\ntp://b\t.cn/c\r\nd", "http://b.cn/cd"),
    ("HTTP://B.CN:80/", "http://b.cn/"),
    ("http://b.cn:443", "http://b.cn:443/"),
    ("https://b.cn:0443", "https://b.cn/"),
    ("http://b.cn:", "http://b.cn/"),
    ("http://b.cn.", "http://b.cn/"),
    ("http://b_c.b.cn/", "http://b_c.b.cn/"),
    ("http://b.cn/a b\"<>`{}|^[]'", "http://b.cn/a%20b%22%3C%3E%60%7B%7D%7C%5E%5B%5D'"),
    ("?a b\"<>'[]|^`{}", "http://a.cn/p/q?a%20b%22%3C%3E%27%5B%5D%7C%5E%60%7B%7D"),
    ("?%c4%E3%ba%C3&x=%zz%", "http://a.cn/p/q?%c4%E3%ba%C3&x=%zz%"),
    ("/%c4%E3/你", "http://a.cn/%c4%E3/%E4%BD%A0"),
    ("http://例子。中国/", "http://xn--fsqu00a.xn--fiqs8s/"),
    ("http://ＷＷＷ．例子｡CN:８０", None),
    ("http://ＷＷＷ．例子｡CN", "http://www.xn--fsqu00a.cn/"),
    ("http://%E4%BE%8B%E5%AD%90.cn", "http://xn--fsqu00a.cn/"),
    ("http://XN--FSQU00A.cn", "http://xn--fsqu00a.cn/"),
    ("http://faß.de", "http://xn--fa-hia.de/"),
    ("http://☃.net", "http://xn--n3h.net/"),
    ("/\ud800", "http://a.cn/%EF%BF%BD"),
    ("javascript:void(0)", None),
    ("mailto:a@b.cn", None),
    ("data:text/html,x", None),
    ("ftp://b.cn/", None),
    ("http://u@b.cn", None),
    ("http://u:p@b.cn", None),
    ("http://@b.cn", None),
    ("http://b.cn:x", None),
    ("http://b.cn:65536", None),
    ("http://b.cn:-1", None),
    ("http://", None),
    ("https:///", None),
    ("http://?", None),
    ("http://.", None),
    ("http://b..cn", None),
    ("http://.b.cn", None),
    ("http://b c.cn", None),
    ("http://b%00.cn", None),
    ("http://b%2Fc.cn", None),
    ("http://b<.cn", None),
    ("http://" + "b" * 64 + ".cn", None),
    ("http://" + "b." * 130 + "cn", None),
    ("http://\u0301b.cn", None),
    ("http://a\u200db.cn", None),
    ("http://a\x1f\u200db.cn", None),
    ("http://אa.cn", None),
]
ADDRESSES = [
    ("127.0.0.1", "127.0.0.1"),
    ("127.1", "127.0.0.1"),
    ("2130706433", "127.0.0.1"),
    ("0x7f000001", "127.0.0.1"),
    ("0X7F.0.0.01", "127.0.0.1"),
    ("017700000001", "127.0.0.1"),
    ("0177.0.0.1.", "127.0.0.1"),
    ("１２７.0.0.①", "127.0.0.1"),
    ("%31%32%37.1", "127.0.0.1"),
    ("169.254.43518", "169.254.169.254"),
    ("0", "0.0.0.0"),
    ("0x", "0.0.0.0"),
    ("1.2.3", "1.2.0.3"),
    ("4294967295", "255.255.255.255"),
    ("[::1]", "[::1]"),
    ("[0:0:0:0:0:0:0:0]", "[::]"),
    ("[2001:DB8:0:0:1:0:0:1]", "[2001:db8::1:0:0:1]"),
    ("[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    ("[64:ff9b::10.0.0.1]", "[64:ff9b::a00:1]"),
    *(
        (host, None)
        for host in ("4294967296", "256.1", "1.2.3.4.5", "1.2.3.256", "1.2.256.4", "09", "1.0x-1.1", "1.+1.1")
    ),
    *(
        (host, None)
        for host in ("1..2", "b.1", "b.0x", "1_0.1", "0xg.1", "[::1", "[1.2.3.4]", "[fe80::1%eth0]", "[::1]x")
    ),
]


@pytest.mark.parametrize(("link", "target"), READ)
def test_links_are_read_as_browsers_do(link: str, target: str | None) -> None:
    if target is None:
        with pytest.raises(BadUrl):
            normalize(link, BASE)
    else:
        assert normalize(link, BASE) == target


@pytest.mark.parametrize(("host", "target"), ADDRESSES)
def test_numbers_are_the_addresses_they_stand_for(host: str, target: str | None) -> None:
    if target is None:
        with pytest.raises(BadUrl):
            normalize(f"http://{host}/")
    else:
        assert normalize(f"http://{host}:81/") == f"http://{target}:81/"


@given(
    st.lists(
        st.sampled_from(("0x7f", "0", "1", "255", "256", "0377", "65536", "4294967295", "0xffffff")),
        min_size=1,
        max_size=4,
    )
)
def test_an_address_is_what_the_c_library_makes_of_it(parts: list[str]) -> None:
    host = ".".join(parts)
    try:
        expected = str(ipaddress.IPv4Address(socket.inet_aton(host)))
    except OSError:
        with pytest.raises(BadUrl):
            normalize(f"http://{host}/")
    else:
        assert host_of(normalize(f"http://{host}/")) == expected


@pytest.mark.parametrize(
    ("encoding", "escaped"),
    [
        ("utf-8", "%E6%96%87=%E6%B5%B7"),
        ("gb18030", "%CE%C4=%BA%A3"),
        ("gbk", "%CE%C4=%BA%A3"),
        ("big5hkscs", "%A4%E5=%AE%FC"),
        ("utf-16-le", "%E6%96%87=%E6%B5%B7"),  # as the standard says
        ("iso8859-1", "%26%2325991%3B=%26%2328023%3B"),
    ],
)
def test_queries_are_in_the_encoding_of_the_page(encoding: str, escaped: str) -> None:
    assert normalize("/文?文=海&%CE%C4=%ba", BASE, encoding) == f"http://a.cn/%E6%96%87?{escaped}&%CE%C4=%ba"


@given(st.text("文海丂乗言好許功蓋", min_size=1), st.sampled_from(("gbk", "big5hkscs")))
def test_a_server_reads_the_characters_that_were_written(text: str, encoding: str) -> None:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return
    query = normalize(f"?q={text}", BASE, encoding).partition("?")[2]
    assert parse_qs(query, encoding=encoding)["q"] == [text]


ATOMS = (
    *(
        "http:",
        "https:",
        "//",
        "/",
        "\\",
        "?",
        "#",
        "a",
        "B.cn",
        ".",
        "..",
        "%2e",
        "@",
        ":",
        ":80",
        ":8080",
        "例",
        "。",
        "０",
        "0x7f",
    ),
    *(
        "1",
        "127.1",
        "[::1]",
        "%41",
        "%e4",
        "%zz",
        "%",
        "é",
        "\u200d",
        "\u00ad",
        "xn--fiqs8s",
        "☃",
        "'",
        '"',
        "<",
        "|",
        "[",
        "]",
        "^",
    ),
    *(
        "{",
        "~",
        "&",
        "=",
        "+",
        ";",
        ";jsessionid=1",
        "(S(x))/",
        "(",
        " ",
        "\t",
        "\x00",
        "\u3000",
        "😀",
        "utm_a=1",
        "&sid=",
        "א",
        "\ud800",
    ),
)
LINKS = st.one_of(st.lists(st.sampled_from(ATOMS), max_size=10).map("".join), st.text(max_size=30))


@given(LINKS, st.sampled_from(("utf-8", "gb18030", "big5hkscs", "cp1252")))
def test_what_is_normal_stays_as_it_is(link: str, encoding: str) -> None:
    try:
        found = normalize(link, BASE, encoding)
    except BadUrl:
        return
    assert found.isascii() and found.startswith(("http://", "https://"))
    assert normalize(found) == normalize(found, "https://b.cn/", "gbk") == found
    assert safe_url_string(found) == found  # Scrapy runs it over every URL
    key = canonical(found)
    assert canonical(key) == key
    assert host_of(found) == host_of(key) != ""


def test_long_urls_are_refused_before_they_cost_anything() -> None:
    assert len(normalize("a" * 2_033, "http://a.cn/")) == 2_045
    for link in ("a" * 2_045, "文" * 1_000, "data:" + "x" * 10_000_000):
        with pytest.raises(BadUrl, match=r"length|scheme"):
            normalize(link, "http://a.cn/")


def test_a_bare_percent_sign_makes_no_escape() -> None:
    assert canonical("http://a.cn/%%41a") == canonical("http://a.cn/%25Aa") == "http://a.cn/%25Aa"


SAME = [
    ("http://a.cn/b?x=1&y=2", "http://a.cn/b?y=2&x=1"),
    ("http://a.cn/b", "http://a.cn/b?"),
    ("http://a.cn/b", "http://a.cn/b?&"),
    ("http://a.cn/%e4%BD%a0%7Ea", "http://a.cn/%E4%bd%A0~%61"),
    ("http://a.cn/b", "http://a.cn/b;jsessionid=0A1B.node1"),
    ("http://a.cn/b?c=1", "http://a.cn/b;JSESSIONID=0A1B?c=1"),
    ("http://a.cn/b.aspx", "http://a.cn/(S(ab12cd34ef56gh78))/b.aspx"),
    ("http://a.cn/b?c=1", "http://a.cn/b?PHPSESSID=d2f7a8&c=1&utm_source=weibo&spm=a2.b"),
    ("http://a.cn/b", "http://a.cn/b?sid=0123456789abcdef0123456789abcdef"),
    ("http://a.cn/b", "http://a.cn/b?from=timeline&isappinstalled=0"),
    ("http://a.cn/b", "http://a.cn/b?_=1700000000000"),
]
DIFFERENT = [
    ("http://a.cn/b?x=1", "http://a.cn/b?x=2"),
    ("http://a.cn/b", "https://a.cn/b"),
    ("http://a.cn/b", "http://www.a.cn/b"),
    ("http://a.cn/b", "http://a.cn/B"),
    ("http://a.cn/b", "http://a.cn/b/"),
    ("http://a.cn/b%2Fc", "http://a.cn/b/c"),
    ("http://a.cn/b?x=1&x=2", "http://a.cn/b?x=1"),
    ("http://a.cn/b?sid=12", "http://a.cn/b?sid=13"),  # a section
    ("http://a.cn/b?from=2023", "http://a.cn/b?from=2024"),
    ("http://a.cn/b?_=2", "http://a.cn/b?_=3"),
    ("http://a.cn/b?q=%c4%e3", "http://a.cn/b?q=%e4%bd%a0"),  # the same word, but not to the server
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_page_share_a_key(one: str, other: str) -> None:
    assert key_of(normalize(one)) == key_of(normalize(other))
    assert len(key_of(normalize(one))) == 16


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_pages_have_other_keys(one: str, other: str) -> None:
    assert key_of(normalize(one)) != key_of(normalize(other))


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("news.sina.com.cn", "sina.com.cn"),
        ("a.b.gov.cn:8080", "b.gov.cn"),
        ("www.bj.cn", "www.bj.cn"),  # bj.cn is a public suffix
        ("x.blogspot.com", "x.blogspot.com"),
        ("github.io", "github.io"),
        ("a.xn--fsqu00a.xn--fiqs8s", "xn--fsqu00a.xn--fiqs8s"),
        ("a.xn--55qx5d.cn", "a.xn--55qx5d.cn"),  # 公司.cn is a public suffix
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]:8080", "[::1]"),
        ("[::1]", "[::1]"),
        ("localhost", "localhost"),
        ("site7.farm.test:81", "farm.test"),
        ("cn", "cn"),
    ],
)
def test_registered_domains(host: str, domain: str) -> None:
    assert domain_of(host) == domain


def test_the_suffix_list_is_the_bundled_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the network, or a cache")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setenv("TLDEXTRACT_CACHE", str(tmp_path / "cache"))
    url_module._suffixes.cache_clear()
    domain_of.cache_clear()
    assert domain_of("a.b.com.cn") == "b.com.cn"
    assert not any(tmp_path.iterdir())


def test_scope() -> None:
    seeds = ["http://www.a.com.cn/", "http://10.0.0.1:8000/x"]
    cases = {
        "www.a.com.cn": ("hosts", "domains", "anywhere"),
        "news.a.com.cn": ("domains", "anywhere"),
        "b.com.cn": ("anywhere",),
        "10.0.0.1:8000": ("hosts", "domains", "anywhere"),
    }
    for follow in ("hosts", "domains", "anywhere"):
        scope = Scope(follow, seeds)  # type: ignore[arg-type]
        for host, allowed in cases.items():
            assert scope.allows(host, domain_of(host)) == (follow in allowed)


def test_links_for_the_frontier() -> None:
    config = CrawlConfig.model_validate({"seeds": ["http://a.cn/"], "contact": "a@a.cn", "budget": {"max_depth": 3}})
    scope = Scope("domains", ["http://a.cn/"])

    def link(url: str, depth: int = 1, seed: bool = False) -> Any:
        return to_link(url, BASE, "gbk", depth=depth, config=config, scope=scope, seed=seed)

    found = link("http://b.a.cn:81/c?文=1")
    assert (found.url, found.host, found.domain) == ("http://b.a.cn:81/c?%CE%C4=1", "b.a.cn:81", "a.cn")
    assert (found.depth, found.priority, found.refused) == (1, 0.0, None)
    assert len(found.pattern) == len(found.query_path) == 8 and len(found.key) == 16
    assert link("http://b.cn/").refused == "scope"
    assert link("/x", depth=4).refused == "max_depth"
    assert link("/x", depth=3).refused is None
    assert link("/x/x/x/").refused == "trap_url"
    assert link("http://b.cn/x/x/x/", depth=9, seed=True).refused is None

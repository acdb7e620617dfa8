"""Traps are seen, and the URLs of real sites are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.urls.traps import (
    MAX_BYTES,
    MAX_PARAMETERS,
    MAX_SEGMENTS,
    pattern_of,
    pattern_text,
    query_path_of,
    static_trap,
)
from corpus.crawl.urls.url import normalize

REAL = """
http://a.cn/
http://www.people.com.cn/n1/2024/0115/c1001-40159999.html
http://a.cn/2024-01/15/content_123456.htm
http://a.cn/a/20240115/A01ABC.html
http://a.cn/?id=123&page=2
http://a.cn/2011/11/11/11/content_11.htm
http://a.cn/01/01/01/01.html
http://a.cn/2024/01/2024/01/x.html
http://paper.people.com.cn/rmrb/html/2024-01/15/nw.D110000renmrb_20240115_1-01.htm
http://a.cn/news/news/123.html
http://a.cn/zh/zh-cn/zh/index.html
http://a.cn/forum.php?mod=viewthread&tid=1234567&extra=page%3D1&page=3
http://a.cn/index.php?m=content&c=index&a=show&catid=10&id=1024
http://a.cn/?p=1234567
http://a.cn/s?wd=%B1%B1%BE%A9&pn=500000
http://a.cn/search?q=%22a%22+b
http://a.cn/search?q=%3C%3D
http://a.cn/s?d=2024-02-30&year=2024&month=13
http://a.cn/wiki/%E4%B8%AD%E5%8D%8E%E4%BA%BA%E6%B0%91%E5%85%B1%E5%92%8C%E5%9B%BD
http://a.cn/go?url=http%3A%2F%2Fb.cn%2F%3Fx%3D%25E4
""".split()
TRAPS = [
    ("/x" * (MAX_SEGMENTS + 1), "too deep a path"),
    ("/" + "x" * MAX_BYTES, "too long"),
    ("/a/a/a/", "a segment that repeats"),
    ("/a/b/a/c/a/d", "a segment that repeats"),
    ("/1/1/1/1/1/", "a segment that repeats"),
    ("/a/b/a/b", "segments that alternate"),
    ("/x/a/1/c/a/1/c/", "segments that alternate"),
    ("/a/b/c/d/a/b/c/d", "segments that alternate"),
    ("/?" + "&".join(f"a{i}=1" for i in range(MAX_PARAMETERS + 1)), "too many parameters"),
    ("/?lang=zh&x=1&lang=zh&lang=zh", "a parameter that repeats"),
    ("/?q=" + "x" * 600, "too long a value"),
    ("/?page=100001", "an absurd page number"),
    ("/?x=1&PAGE=-1", "an absurd page number"),
    ("/?year=2101&month=1", "an absurd year"),
    ("/?year=1899", "an absurd year"),
    ("/?u=%252525", "escaped again and again"),
    ("/{{ item.url }}", "a script's variable"),
    ("/?id=${id}", "a script's variable"),
    ("/'+url+'", "a script's variable"),
    ("/<%=id%>", "a script's variable"),
    ("/[object Object]", "a script's variable"),
]


@pytest.mark.parametrize("url", REAL)
def test_urls_of_real_sites_are_no_traps(url: str) -> None:
    assert normalize(url) == url
    assert static_trap(url) is None


@pytest.mark.parametrize(("path", "reason"), TRAPS)
def test_traps_are_seen(path: str, reason: str) -> None:
    assert static_trap(normalize(f"http://a.cn{path}")) == reason


ALIKE = [
    ("http://a.cn/2024-01/15/content_123456.htm", "http://a.cn/2019-12/3/content_7.htm"),
    ("http://a.cn/calendar/2024/01/", "http://a.cn/calendar/2199/12/"),
    ("http://a.cn/cal?year=2024&month=1", "http://a.cn/cal?month=12&year=2050"),
    ("http://a.cn/cal?date=2024-01-15", "http://a.cn/cal?date=x"),
    ("https://a.cn/20240115.html", "http://a.cn/1.html"),
    ("http://a.cn/x/d41d8cd98f00b204", "http://a.cn/x/0cc175b9c0f1b6a831"),
    ("http://a.cn/x/550e8400-e29b-41d4-a716-446655440000", "http://a.cn/x/6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    ("http://a.cn/dy/INJ4V2Q30514R9P4.html", "http://a.cn/dy/AB12CD34EF56.html"),
]
UNLIKE = [
    ("http://a.cn/news/1", "http://a.cn/photo/1"),
    ("http://a.cn/1?x=1", "http://a.cn/1?y=1"),
    ("http://a.cn/1", "http://b.cn/1"),
    ("http://a.cn/a/1", "http://a.cn/a/b/1"),
    ("http://a.cn/%E4%B8%AD", "http://a.cn/%E4%B9%AD"),
    ("http://a1.cn/x", "http://a2.cn/x"),
    ("http://a.cn/newspaper/1", "http://a.cn/magazines/1"),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_numbers_dates_ids_and_values_make_no_pattern(one: str, other: str) -> None:
    assert pattern_of(one) == pattern_of(other) and len(pattern_of(one)) == 8


@pytest.mark.parametrize(("one", "other"), UNLIKE)
def test_words_make_patterns(one: str, other: str) -> None:
    assert pattern_of(one) != pattern_of(other)


def test_query_paths() -> None:
    assert query_path_of("http://a.cn/list") == bytes(8)
    assert query_path_of("http://a.cn/list?a=1") == query_path_of("http://a.cn/list?b=2&c=3") != bytes(8)
    assert query_path_of("http://a.cn/shop/1?a=1") == query_path_of("http://a.cn/shop/2?b=1")
    assert query_path_of("http://a.cn/list?a=1") != query_path_of("http://a.cn/tags?a=1")


@given(
    st.integers(0, 10**12), st.integers(0, 10**12), st.sampled_from(("/%d/", "/a_%d.htm", "/b%d?page=%d", "/?p%d=%d"))
)
def test_any_number_is_like_any_other(one: int, other: int, form: str) -> None:
    urls = [f"http://a.cn{form.replace('%d', str(number))}" for number in (one, other)]
    assert pattern_text(urls[0]) == pattern_text(urls[1])


@given(st.text("/ab1%2?&=-", max_size=60))
def test_whatever_the_url_there_is_an_answer(path: str) -> None:
    url = normalize("http://a.cn/" + path)
    static_trap(url)
    assert len(pattern_of(url)) == len(query_path_of(url)) == 8

"""Addresses: user info, personal data and secrets of a query go, and every other byte stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources.urls import masked_url
from tests.examples import examples
from tests.linear import assert_linear

URLS = {
    "https://user:pw@a.cn/论语?x=%20#a": "https://a.cn/论语?x=%20#a",
    "https://a.cn/@b?u=1;v": "https://a.cn/@b?u=1;v",
    "//u@a.cn/": "//a.cn/",
    "https://a.cn/?email=wang%40example.com&tid=13800138000": "https://a.cn/?email=<MASKED>&tid=13800138000",
    "https://a.cn/t;jsessionid=AB12?q=%2B86+138+0013+8000": "https://a.cn/t;jsessionid=<MASKED>?q=<MASKED>",
    "https://a.cn/?sid=12&Access_Token=a.b&tokens=5": "https://a.cn/?sid=12&Access_Token=<MASKED>&tokens=5",
    "https://a.cn/?sid=0123456789abcdef&d=2020-01-02": "https://a.cn/?sid=<MASKED>&d=2020-01-02",
    "https://a.cn/?idcard=11010519491231002X&qq=12345678": "https://a.cn/?idcard=<MASKED>&qq=<MASKED>",
}


@pytest.mark.parametrize("url", URLS)
def test_urls_lose_persons_and_secrets_and_nothing_else(url: str) -> None:
    assert masked_url(url) == URLS[url] == masked_url(URLS[url])


@given(st.lists(st.sampled_from([*"@:/?&=;#% ", "//", "token=", "phone=", "13800138000", "a@b.cn", "x"])).map("".join))
@examples(300)
def test_a_masked_url_is_masked_once(url: str) -> None:
    assert masked_url(masked_url(url)) == masked_url(url)


def test_the_time_of_a_url_is_linear() -> None:
    for piece in ("1", "1 ", "a@", "?token", "&a=1.", "//", "%4"):
        assert_linear(masked_url, lambda copies, piece=piece: "https://a.cn/?a=" + piece * copies, 4000)

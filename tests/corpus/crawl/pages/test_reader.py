"""The reader's tables and loops against slow readings of the same page."""

from __future__ import annotations

import html
import random

import lxml.html
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.pages import reader
from corpus.crawl.pages.page import read_page, warm_up
from corpus.extract.tables import references

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tags_of(page: str, num_tags: int) -> tuple[list[int], list[dict[str, str]]]:
    """What `read_tags` notes of a page: for each tag its place in TAGS, and the values of its attributes."""
    data = np.frombuffer(page.encode(), np.uint8)
    out, rows = np.empty(len(data), "<u4"), np.empty((2 * num_tags, 3), np.int32)
    ends = np.empty((2 * num_tags, len(reader.ATTRIBUTES), 2), np.int32)
    left = np.array([num_tags, num_tags])
    k, *_ = reader.read_tags(data, references(), reader.CHARACTERS, True, left, out, rows, ends)
    values = [
        {name: page[a:b] for name, (a, b) in zip(reader.ATTRIBUTES, row, strict=True) if a >= 0}
        for row in ends[:k].tolist()
    ]
    return rows[:k, reader.TAG].tolist(), values


def near(names: list[str]) -> list[str]:
    """The names, all short ones, and those with one letter lost, changed or added; each in mixed case."""
    words = {*names, *LETTERS, *(one + two for one in LETTERS for two in LETTERS)}
    for name in names:
        for at in range(len(name) + 1):
            words |= {name[:at] + name[at + 1 :], name[:at] + "x" + name[at + 1 :], name[:at] + "h" + name[at:]}
    mixed = random.Random(0)
    return ["".join(mixed.choice((c, c.upper())) for c in word) for word in sorted(words) if word[:1].isalpha()]


def test_every_name_of_a_tag_is_known_and_no_other() -> None:
    names = [name for name in near([*reader.TAGS]) if name.lower() not in ("script", "style", "title", "iframe")]
    noted = reader.TAGS[: reader.NUM_NOTED_TAGS]
    expected = [noted.index(name.lower()) for name in names if name.lower() in noted]
    assert tags_of("".join(f"<{name}>" for name in names), len(names))[0] == expected


def test_every_name_of_an_attribute_is_known_and_no_other() -> None:
    names = near([*reader.ATTRIBUTES])
    page = "".join(f"<a {name}=v>" for name in names)
    known = set(reader.ATTRIBUTES)
    assert tags_of(page, len(names))[1] == [{name.lower(): "v"} if name.lower() in known else {} for name in names]


VALUES = st.text("ab1 文好/?=&.<>\n", max_size=10)
NAMES = st.sampled_from(["href", "HREF", "src", "rel", "title", "name", "data-href", "hre", "hreflang", "content"])
TAG_NAMES = st.sampled_from(["a", "A", "area", "frame", "abbr", "p", "div", "b", "span", "em", "h1", "ul", "li"])
ATTRIBUTES = st.lists(st.tuples(NAMES, VALUES), max_size=4)


@given(st.lists(st.tuples(TAG_NAMES, ATTRIBUTES, st.sampled_from(['"', "'"]), VALUES), max_size=8))
def test_links_as_lxml_finds_them(tags: list[tuple[str, list[tuple[str, str]], str, str]]) -> None:
    page = "<html><body><p>"
    for name, attributes, quote, text in tags:
        written = " ".join(f"{key}={quote}{html.escape(value)}{quote}" for key, value in attributes)
        page += f"<{name} {written}>{html.escape(text)}</{name}>"
    tree = lxml.html.document_fromstring(page)
    expected = [(element.tag, element.get("href")) for element in tree.iter("a", "area") if "href" in element.attrib]
    found = read_page(page.encode(), "text/html; charset=utf-8", "http://a.test/")
    assert [(link.kind, link.url) for link in found.links if link.kind != "frame"] == expected


def test_nothing_is_compiled_after_the_warm_up() -> None:
    warm_up()
    before = len(reader.read_tags.signatures)
    for body, kind in (
        (b"", None),
        ("文海<a href=x>".encode("gbk"), "text/html"),
        ("文".encode("utf-16"), "text/plain"),
    ):
        read_page(body, kind, "http://a.test/")
    assert len(reader.read_tags.signatures) == before == 1

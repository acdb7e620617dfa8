"""The reader's tables: every name in them, no other, and nothing that is compiled late."""

from __future__ import annotations

import random

import numpy as np

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

"""Every way in which bytes are not the record that the index promised."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.commoncrawl.check import check_member
from corpus.commoncrawl.http import Bad
from tests.corpus.commoncrawl.archive import Archive

LIMIT = 1 << 20


def check(archive: Archive, member: bytes, number: int = 0, digest: str | None = None) -> str:
    """The kind of error, or nothing."""
    row = archive.rows[number]
    try:
        check_member(member, row["url"], digest or row["content_digest"], LIMIT)
    except Bad as bad:
        return bad.kind
    return ""


def rewritten(member: bytes, old: bytes, new: bytes) -> bytes:
    record = gzip.decompress(member)
    assert old in record
    return gzip.compress(record.replace(old, new, 1))


def test_all_captures_of_the_archive_are_sound(archive: Archive) -> None:
    assert all(not check(archive, archive.member(row), number) for number, row in enumerate(archive.rows))


def test_what_is_wrong_is_named(archive: Archive) -> None:
    row, other = archive.rows[:2]
    member = archive.member(row)
    record = gzip.decompress(member)
    assert check(archive, archive.member(other)) == "wrong_record"
    assert check(archive, member + archive.member(other)) == "wrong_record"
    assert check(archive, b"plain " + member) == "not_gzip"
    assert check(archive, member[:-9]) == "truncated"
    assert check(archive, member[:-6] + b"\0" + member[-5:]) == "not_gzip"  # the checksum
    assert check(archive, gzip.compress(b"x" * (LIMIT + 1))) == "too_long"
    assert check(archive, gzip.compress(b"no record")) == "wrong_record"
    assert check(archive, rewritten(member, b"WARC-Type: response", b"WARC-Type: revisit ")) == "wrong_record"
    assert check(archive, gzip.compress(record[:-500])) == "wrong_record"  # Content-Length says more
    assert check(archive, rewritten(member, b"<p>", b"<b>")) == "digest"
    assert check(archive, member, digest="A" * 32) == "digest"


def test_a_record_that_says_it_was_cut_short_has_no_digest_to_check(archive: Archive) -> None:
    cut = rewritten(archive.member(archive.rows[0]), b"WARC-Type:", b"WARC-Truncated: length\r\nWARC-Type:")
    assert check(archive, cut, digest="A" * 32) == ""
    row = archive.rows[0]
    check_member(archive.member(row), row["url"], None, LIMIT)
    check_member(archive.member(row), row["url"], "sha1:" + row["content_digest"].lower(), LIMIT)


@given(data=st.data())
def test_no_changed_byte_passes(archive: Archive, data: st.DataObject) -> None:
    """Deflate's checksum, or the URL or digest: a header of gzip itself (its time, its system) may differ."""
    member = archive.member(archive.rows[3])
    place = data.draw(st.integers(10, len(member) - 1))
    changed = bytes([member[place] ^ data.draw(st.integers(1, 255))])
    assert check(archive, member[:place] + changed + member[place + 1 :], 3) != ""


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for member in (data, gzip.compress(data), gzip.compress(b"WARC/1.0\r\n" + data + b"\r\n\r\n" + data)):
        with pytest.raises(Bad):
            check_member(member, "https://example.org/", None, 1000)

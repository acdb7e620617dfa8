"""WARC: a damaged member costs its own record, a cut is never silent, and bodies are decoded within bounds."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources import BadRecord, Record, SourcesConfig, read
from tests.corpus.sources.files import members, page, read_all, warc_record

COUNT = 9


def starts(parts: list[bytes]) -> list[int]:
    return [0, *accumulate(len(part) for part in parts)]


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


def indexes(records: list[Record]) -> list[int]:
    return [int(str(record.url).rsplit("/", 1)[-1]) for record in records]


def test_pages_come_out_with_url_offset_and_charset(tmp_path: Path) -> None:
    parts = members(COUNT)
    good, bad = read_all(tmp_path / "a.warc.gz", b"".join(parts))
    assert not bad
    assert indexes(good) == list(range(COUNT))
    assert [record.offset for record in good] == starts(parts)[:-1]
    assert good[3].raw == page(3) and good[3].charset == "utf-8" and good[3].kind == "html"
    assert good[3].fields == {"warc_date": "2020-01-02T03:04:05Z"}


@pytest.mark.parametrize("hit", [0, 4, COUNT - 1])
@pytest.mark.parametrize("place", [0, 60, -7])
def test_a_corrupt_member_costs_its_own_record(tmp_path: Path, hit: int, place: int) -> None:
    parts = members(COUNT)
    first, following = starts(parts)[hit : hit + 2]
    data = flipped(b"".join(parts), (first if place >= 0 else following) + place)
    good, bad = read_all(tmp_path / "a.warc.gz", data)
    assert indexes(good) == [index for index in range(COUNT) if index != hit]
    assert [(error.kind, error.offset) for error in bad] == [("corrupt", first)]


def test_a_member_cut_off_in_the_middle_of_the_file(tmp_path: Path) -> None:
    parts = members(3)
    good, bad = read_all(tmp_path / "a.warc.gz", parts[0] + parts[1][:-30] + parts[2])
    assert indexes(good) == [0, 2]
    assert [error.kind for error in bad] == ["corrupt"]


def test_garbage_padding_and_members_of_many_records(tmp_path: Path) -> None:
    parts = members(4)
    good, bad = read_all(
        tmp_path / "a.warc.gz", b"".join(parts[:2]) + b"GARBAGE" * 9 + b"".join(parts[2:]) + bytes(999)
    )
    assert indexes(good) == [0, 1, 2, 3] and [error.length for error in bad] == [63]
    whole = gzip.compress(b"".join(warc_record(index) for index in range(5)))
    assert indexes(read_all(tmp_path / "b.warc.gz", whole)[0]) == [0, 1, 2, 3, 4]


def test_a_member_that_is_no_warc_record(tmp_path: Path) -> None:
    parts = members(3)
    parts[1] = gzip.compress("不是记录".encode() * 50)
    good, bad = read_all(tmp_path / "a.warc.gz", b"".join(parts))
    assert indexes(good) == [0, 2] and [error.kind for error in bad] == ["warc"]


def test_plain_files_resynchronise_at_the_next_record(tmp_path: Path) -> None:
    parts = [warc_record(index) for index in range(COUNT)]
    data = b"".join(parts)
    first = starts(parts)[4]
    assert indexes(read_all(tmp_path / "a.warc", data)[0]) == list(range(COUNT))
    good, bad = read_all(tmp_path / "b.warc", flipped(data, first + 2))
    assert indexes(good) == [0, 1, 2, 3, 5, 6, 7, 8] and [(e.kind, e.offset) for e in bad] == [("warc", first)]
    good, bad = read_all(tmp_path / "c.warc", data[:-50])
    assert indexes(good) == list(range(COUNT - 1)) and [error.kind for error in bad] == ["truncated"]
    place = data.index(b"Content-Length: ", first) + 16
    good, bad = read_all(tmp_path / "d.warc", data[:place] + b"9" * 15 + data[place:])
    assert indexes(good) == [0, 1, 2, 3, 5, 6, 7, 8] and [error.kind for error in bad] == ["warc"]


def test_what_is_no_page_is_counted_or_no_document(tmp_path: Path) -> None:
    records = [
        warc_record(0, status="404 Not Found"),
        warc_record(1, mime="image/png"),
        warc_record(2, mime="text/plain; charset=GBK", body="纯文本".encode("gbk")),
        warc_record(3, kind="request"),
        warc_record(4, kind="metadata", mime="text/plain"),
        warc_record(5, b""),
        warc_record(6, kind="conversion", mime="text/plain", body="抽取好的文字".encode()),
        warc_record(7, kind="resource", mime="text/html"),
        warc_record(8, kind="respons\x1a"),
        warc_record(9, kind="continuation"),
        warc_record(10).replace(b"WARC-Type: response\r\n", b""),
        warc_record(11).replace(b"WARC-Type", b"warc-type"),  # fastwarc knows it in this spelling only
        warc_record(12, kind="warcinfo"),
        warc_record(13, kind="revisit"),
    ]
    good, bad = read_all(tmp_path / "a.warc.gz", b"".join(map(gzip.compress, records)))
    assert [(record.kind, index) for record, index in zip(good, indexes(good), strict=True)] == [
        ("text", 2),
        ("text", 6),
        ("html", 7),
    ]
    assert good[0].charset == "gbk" and good[1].charset == "utf-8"
    assert [error.kind for error in bad] == ["http_status", "content_type", "empty", "warc", "warc", "warc", "warc"]
    plain_good, plain_bad = read_all(tmp_path / "b.warc", b"".join(records))
    assert indexes(plain_good) == indexes(good) and [error.kind for error in plain_bad] == [error.kind for error in bad]


DEFLATE = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("http", "body", "raw"),
    [
        ("Content-Encoding: gzip\r\n", gzip.compress(page(1), mtime=0), page(1)),
        ("Content-Encoding: deflate\r\n", zlib.compress(page(1)), page(1)),
        ("Content-Encoding: deflate\r\n", DEFLATE.compress(page(1)) + DEFLATE.flush(), page(1)),
        ("Content-Encoding: gzip\r\n", page(1), page(1)),  # decoded by the crawler, header left as it was
        ("Content-Encoding: br\r\n", page(1), page(1)),
        (
            "Content-Encoding: br\r\n",
            bytes.fromhex("0b0d0000c42907accdf3c0b234b4bec73ec164f183a71a03"),
            "学而时".encode() * 3,
        ),
        ("Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        ("Transfer-Encoding: chunked\r\n", page(1), page(1)),
        ("Content-Encoding: no-such\r\n", page(1), page(1)),
        ("", b"<p>" + b"x" * 100_000, None),
    ],
)
def test_bodies_are_decoded_within_the_cap(tmp_path: Path, http: str, body: bytes, raw: bytes | None) -> None:
    data = b"".join(gzip.compress(part) for part in [warc_record(0, body, http=http), warc_record(1)])
    good, bad = read_all(tmp_path / "a.warc.gz", data, max_page_bytes=90_000)
    assert [record.raw for record in good] == ([raw] if raw is not None else []) + [page(1)]
    assert [error.kind for error in bad] == ([] if raw is not None else ["too_long"])


def frames(count: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> list[bytes]:
    packer = zstandard.ZstdCompressor(dict_data=dictionary, write_checksum=True)
    return [packer.compress(warc_record(index)) for index in range(count)]


def test_zstd_frames_are_read_and_damaged_alone(tmp_path: Path) -> None:
    parts = frames(COUNT)
    good, bad = read_all(tmp_path / "a.warc.zst", b"".join(parts))
    assert indexes(good) == list(range(COUNT)) and not bad
    assert [record.offset for record in good] == starts(parts)[:-1]
    for place in (0, 8, 60, len(parts[4]) - 2):
        good, bad = read_all(tmp_path / "b.warc.zst", flipped(b"".join(parts), starts(parts)[4] + place))
        assert indexes(good) == [0, 1, 2, 3, 5, 6, 7, 8], place
        assert [error.offset for error in bad] == [starts(parts)[4]]
    good, bad = read_all(tmp_path / "c.warc.zst", b"".join(parts)[:-7])
    assert indexes(good) == list(range(COUNT - 1)) and [error.kind for error in bad] == ["truncated"]
    good, bad = read_all(tmp_path / "d.warc.zst", b"".join([*parts[:2], b"GARBAGE" * 9, *parts[2:], bytes(99)]))
    assert indexes(good) == list(range(COUNT)) and [error.length for error in bad] == [63]


@pytest.mark.parametrize("pack", [bytes, zstandard.ZstdCompressor().compress])
def test_a_dictionary_in_the_first_frame(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    trained = zstandard.train_dictionary(2_000, [warc_record(index) for index in range(200)])
    data = pack(trained.as_bytes())
    first = b"\x5d\x2a\x4d\x18" + len(data).to_bytes(4, "little") + data
    parts = frames(COUNT, trained)
    good, bad = read_all(tmp_path / "a.warc.zst", first + flipped(b"".join(parts), starts(parts)[4] + 30))
    assert indexes(good) == [0, 1, 2, 3, 5, 6, 7, 8] and len(bad) == 1
    damaged = first[:8] + pack(trained.as_bytes()[:8] + bytes(1_000))
    damaged = damaged[:4] + (len(damaged) - 8).to_bytes(4, "little") + damaged[8:]
    good, bad = read_all(tmp_path / "b.warc.zst", damaged + b"".join(parts))
    assert not good and [error.kind for error in bad] == ["corrupt"]


@given(st.binary(min_size=1, max_size=30), st.integers(0, 350), st.booleans())
def test_damage_in_one_record_spares_its_neighbours(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int, cut: bool
) -> None:
    """Bytes overwritten in or cut from the middle record, before it is compressed or in a plain file."""
    path = tmp_path_factory.mktemp("warc") / "a.warc.gz"
    middle = warc_record(1)
    place = min(place, len(middle) - len(noise))
    middle = middle[:place] + (b"" if cut else noise) + middle[place + len(noise) :]
    path.write_bytes(b"".join(map(gzip.compress, [warc_record(0), middle, warc_record(2)])))
    found = list(read(str(path), SourcesConfig()))
    assert isinstance(found[0], Record) and found[0].url == "https://example.org/0"
    assert isinstance(found[-1], Record) and found[-1].url == "https://example.org/2"
    assert all(isinstance(record, Record | BadRecord) for record in found) and len(found) <= 3


@pytest.mark.parametrize("wrong", [b"1", b"40", b"150", b"900", b"1500"])
def test_a_wrong_content_length_in_a_plain_file_costs_its_own_record(tmp_path: Path, wrong: bytes) -> None:
    records = [warc_record(index) for index in range(COUNT)]
    length = records[3].partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    records[3] = records[3].replace(b"Content-Length: " + length, b"Content-Length: " + wrong)
    good, bad = read_all(tmp_path / "a.warc", b"".join(records))
    assert indexes(good) == [index for index in range(COUNT) if index != 3]
    assert [(error.kind, error.offset) for error in bad] == [("warc", sum(map(len, records[:3])))]


def test_a_payload_in_thousands_of_encodings_is_refused(tmp_path: Path) -> None:
    encodings = "Transfer-Encoding: " + ", ".join(["chunked"] * 3000) + "\r\n"
    data = warc_record(0, http=encodings) + warc_record(1)
    good, bad = read_all(tmp_path / "a.warc", data)
    assert indexes(good) == [1] and [error.kind for error in bad] == ["http"]


def test_a_response_without_a_status_line(tmp_path: Path) -> None:
    record = warc_record(0, b"not http!", kind="resource", mime="application/http; msgtype=response")
    record = record.replace(b"Type: resource", b"Type: response")
    good, bad = read_all(tmp_path / "a.warc", record + warc_record(1))
    assert indexes(good) == [1] and [error.kind for error in bad] == ["http"]

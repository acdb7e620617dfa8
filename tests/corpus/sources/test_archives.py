"""zip and tar: members of any kind, their names, and archives that were made to do harm."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.corpus.sources.files import read_all

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
FILES = {
    "文/一.txt": "学而时习之。".encode(),
    "two.jsonl": b'{"text": "a"}\n{"text": "b"}\n',
    "three.json": json.dumps([{"text": "c"}]).encode(),
    "../../etc/four.csv": b"text\nd\n",
    "five.png": PNG,
}


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def tarred(files: Mapping[str, bytes], mode: str = "w", encoding: str = "utf-8") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, encoding=encoding, format=tarfile.GNU_FORMAT) as archive:  # type: ignore
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return file.getvalue()


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_members_are_read_by_their_kind_and_known_by_their_name(tmp_path: Path, name: str) -> None:
    data = zipped(FILES) if name == "a.zip" else tarred(FILES, "w" + name[5:].replace(".", ":"))
    good, bad = read_all(tmp_path / name, data)
    assert [(record.member, record.offset, record.text) for record in good] == [
        ("文/一.txt", 0, None),
        ("two.jsonl", 0, "a"),
        ("two.jsonl", 14, "b"),
        ("three.json", 1, "c"),
        ("../../etc/four.csv", 5, "d"),
    ]
    assert good[0].raw.decode() == "学而时习之。" and good[0].key == "一.txt"
    left_out = [(error.kind, error.member) for error in bad]
    assert left_out == [("left_out.png", "five.png"), ("left_out.link", None)][: 1 if name == "a.zip" else 2]


def test_archives_in_archives(tmp_path: Path) -> None:
    inner = zipped({"b.json": b'[{"text": "deep"}]'})
    good, _ = read_all(tmp_path / "a.tar", tarred({"in.zip": inner}))
    assert [(record.member, record.text) for record in good] == [("in.zip!b.json", "deep")]
    for _ in range(3):
        inner = zipped({"in.zip": inner})
    good, (bad,) = read_all(tmp_path / "a.zip", inner)
    assert not good and bad.kind == "bomb"


def test_names_in_gbk(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("????.txt", "学而")
    data = file.getvalue().replace(b"????", "论语".encode("gbk"))
    good, _ = read_all(tmp_path / "a.zip", data)
    assert [record.member for record in good] == ["论语.txt"]
    good, _ = read_all(tmp_path / "a.tar", tarred({"论语.txt": b"x"}, encoding="gbk"))
    assert [record.member for record in good] == ["论语.txt"]


def test_a_damaged_name_is_damage(tmp_path: Path) -> None:
    data = zipped({"论语.txt": b"one"})
    at = data.rindex("论语".encode())
    good, (bad,) = read_all(tmp_path / "a.zip", data[:at] + b"\xff" + data[at + 1 :])
    assert not good and bad.kind == "corrupt"


def test_damage_costs_its_member(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.txt": b"one", "b.txt": b"two" * 50, "c.txt": b"three"}, zipfile.ZIP_STORED))
    data[data.index(b"twotwo")] ^= 1
    good, (bad,) = read_all(tmp_path / "a.zip", bytes(data))
    assert [record.member for record in good] == ["a.txt", "c.txt"] and bad.kind == "corrupt" and "b.txt" in bad.detail
    for cut in (zipped(FILES)[:-40], zipped(FILES)[:100]):
        good, (bad,) = read_all(tmp_path / "a.zip", cut)
        assert not good and bad.kind == "corrupt"
    good, bad_ones = read_all(tmp_path / "a.tar.gz", tarred({"a.txt": b"one", "b.txt": bytes(1000) * 99}, "w:gz")[:150])
    assert [record.member for record in good] == ["a.txt"] and [bad.kind for bad in bad_ones] == ["truncated"]


def test_bombs_passwords_and_members_that_share_bytes(tmp_path: Path) -> None:
    good, (bad,) = read_all(tmp_path / "a.zip", zipped({"bomb.txt": bytes(40_000_000)}))
    assert not good and bad.kind == "bomb"
    locked = bytearray(zipped({"a.txt": b"one"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(mark) + place] |= 1
    good, (bad,) = read_all(tmp_path / "a.zip", bytes(locked))
    assert not good and bad.kind == "encrypted" and "password" in bad.detail
    twice = bytearray(zipped({"a.txt": b"one", "b.txt": b"one"}, zipfile.ZIP_STORED))
    second = twice.rindex(b"PK\x01\x02")
    twice[second + 42 : second + 46] = struct.pack("<I", 0)
    twice[second + 46 : second + 51] = b"a.txt"
    good, (bad,) = read_all(tmp_path / "a.zip", bytes(twice))
    assert len(good) == 1 and bad.kind == "bomb"


def test_all_members_together_may_be_a_bomb(tmp_path: Path) -> None:
    good, bad = read_all(tmp_path / "a.zip", zipped({f"{index}.txt": bytes(999_000) for index in range(9)}))
    assert 1 <= len(good) <= 3 and {one.kind for one in bad} == {"bomb"} and len(good) + len(bad) == 9


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_zipfile_unpacks_at_once_is_not_unpacked(tmp_path: Path, method: int) -> None:
    good, (bad,) = read_all(tmp_path / "a.zip", zipped({"a.txt": bytes(1000)}, method))
    assert not good and bad.kind == "corrupt"


def test_a_zip_whose_directory_is_lost_is_not_empty(tmp_path: Path) -> None:
    data = bytearray(zipped({"a.txt": b"one"}))
    end = data.rindex(b"PK\x05\x06")
    data[end + 8 : end + 20] = bytes(8) + struct.pack("<I", end)
    good, (bad,) = read_all(tmp_path / "a.zip", bytes(data))
    assert not good and bad.kind == "corrupt"
    assert read_all(tmp_path / "a.zip", zipped({})) == ([], [])


def test_a_header_of_a_tar_that_is_damaged_is_not_its_end(tmp_path: Path) -> None:
    data = tarred({"a.txt": b"one", "b.txt": b"two", "c.txt": b"three"})
    second = data.index(b"b.txt")
    for damaged, kind in (
        (data.replace(b"b.txt", b"d.txt"), "corrupt"),  # its checksum is wrong
        (data[: second + 100], "truncated"),
        (data[:second], "truncated"),
        (data[:second] + bytes(1024) + data[second:], "trailing"),
    ):
        good, (bad,) = read_all(tmp_path / "a.tar", damaged)
        assert [record.member for record in good] == ["a.txt"] and bad.kind == kind


def test_headers_of_a_tar_that_lie(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.pax_headers = {"GNU.sparse.size": "many"}
        archive.addfile(entry)
    good, (bad,) = read_all(tmp_path / "a.tar", file.getvalue())
    assert not good and bad.kind == "corrupt"
    holes = tarfile.TarInfo("holes.txt")
    head = bytearray(holes.tobuf(tarfile.GNU_FORMAT))
    head[156:157], head[386:410], head[483:495] = b"S", b"00000000000\0" * 2, b"77777777777\0"  # 8 GB of nothing
    head[148:156] = b"%06o\0 " % (sum(head) - sum(head[148:156]) + 8 * 32)
    good, (bad,) = read_all(tmp_path / "a.tar", bytes(head) + bytes(1024))
    assert not good and bad.kind == "left_out.link"

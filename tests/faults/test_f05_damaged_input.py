"""FAULTS row 5: an input file that is cut off or damaged is an error of that file, with what came before it counted."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from corpus.engine.run import run_stages
from corpus.sources import DAMAGE_KINDS
from tests.corpus.sources.files import extract_stage, read_all, warc_record
from tests.corpus.sources.test_stage import rows
from tests.corpus.texts import document

COUNT = 6
LINES = [
    json.dumps({"text": document(index, 2), "id": index}, ensure_ascii=False).encode() + b"\n" for index in range(COUNT)
]
RECORDS = [warc_record(index) for index in range(COUNT)]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def parts_of(name: str) -> list[bytes]:
    """The members of a file, one record each."""
    parts = RECORDS if name.startswith("a.warc") else LINES
    return [PACKERS["." + name.split(".")[2] if name.count(".") == 2 else ""](part) for part in parts]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.warc", "a.warc.gz", "a.warc.zst"])
def test_cut_at_every_byte(tmp_path: Path, name: str) -> None:
    parts = parts_of(name)
    data = b"".join(parts)
    ends = [sum(map(len, parts[:count])) for count in range(COUNT + 1)]
    first = ends[-3] if len(data) > 2_000 else 0  # the last members of a longer file stand for all
    for cut in range(first, len(data), 1 if first == 0 else 7):
        whole = sum(end <= cut for end in ends) - 1
        good, bad = read_all(tmp_path / name, data[:cut])
        only_the_line_end_is_missing = name == "a.jsonl" and cut == ends[whole + 1] - 1
        if only_the_line_end_is_missing:
            whole += 1
        assert [error.kind for error in bad] == [] if cut in ends or only_the_line_end_is_missing else ["truncated"], (
            cut
        )
        checksum = name.startswith("a.jsonl.")  # all of a line may come out before its member's checksum is cut
        assert len(good) == whole or (checksum and len(good) == whole + 1), cut


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.warc.gz", "a.warc.zst"])
@pytest.mark.parametrize("hit", [0, 2, COUNT - 1])
def test_damage_in_one_member_costs_that_member(tmp_path: Path, name: str, hit: int) -> None:
    parts = parts_of(name)
    for place in range(4, len(parts[hit]), 37):
        damaged = bytearray(parts[hit])
        damaged[place] ^= 0xA5
        good, bad = read_all(tmp_path / name, b"".join([*parts[:hit], bytes(damaged), *parts[hit + 1 :]]))
        found = [int((record.url or record.key).rsplit("/", 1)[-1]) for record in good]
        expected = [index for index in range(COUNT) if index != hit]
        assert [index for index in found if index != hit] == expected, place
        assert bad or found == list(range(COUNT)), place  # a flipped bit of a name or a time harms nobody


def test_a_member_lost_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """Tools that pack in blocks cut lines: the damage costs its block, and the line at either end of it."""
    data = b"".join(LINES)
    blocks = [gzip.compress(data[start : start + 500], mtime=0) for start in range(0, len(data), 500)]
    blocks[2] = blocks[2][:60] + b"\xff\xff\xff\xff" + blocks[2][64:]
    good, bad = read_all(tmp_path / "a.jsonl.gz", b"".join(blocks))
    lost = set(range(COUNT)) - {int(record.key) for record in good}
    touched = {
        index
        for index in range(COUNT)
        if sum(map(len, LINES[: index + 1])) > 1000 and sum(map(len, LINES[:index])) < 1500
    }
    assert lost == touched
    assert "corrupt" in {error.kind for error in bad} and len(bad) <= 2


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.warc.gz"])
def test_a_damaged_file_gives_nothing_where_no_prefix_is_wanted(tmp_path: Path, name: str) -> None:
    data = b"".join(parts_of(name))
    assert len(read_all(tmp_path / name, data, keep_prefix=False)[0]) == COUNT
    good, bad = read_all(tmp_path / name, data[:-20], keep_prefix=False)
    assert not good and [error.kind in DAMAGE_KINDS for error in bad] == [True]


def test_the_build_counts_what_was_recovered_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    packed = gzip.compress(b"".join(LINES), mtime=0)
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(packed[:-9])
    (tmp_path / "in" / "b.jsonl").write_bytes(b"".join(LINES[:2]))
    stage = extract_stage(str(tmp_path / "in" / "*"), max_error_ratio=1.0)
    folder = run_stages([stage], str(tmp_path / "out"), workers=0)["extract"]
    recovered = folder.counts.documents_out - 2
    assert folder.counts.errors == {"truncated": 1} and COUNT - 1 <= recovered <= COUNT
    damage = {"damaged_files": 1, "recovered_documents": recovered}
    assert folder.counts.extra.items() >= damage.items() and folder.counts.extra["records_in_error.local"] == 1
    (fate,) = rows(folder, "fates")
    assert fate["place"] == f"a.jsonl.gz:offset {len(packed) - 9}"
    assert f"{recovered} documents of the file came before" in fate["detail"]

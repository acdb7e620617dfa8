"""The selection against a row-by-row oracle, what it reads of the index, and the order it hands on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from corpus.commoncrawl import select as select_module
from corpus.commoncrawl.config import FetchConfig, HttpConfig, SelectConfig
from corpus.commoncrawl.index import may_hold, surt_ranges
from corpus.commoncrawl.select import CcSelectStage, CcSortStage
from corpus.document import read_table
from corpus.engine.errors import WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.stage import Counts, Folder
from corpus.engine.storage import File
from tests.corpus.commoncrawl.archive import INDEX_SCHEMA, Archive, write_index
from tests.corpus.commoncrawl.server import Server

HTTP = HttpConfig(contact="test@example.org", backoff_seconds=0.0)


def run(out: Path, files: Sequence[File], fetch: FetchConfig | None = None, **options: Any) -> dict[str, Folder]:
    select, fetch = SelectConfig(**options), fetch or FetchConfig()
    return run_stages(
        [CcSelectStage(tuple(files), select, fetch, HTTP), CcSortStage(select, fetch)], str(out), workers=0
    )


def local(archive: Archive) -> list[File]:
    return list_inputs([str(archive.folder / name) for name in archive.indexes])


def remote(server: Server, archive: Archive) -> list[File]:
    return [File(server.url + name, (archive.folder / name).stat().st_size, name) for name in archive.indexes]


def captures(folder: Folder) -> list[dict[str, Any]]:
    return [row for file in folder.files("captures") for row in read_table(Path(file.url)).to_pylist()]


def places(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["warc_filename"], row["warc_record_offset"]) for row in rows]


def found(folders: dict[str, Folder]) -> list[tuple[str, int]]:
    return [(row["filename"], row["offset"]) for row in captures(folders["cc_sort"])]


@pytest.mark.parametrize(
    ("options", "oracle"),
    [
        ({}, {}),
        ({"primary": True}, {"primary": True}),
        ({"languages": ("eng", "jpn")}, {"languages": ("eng", "jpn")}),
        ({"languages": ("eng", "jpn"), "primary": True}, {"languages": ("eng", "jpn"), "primary": True}),
        ({"host_suffixes": ("cn",)}, {"hosts": ("cn",)}),
        ({"host_suffixes": ("example.cn", "tw")}, {"hosts": ("example.cn", "tw")}),
        ({"host_suffixes": ("www.example.cn",)}, {"hosts": ("www.example.cn",)}),
        ({"host_suffixes": ("ample.cn",)}, {"hosts": ("ample.cn",)}),
    ],
)
def test_the_selection_is_that_of_the_oracle(
    archive: Archive, out: Path, options: dict[str, Any], oracle: dict[str, Any]
) -> None:
    folders = run(out, local(archive), **options)
    assert sorted(found(folders)) == places(archive.wanted(**oracle))
    assert folders["cc_select"].counts.documents_in == len(archive.rows)


def test_all_columns_of_a_capture(archive: Archive, out: Path) -> None:
    rows = sorted(captures(run(out, local(archive))["cc_sort"]), key=lambda row: (row["filename"], row["offset"]))
    for row, index in zip(rows, archive.wanted(), strict=True):
        assert row == {
            "url": index["url"],
            "filename": index["warc_filename"],
            "offset": index["warc_record_offset"],
            "length": index["warc_record_length"],
            "digest": index["content_digest"],
            "languages": index["content_languages"],
            "charset": "UTF-8",
            "fetched": int(index["fetch_time"].timestamp()),
        }


def test_who_was_dropped_and_why(archive: Archive, out: Path) -> None:
    counts = run(out, local(archive))["cc_select"].counts
    assert counts.dropped.keys() == {"status", "truncated", "mime", "language"}
    assert counts.dropped["status"] == sum(row["fetch_status"] != 200 for row in archive.rows) > 0


def test_captures_are_in_the_order_of_the_archive_in_tasks_of_their_size(archive: Archive, out: Path) -> None:
    folders = run(out, local(archive), FetchConfig(task_bytes=20_000))
    files = folders["cc_sort"].files("captures")
    rows = captures(folders["cc_sort"])
    assert found(folders) == sorted(found(folders)) and len(files) > 3  # few captures: the buckets are one task
    for file in files:
        table = read_table(Path(file.url))
        assert sum(table["length"].to_pylist()) <= 20_000 and file.rows == table.num_rows
    counts = folders["cc_sort"].counts
    assert counts.extra["record_bytes"] == sum(row["length"] for row in rows)
    assert 0 < counts.extra["requests"] < len(rows) and counts.extra["gap_bytes"] > 0
    alone = run(out, local(archive), FetchConfig(gap_bytes=0))["cc_sort"].counts
    assert (alone.extra["requests"], alone.extra["gap_bytes"]) == (len(rows), 0)


def test_large_buckets_are_tasks_of_their_own(archive: Archive, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_module, "SORT_ROWS", 10)
    monkeypatch.setattr(select_module, "FLUSH_ROWS", 7)
    folders = run(out, local(archive))
    assert sorted(found(folders)) == places(archive.wanted())
    by_file = [{row["filename"] for row in captures_of(file)} for file in folders["cc_sort"].files("captures")]
    assert len(by_file) == len(archive.warcs) and all(len(names) == 1 for names in by_file)


def captures_of(file: File) -> list[dict[str, Any]]:
    return list(read_table(Path(file.url)).to_pylist())


def test_a_sample_is_chosen_by_url_and_grows(archive: Archive, out: Path) -> None:
    every = set(found(run(out, local(archive))))
    half, more = (set(found(run(out, local(archive), sample=share))) for share in (0.5, 0.8))
    assert half < more < every and len(every) * 0.3 < len(half) < len(every) * 0.7
    assert half == set(found(run(out, local(archive)[::-1], sample=0.5)))


@pytest.mark.parametrize("limit", [1, 40, 80, 81])
def test_a_limit_is_kept_exactly(archive: Archive, out: Path, limit: int) -> None:
    folders = run(out, local(archive), limit=limit)
    every = places(archive.wanted())
    assert len(found(folders)) == min(limit, len(every)) and set(found(folders)) <= set(every)
    assert folders["cc_select"].counts.documents_in == len(archive.rows)


def test_with_a_limit_the_index_is_read_no_further(archive: Archive, server: Server, out: Path) -> None:
    run(out, remote(server, archive), limit=5)
    few = len(server.of(".parquet"))
    server.requests.clear()
    run(out, remote(server, archive))
    assert few < len(server.of(".parquet")) / 2  # a row group is a request here


def test_row_groups_that_cannot_hold_a_host_are_not_read(archive: Archive, server: Server, out: Path) -> None:
    folders = run(out, remote(server, archive), host_suffixes=("tw",))
    assert sorted(found(folders)) == places(archive.wanted(hosts=("tw",)))
    few = len(server.of(".parquet"))
    server.requests.clear()
    run(out, remote(server, archive))
    assert few < len(server.of(".parquet")) / 2  # a row group is a request here


def test_only_columns_that_are_needed_are_read(archive: Archive, server: Server, out: Path, tmp_path: Path) -> None:
    """A wide column that nobody needs costs nothing, over a real connection."""
    wide = pa.schema([*INDEX_SCHEMA, pa.field("ballast", pa.string())])
    dice = random.Random(1)
    rows = [row | {"ballast": dice.randbytes(1500).hex()} for row in archive.rows]
    name = "cc-index/wide.parquet"
    write_index(archive.folder / name, rows, 30, wide)
    size = (archive.folder / name).stat().st_size
    folders = run(out, [File(server.url + name, size, "x")])
    assert sorted(found(folders)) == places(archive.wanted())
    read = sum((one.end or 0) - one.start for one in server.of("wide.parquet"))
    assert read < size / 2 and size > 100_000
    (archive.folder / name).unlink()


def test_an_index_listed_twice_gives_each_capture_once(archive: Archive, out: Path, tmp_path: Path) -> None:
    write_index(tmp_path / "again.parquet", archive.rows)
    folders = run(out, local(archive) + list_inputs([str(tmp_path / "again.parquet")]))
    assert sorted(found(folders)) == places(archive.wanted())
    assert folders["cc_sort"].counts.dropped == {"duplicate": len(archive.wanted())}


def test_rows_that_point_nowhere_are_errors(archive: Archive, out: Path, tmp_path: Path) -> None:
    good = archive.wanted()[:8]
    bad: list[dict[str, Any]] = [
        {"warc_filename": "../../etc/passwd"},
        {"warc_filename": "http://evil.example/x.warc.gz"},
        {"warc_record_offset": -1},
        {"warc_record_length": 0},
        {"warc_record_length": 1 << 30},
        {"warc_filename": None},
        {"url": None},
    ]
    rows = [row | change for row, change in zip(good, [*bad, {}], strict=True)]
    nullable = pa.schema([field.with_nullable(True) for field in INDEX_SCHEMA])
    write_index(tmp_path / "bad.parquet", rows, schema=nullable)
    folders = run(out, list_inputs([str(tmp_path / "bad.parquet")]))
    assert folders["cc_select"].counts.errors == {"place": 6, "too_long": 1}
    assert found(folders) == places(good[7:])


def test_columns_of_other_crawls(archive: Archive, out: Path, tmp_path: Path) -> None:
    """Older ones lack content_truncated; newer ones may have dictionaries and the partitions as columns."""
    path = tmp_path / "other.parquet"
    table = pa.Table.from_pylist(archive.rows, schema=INDEX_SCHEMA)
    subset = pa.array(["warc"] * table.num_rows).dictionary_encode()
    names = table["warc_filename"].combine_chunks().dictionary_encode()
    place = table.schema.get_field_index("warc_filename")
    table = table.append_column("subset", subset).set_column(place, "warc_filename", names)
    pq.write_table(table, path)
    assert sorted(found(run(out, list_inputs([str(path)])))) == places(archive.wanted())
    pq.write_table(
        table.drop_columns(["subset"]).append_column("subset", pa.array(["robotstxt"] * table.num_rows)), path
    )
    assert run(out, list_inputs([str(path)]))["cc_select"].counts.dropped == {"subset": len(archive.rows)}
    pq.write_table(table.drop_columns(["content_truncated", "content_charset"]), path)
    assert len(found(run(out, list_inputs([str(path)])))) > len(archive.wanted())


def test_files_that_are_no_index(archive: Archive, out: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"url": ["https://example.cn/"]}), path)
    with pytest.raises(WenhaiError, match=r"has no column content_digest.*since CC-MAIN-2018-39"):
        run(out, list_inputs([str(path)]))
    whole = (archive.folder / archive.indexes[0]).read_bytes()
    for data in (b"no parquet at all", whole[:-300], whole[:3000] + bytes(200) + whole[3200:]):
        path.write_bytes(data)
        with pytest.raises(WenhaiError, match=r"cannot be read as an index file in Parquet"):
            run(out, list_inputs([str(path)]))


def test_an_index_file_that_goes_away(archive: Archive, server: Server, out: Path) -> None:
    server.fault = lambda request: "404" if request.number > 3 else ""
    with pytest.raises(WenhaiError, match="cannot be read"):
        run(out, remote(server, archive))


def test_an_empty_selection(archive: Archive, out: Path) -> None:
    folders = run(out, local(archive), languages=("xho",))
    assert found(folders) == [] and folders["cc_sort"].counts == Counts()


def test_keys_of_hosts() -> None:
    keys = {
        "cn)/": "cn",
        "cn,example)/": "example.cn",
        "cn,example,a)/": "a.example.cn",
        "cn,example:81)/": "example.cn",
    }
    for key in keys:
        assert any(low <= key < end for low, end in surt_ranges(["cn"]))
    for key in ("cnn)/", "com,cn)/", "cn", "cm)/", "co,cn,x)/"):
        assert not any(low <= key < end for low, end in surt_ranges(["cn"]))
    assert surt_ranges(["www.example.cn"]) == surt_ranges(["example.cn"])  # keys leave www out


def test_statistics_that_are_not_there_prune_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url_surtkey": ["com,a)/"]}), tmp_path / "x", write_statistics=False)
    assert may_hold(pq.ParquetFile(tmp_path / "x").metadata.row_group(0), surt_ranges(["cn"]))
    pq.write_table(pa.table({"url_surtkey": ["com,a)/"]}), tmp_path / "x")
    assert not may_hold(pq.ParquetFile(tmp_path / "x").metadata.row_group(0), surt_ranges(["cn"]))


@pytest.mark.parametrize("suffix", ["", "a b", "1.2.3.4", "*.cn", "文" * 70])
def test_hosts_that_are_none(suffix: str) -> None:
    with pytest.raises(ValidationError, match="no end of a host name"):
        SelectConfig(host_suffixes=(suffix,))


def test_hosts_are_written_as_the_index_has_them() -> None:
    assert SelectConfig(host_suffixes=(".CN", "中国")).host_suffixes == ("cn", "xn--fiqs8s")

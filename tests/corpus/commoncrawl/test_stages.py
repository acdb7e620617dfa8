"""What cc_fetch and cc_files write, and which failures are a capture's and which the server's."""

from __future__ import annotations

import gzip
import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from corpus.commoncrawl.config import FetchConfig, HttpConfig, SelectConfig
from corpus.commoncrawl.http import Http
from corpus.commoncrawl.select import CcSelectStage, CcSortStage
from corpus.commoncrawl.stages import CcFetchStage, CcFilesStage
from corpus.document import read_table
from corpus.engine.errors import WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from corpus.engine.stage import Folder
from corpus.sources import SourcesConfig
from corpus.sources.formats.warc import read_warc
from corpus.sources.record import Record
from tests.corpus.commoncrawl.archive import CRAWL, Archive, write_index
from tests.corpus.commoncrawl.server import Server
from tests.corpus.engine.toy import tree

HTTP = HttpConfig(contact="test@example.org", attempts=3, backoff_seconds=0.0)
SMALL = FetchConfig(task_bytes=20_000)


def stages(
    archive: Archive, base: str, fetch: FetchConfig = SMALL, http: HttpConfig = HTTP, index: Sequence[str] = ()
) -> list[Any]:
    names = index or [str(archive.folder / name) for name in archive.indexes]
    select = SelectConfig()
    files = tuple(list_inputs(names))
    return [
        CcSelectStage(files, select, fetch, http),
        CcSortStage(select, fetch),
        CcFetchStage(CRAWL, base, fetch, http),
    ]


def fetched(out: Path, planned: list[Any], workers: int = 0) -> Folder:
    return run_stages(planned, str(out), workers=workers)["cc_fetch"]


def data_of(folder: Folder) -> list[bytes]:
    """The members of all files without the first of each."""
    members = []
    for file in folder.files():
        data = Path(file.url).read_bytes()
        found = list(cut_members(data))
        assert b"".join(found) == data and b"WARC-Type: warcinfo" in gzip.decompress(found[0])
        members += found[1:]
    return members


def cut_members(data: bytes) -> Iterator[bytes]:
    while data:
        decoder = zlib.decompressobj(31)
        decoder.decompress(data)
        assert decoder.eof
        yield data[: len(data) - len(decoder.unused_data)]
        data = decoder.unused_data


def fates(folder: Folder) -> list[tuple[str, str]]:
    """(rule, place) of every error."""
    rows = [row for file in folder.files("fates") for row in read_table(Path(file.url)).to_pylist()]
    return [(row["rule"].removeprefix("error:"), row["place"]) for row in rows]


def place(row: dict[str, Any]) -> str:
    return f"{row['warc_filename']}:offset {row['warc_record_offset']}"


def test_captures_lie_there_byte_for_byte(archive: Archive, server: Server, out: Path) -> None:
    folder = fetched(out, stages(archive, server.url))
    wanted = archive.wanted()
    assert data_of(folder) == [archive.member(row) for row in wanted] and len(folder.files()) > 2
    assert (folder.counts.documents_in, folder.counts.documents_out) == (len(wanted), len(wanted))
    assert folder.counts.bytes_in == folder.counts.bytes_out == sum(row["warc_record_length"] for row in wanted)
    assert [file.rows for file in folder.files("fates")] == [0] * len(folder.files())
    records = [one for file in folder.files() for one in read_warc(Path(file.url), SourcesConfig())]
    assert [one.url for one in records if isinstance(one, Record)] == [row["url"] for row in wanted]
    requests = len(server.of(".warc.gz"))
    planned = Folder.open(str(next(out.glob("cc_sort-*")))).counts.extra["requests"]
    assert requests == planned < len(wanted) / 4  # neighbours are one request


@pytest.fixture(scope="module")
def reference(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a fetch from a folder, with their digests."""
    return tree_of(fetched(tmp_path_factory.mktemp("reference"), stages(archive, str(archive.folder))))


def test_the_same_bytes_from_anywhere_with_any_workers_and_manners(
    archive: Archive, server: Server, reference: dict[str, str], tmp_path: Path
) -> None:
    assert tree_of(fetched(tmp_path / "b", stages(archive, server.url), workers=2)) == reference
    hurried = HTTP.model_copy(update={"concurrency": 9, "contact": "other"})
    assert tree_of(fetched(tmp_path / "d", stages(archive, server.url, http=hurried))) == reference
    alone = SMALL.model_copy(update={"gap_bytes": 0})
    single = tree_of(fetched(tmp_path / "e", stages(archive, server.url, alone)))
    assert {name: digest for name, digest in single.items() if name.startswith(("data", "fates"))} == {
        name: digest for name, digest in reference.items() if name.startswith(("data", "fates"))
    }


def tree_of(folder: Folder) -> dict[str, str]:
    return {name: digest for name, digest in tree(Path(folder.url)).items() if name.split("/")[0] in ("data", "fates")}


@pytest.mark.parametrize("fault", ["503:0", "500", "cut:9", "close", "flip", "shift"])
def test_passing_failures_change_nothing(
    archive: Archive, server: Server, reference: dict[str, str], out: Path, fault: str
) -> None:
    server.fault = lambda request: "" if request.again else fault
    fetch = SMALL.model_copy(update={"gap_bytes": 0}) if fault == "flip" else SMALL  # the second try is for one alone
    assert tree_of(fetched(out, stages(archive, server.url, fetch))) == reference


def test_a_missing_file_costs_its_captures_only(archive: Archive, server: Server, out: Path) -> None:
    gone = archive.warcs[1]
    server.fault = lambda request: "404" if request.path.endswith(gone) else ""
    lenient = SMALL.model_copy(update={"max_error_ratio": 1.0, "gap_bytes": 0})
    alone = HTTP.model_copy(update={"concurrency": 1})
    folder = fetched(out, stages(archive, server.url, lenient, alone))
    lost = [row for row in archive.wanted() if row["warc_filename"] == gone]
    assert folder.counts.errors == {"missing": len(lost)} and len(lost) > 10
    assert fates(folder) == [("missing", place(row)) for row in lost]
    kept = [row for row in archive.wanted() if row["warc_filename"] != gone]
    assert data_of(folder) == [archive.member(row) for row in kept]
    with_errors = [file for file in folder.files("fates") if file.rows]
    assert len(server.of(gone)) == len(with_errors) < len(lost)  # asked for once a task


def test_each_kind_of_bad_capture(archive: Archive, server: Server, out: Path, tmp_path: Path) -> None:
    rows = [dict(row) for row in archive.wanted()]
    last = max(rows, key=lambda row: row["warc_record_offset"])
    changes: list[tuple[int, str, dict[str, Any]]] = [
        (2, "digest", {"content_digest": "A" * 32}),
        (5, "wrong_record", {"url": "https://example.cn/another"}),
        (9, "not_gzip", {"warc_record_offset": rows[9]["warc_record_offset"] + 3}),
        (12, "truncated", {"warc_record_length": rows[12]["warc_record_length"] - 5}),
        (15, "wrong_record", {"warc_record_offset": 0, "warc_record_length": 10**4}),
        (rows.index(last), "truncated", {"warc_record_length": 10**6}),
    ]
    for number, _, change in changes:
        rows[number] |= change
    write_index(tmp_path / "bad.parquet", rows)
    server.fault = lambda request: "500" if request.start <= rows[20]["warc_record_offset"] < (request.end or 0) and (
        request.path.endswith(rows[20]["warc_filename"])) else ""  # fmt: skip
    folder = fetched(out, stages(archive, server.url, index=[str(tmp_path / "bad.parquet")]))
    expected = [(kind, place(rows[number])) for number, kind, _ in changes] + [("unreachable", place(rows[20]))]
    found = {where: kind for kind, where in fates(folder)}
    assert found == {where: kind for kind, where in expected}
    bad = {where for _, where in expected}
    assert data_of(folder) == [archive.member(row) for row in rows if place(row) not in bad]
    counts = folder.counts
    assert counts.documents_in == len(rows) == counts.documents_out + sum(counts.errors.values())


def test_a_server_that_goes_away_loses_nothing_and_costs_no_error_rows(
    archive: Archive, server: Server, out: Path
) -> None:
    first = archive.warcs[0]
    server.fault = lambda request: "" if request.path.endswith(first) else "503"
    planned = stages(archive, server.url)
    with pytest.raises(WenhaiError, match=r"does not answer.*finished work is kept"):
        fetched(out, planned)
    asked = len(server.requests)
    [folder] = out.glob("cc_fetch-*")
    done = sorted(path.stem for path in (folder / "done").iterdir())
    assert done and not (folder / "MANIFEST.json").exists()
    assert all(read_table(path).num_rows == 0 for path in folder.glob("fates/*"))
    assert not list(folder.rglob("*.tmp"))
    tasks = len(list(next(out.glob("cc_sort-*")).glob("captures/*")))
    limit = HTTP.concurrency * (HTTP.attempts + 2) * 2
    assert asked < len(server.of(first)) + limit and tasks > len(done) + 1  # the tasks that follow ask no more

    server.fault = lambda request: ""
    server.requests.clear()
    whole = fetched(out, planned)
    assert data_of(whole) == [archive.member(row) for row in archive.wanted()]
    assert not server.of(first) or len(server.of(first)) < 3  # what was done is not fetched again


def test_an_archive_that_is_not_that_of_the_index_fails(
    archive: Archive, server: Server, out: Path, tmp_path: Path
) -> None:
    large = FetchConfig()
    with pytest.raises(WenhaiError, match=r"80 of 80 captures cannot be had .*\(80 missing\)\. Is it the archive"):
        fetched(out, stages(archive, server.url + "elsewhere/", large))
    wrong = [row | {"content_digest": "A" * 32} for row in archive.wanted()]
    write_index(tmp_path / "wrong.parquet", wrong)
    index = [str(tmp_path / "wrong.parquet")]
    with pytest.raises(WenhaiError, match=r"80 digest"):
        fetched(out, stages(archive, server.url, large, index=index))
    lenient = FetchConfig(max_error_ratio=1.0)
    assert fetched(out, stages(archive, server.url, lenient, index=index)).counts.errors == {"digest": 80}
    unchecked = FetchConfig(check_digest=False)
    assert fetched(out, stages(archive, server.url, unchecked, index=index)).counts.documents_out == 80


# ------------------------------------------------------------------------------------------------------- whole files


def whole(archive: Archive, base: str, out: Path, http: HttpConfig = HTTP, paths: Sequence[str] = ()) -> Folder:
    chosen = tuple(enumerate(paths or archive.wets))
    return run_stages([CcFilesStage(CRAWL, base, chosen, http)], str(out), workers=0)["cc_files"]


def digests(folder: Folder) -> dict[str, str]:
    return {
        file.url.rsplit("/", 1)[-1]: hashlib.sha256(Path(file.url).read_bytes()).hexdigest() for file in folder.files()
    }


@pytest.mark.parametrize("fault", ["", "503:0", "cut:5000", "flip", "close"])
def test_whole_files_lie_there_byte_for_byte(archive: Archive, server: Server, out: Path, fault: str) -> None:
    server.fault = lambda request: "" if request.again or request.start else fault
    folder = whole(archive, server.url, out)
    assert digests(folder) == {
        f"{index:05d}-{name.rsplit('/', 1)[-1]}": hashlib.sha256((archive.folder / name).read_bytes()).hexdigest()
        for index, name in enumerate(archive.wets)
    }
    assert (folder.counts.documents_in, folder.counts.documents_out, folder.counts.errors) == (2, 2, {})
    assert (
        sum(isinstance(one, Record) for file in folder.files() for one in read_warc(Path(file.url), SourcesConfig()))
        == 60
    )


def test_more_files_cost_only_those(archive: Archive, server: Server, out: Path) -> None:
    whole(archive, server.url, out, paths=archive.wets[:1])
    server.requests.clear()
    assert len(whole(archive, server.url, out).files()) == 2
    assert [one.path for one in server.requests] == ["/" + archive.wets[1]]


def damaged(change: Callable[[bytes], bytes], archive: Archive, name: str) -> str:
    path = f"damaged/{name}.warc.gz"
    (archive.folder / "damaged").mkdir(exist_ok=True)
    (archive.folder / path).write_bytes(change((archive.folder / archive.wets[0]).read_bytes()))
    return path


def test_a_file_that_is_damaged_where_it_lies_is_an_error(archive: Archive, server: Server, out: Path) -> None:
    paths = [
        damaged(lambda data: data[:-20], archive, "cut"),
        damaged(lambda data: data[:9000] + bytes(50) + data[9050:], archive, "hole"),
        damaged(lambda data: b"<html>" + data, archive, "page"),
        damaged(lambda data: b"", archive, "empty"),
        "damaged/none.warc.gz",
        archive.wets[0],
    ]
    folder = whole(archive, server.url, out, paths=paths)
    assert folder.counts.errors == {"truncated": 1, "not_gzip": 3, "missing": 1}
    assert [where for _, where in fates(folder)] == paths[:5] and len(folder.files()) == 1
    assert len([one for one in server.requests if one.path.endswith("cut.warc.gz")]) == 2  # copied once more, in vain


def test_a_server_without_answers_stops_whole_files(archive: Archive, server: Server, out: Path) -> None:
    server.fault = lambda request: "503"
    with pytest.raises(WenhaiError, match="does not answer"):
        whole(archive, server.url, out)
    assert len(server.requests) <= HTTP.attempts + 2
    server.fault = lambda request: "" if request.number % 2 else "cut:4000"
    assert len(whole(archive, server.url, out).files()) == 2


def test_requests_under_way_are_bounded(
    archive: Archive, server: Server, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, now, most = threading.Lock(), 0, 0
    real = Http.read

    def counted(self: Http, url: str, start: int, end: int) -> bytes:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        try:
            return real(self, url, start, end)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(Http, "read", counted)
    fetched(out, stages(archive, server.url, FetchConfig(gap_bytes=0), HTTP.model_copy(update={"concurrency": 2})))
    assert 1 <= most <= 2

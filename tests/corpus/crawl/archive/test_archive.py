from __future__ import annotations

import errno
import gzip
import hashlib
import io
import itertools
import os
import random
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.cli import main as warcio

from corpus.crawl.archive import archive as archive_module
from corpus.crawl.archive.archive import Archive, ArchiveFile
from corpus.crawl.archive.records import payload_digest, warc_info
from corpus.crawl.fates import Reference
from corpus.crawl.network.fetched import Fetched
from corpus.engine.durable import sync_folder
from corpus.engine.errors import DiskError, WenhaiError
from corpus.sources import BadRecord, Record, SourcesConfig, read
from tests.corpus.crawl.small_site import HTML, fetched
from tests.corpus.sources.files import page

INFO = warc_info("Mozilla/5.0 (compatible; wenhaibot/0.1; +mailto:a@example.org)", "a@example.org")
LARGE = 1 << 30
DATE = "2026-11-22T01:02:03Z"


def numbered() -> Callable[[], uuid.UUID]:
    numbers = itertools.count(1)
    return lambda: uuid.UUID(int=next(numbers))


def answer(body: bytes, *headers: tuple[bytes, bytes], status: int = 200, **changes: Any) -> Fetched:
    return fetched(status, body, *headers, **changes)


def make(folder: Path, file_bytes: int = LARGE, files: tuple[ArchiveFile, ...] = ()) -> Archive:
    archive = Archive(folder / "data", file_bytes, INFO, numbered())
    archive.recover(files)
    return archive


def records(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Each record by warcio, with its block after the HTTP headers, its digests checked."""
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            yield record, record.content_stream().read()


def block(path: Path, number: int) -> bytes:
    """The block of a record, as it stands in the file."""
    with path.open("rb") as file:
        return [record.raw_stream.read() for record in ArchiveIterator(file, no_record_parse=True)][number]


def one(tmp_path: Path, fetched: Fetched, url: str = "https://example.org/") -> Path:
    archive = make(tmp_path)
    archive.write_page(url, fetched)
    archive.close()
    return tmp_path / "data" / "00000.warc.gz"


# ------------------------------------------------------------------------------------------------------------- records


def a_mixed_file(tmp_path: Path) -> Path:
    archive = make(tmp_path)
    first, _ = archive.write_page("https://example.org/1", answer(page(1)))
    archive.write_page("https://example.org/2", answer(page(2), HTML, (b"Content-Encoding", b"br")))
    digest = payload_digest(page(1))
    archive.write_revisit("https://example.org/3", answer(page(1)), first, digest)
    not_modified = answer(b"", (b"ETag", b'"x"'), status=304, reason="Not Modified")
    archive.write_revisit("https://example.org/1", not_modified, first, digest, not_modified=True)
    (file,) = archive.close()
    assert file.records == 9
    return tmp_path / "data" / "00000.warc.gz"


def test_a_file_begins_with_what_it_is(tmp_path: Path) -> None:
    record, body = next(records(a_mixed_file(tmp_path)))
    headers = dict(record.rec_headers.headers)
    assert (record.rec_type, record.rec_headers.protocol) == ("warcinfo", "WARC/1.1")
    assert headers["WARC-Filename"] == "00000.warc.gz" and headers["Content-Type"] == "application/warc-fields"
    lines = body.decode().split("\r\n")
    assert lines == [*(f"{name}: {value}" for name, value in INFO.items()), ""]
    assert {"software", "format", "robots", "http-header-user-agent", "operator"} <= INFO.keys()


def test_a_page_and_its_request(tmp_path: Path) -> None:
    path = a_mixed_file(tmp_path)
    (_, (request, head), (response, body), *_) = records(path)
    shared = {
        "WARC-Date": "2026-11-22T01:02:03Z",
        "WARC-Target-URI": "https://example.org/1",
        "WARC-IP-Address": "192.0.2.7",
    }
    found = dict(request.rec_headers.headers)
    assert shared.items() <= found.items() and found["WARC-Type"] == "request" and head == b""
    assert found["Content-Type"] == "application/http;msgtype=request"
    assert block(path, 1) == b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
    answered = dict(response.rec_headers.headers)
    assert shared.items() <= answered.items() and answered["WARC-Type"] == "response"
    assert answered["Content-Type"] == "application/http;msgtype=response"
    assert found["WARC-Concurrent-To"] == answered["WARC-Record-ID"] != found["WARC-Record-ID"]
    assert body == page(1) and answered["WARC-Payload-Digest"] == payload_digest(page(1))
    assert answered["WARC-Block-Digest"] == payload_digest(block(path, 2))
    assert int(answered["Content-Length"]) == len(block(path, 2))


def test_revisits_point_at_what_they_repeat(tmp_path: Path) -> None:
    path = a_mixed_file(tmp_path)
    found = [record for record, _ in records(path)]
    same, not_modified = (dict(record.rec_headers.headers) for record in found if record.rec_type == "revisit")
    original = next(record for record in found if record.rec_type == "response").rec_headers
    for revisit, profile in ((same, "identical-payload-digest"), (not_modified, "server-not-modified")):
        assert revisit["WARC-Profile"] == f"http://netpreserve.org/warc/1.1/revisit/{profile}"
        assert revisit["WARC-Refers-To"] == original.get_header("WARC-Record-ID")
        assert revisit["WARC-Refers-To-Target-URI"] == "https://example.org/1"
        assert revisit["WARC-Refers-To-Date"] == original.get_header("WARC-Date")
        assert revisit["WARC-Payload-Digest"] == original.get_header("WARC-Payload-Digest")
    assert block(
        path, 6
    ) == b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(page(1))
    assert block(path, 8) == b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n'


def test_a_revisit_of_an_unknown_digest(tmp_path: Path) -> None:
    archive = make(tmp_path)
    archive.write_revisit("https://e.org/", answer(b"", status=304), Reference("urn:x", "https://e.org/", "2026"), None)
    archive.close()
    (*_, (revisit, _)) = records(tmp_path / "data" / "00000.warc.gz")
    assert revisit.rec_headers.get_header("WARC-Payload-Digest") is None


def test_three_readers_read_every_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = a_mixed_file(tmp_path)
    kinds = "warcinfo request response request response request revisit request revisit".split()
    assert [record.rec_type for record, _ in records(path)] == kinds
    with path.open("rb") as file:
        fast = list(FastIterator(file, verify_digests=True, parse_http=True))
        assert [record.record_type for record in fast] == [getattr(WarcRecordType, kind) for kind in kinds]
    with pytest.raises(SystemExit) as ended:
        warcio(["check", "-v", str(path)])
    assert not ended.value.code and capsys.readouterr().out.count("digest pass") == 7
    ours = list(read(str(path), SourcesConfig()))
    assert [(record.url, record.raw, record.kind) for record in ours if isinstance(record, Record)] == [
        ("https://example.org/1", page(1), "html"),
        ("https://example.org/2", page(2), "html"),
    ]
    assert not [record for record in ours if isinstance(record, BadRecord)]


def test_each_record_is_a_member_at_the_offset_that_was_told(tmp_path: Path) -> None:
    archive = make(tmp_path)
    written = [archive.write_page(f"https://example.org/{index}", answer(page(index))) for index in range(5)]
    archive.sync()
    data = (tmp_path / "data" / ".00000.warc.gz.open").read_bytes()
    for index, (reference, place) in enumerate(written):
        record = next(iter(ArchiveIterator(io.BytesIO(data[place.offset :]))))
        assert record.rec_headers.get_header("WARC-Target-URI") == reference.url == f"https://example.org/{index}"
        assert record.rec_headers.get_header("WARC-Record-ID") == f"<{reference.record_id}>"
        assert (place.file, place.date, reference.date) == ("data/00000.warc.gz", DATE, DATE)


def test_headers_describe_the_decoded_body_and_keep_the_rest(tmp_path: Path) -> None:
    headers = (
        (b"Server", b"nginx"),
        (b"content-ENCODING", b"gzip"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Content-length", b"999"),
        (b"X-\xd6\xd0", b"\xd6\xd0\xce\xc4 \xe6\x96\x87 \xff\x80"),
        (b"Set-Cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        HTML,
    )
    assert block(one(tmp_path, answer(b"<p>x", *headers)), 2) == (
        b"HTTP/1.1 200 OK\r\nServer: nginx\r\nX-Crawler-content-ENCODING: gzip\r\n"
        b"X-Crawler-Transfer-Encoding: chunked\r\nX-Crawler-Content-length: 999\r\n"
        b"X-\xd6\xd0: \xd6\xd0\xce\xc4 \xe6\x96\x87 \xff\x80\r\nSet-Cookie: a=1\r\n"
        b"set-cookie: b=2\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 4\r\n\r\n<p>x"
    )


def test_a_true_length_stays_and_a_second_one_does_not(tmp_path: Path) -> None:
    headers = ((b"Content-Length", b"4"), (b"X", b"y"), (b"content-length", b"4"))
    assert block(one(tmp_path, answer(b"abcd", *headers)), 2) == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\nX-Crawler-content-length: 4\r\n\r\nabcd"
    )


def test_what_a_304_tells_of_its_page_stays(tmp_path: Path) -> None:
    headers = ((b"Content-Length", b"4711"), (b"Content-Encoding", b"gzip"))
    assert block(one(tmp_path, answer(b"", *headers, status=304, reason="Not Modified")), 2) == (
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4711\r\nContent-Encoding: gzip\r\n\r\n"
    )


EVIL = "x\r\nWARC-Type: response\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"


def test_nothing_can_begin_a_header_of_its_own(tmp_path: Path) -> None:
    path = one(
        tmp_path,
        answer(
            b"body",
            (b"A\r\nB: c", b"d\r\nE: f\r\n\r\ng"),
            (b"N\0", b"\n"),
            reason=EVIL,
            version=EVIL,
            address=EVIL,
            date=EVIL,
        ),
        url=f"https://example.org/{EVIL}> \x00文\ud800",
    )
    found = list(records(path))
    assert [record.rec_type for record, _ in found] == ["warcinfo", "request", "response"]
    names = [name for name, _ in found[2][0].rec_headers.headers]
    assert len(names) == len(set(names)) == 9
    assert found[2][1] == b"body" and block(path, 2).count(b"\r\n") == 5
    uri = found[2][0].rec_headers.get_header("WARC-Target-URI")
    assert uri.isascii() and not set(uri) & set("\r\n\0<> ")


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=8), st.binary(max_size=8)), max_size=5),
    st.binary(max_size=50),
    st.text(max_size=8),
    st.text(max_size=8),
)
def test_any_answer_is_one_sound_record(
    tmp_path_factory: pytest.TempPathFactory, headers: list[tuple[bytes, bytes]], body: bytes, reason: str, url: str
) -> None:
    folder = tmp_path_factory.mktemp("warc")
    with mock.patch.object(os, "fsync"):
        path = one(folder, answer(body, *headers, reason=reason), url=f"https://example.org/{url}")
    stored = block(path, 2)
    assert stored.partition(b"\r\n\r\n")[2] == body
    assert [record.rec_type for record, _ in records(path)] == ["warcinfo", "request", "response"]
    with path.open("rb") as file:
        assert all(record.verify_block_digest() for record in FastIterator(file, parse_http=False))


# --------------------------------------------------------------------------------------------------------------- files


def write(archive: Archive, index: int) -> None:
    archive.write_page(f"https://example.org/{index}", answer(page(index) * 20))


def urls(folder: Path) -> list[str]:
    """The pages in all files of a folder, open ones too; every record must be sound."""
    found = []
    for path in sorted((folder / "data").iterdir(), key=lambda path: path.name.lstrip(".")):
        found += [
            str(record.rec_headers.get_header("WARC-Target-URI")).rpartition("/")[2]
            for record, _ in records(path)
            if record.rec_type == "response"
        ]
    return found


def test_nothing_is_made_before_the_first_record(tmp_path: Path) -> None:
    archive = make(tmp_path)
    assert archive.sync() == archive.close() == () and not list((tmp_path / "data").iterdir())


def test_large_files_are_closed_and_reported_once(tmp_path: Path) -> None:
    archive = make(tmp_path, file_bytes=2_000)
    told: list[ArchiveFile] = []
    for index in range(12):
        write(archive, index)
        if index % 5 == 0:
            told += archive.sync()
    told += archive.close()
    assert archive.sync() == ()
    closed = [file for file in told if file.sha256]
    assert len(closed) > 3 and len({file.name for file in closed}) == len(closed)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [file.name[5:] for file in closed]
    for file in closed:
        data = (tmp_path / file.name).read_bytes()
        assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert file.records == len(list(records(tmp_path / file.name)))
        assert all(len(part) < 4_000 for part in (data,))
        assert gzip.decompress(data).startswith(b"WARC/1.1\r\nWARC-Type: warcinfo")
    assert urls(tmp_path) == [str(index) for index in range(12)]


def test_the_next_number_after_99999(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    files = []
    for number in (99_999, 100_000):
        (tmp_path / "data" / f"{number}.warc.gz").touch()
        files.append(ArchiveFile(f"data/{number}.warc.gz", 0, 0, "x"))
    archive = make(tmp_path, files=tuple(files))
    write(archive, 1)
    assert archive.close()[0].name == "data/100001.warc.gz"


# ------------------------------------------------------------------------------------------------------------ recovery


def test_recovery_removes_what_no_record_names_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("00000.warc.gz", ".00001.warc.gz.open", "notes.txt", "a.warc.gz", ".lock"):
        (folder / name).write_bytes(b"x")
    make(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "a.warc.gz", "notes.txt"]


def test_files_of_another_series_are_passed_over(tmp_path: Path) -> None:
    archive = make(tmp_path, files=(ArchiveFile("robots/00007.warc.gz", 5, 1, "x"),))
    write(archive, 1)
    assert archive.close()[0].name == "data/00000.warc.gz"


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("change", ["gone", "short", "long"])
def test_a_file_that_is_not_as_recorded(tmp_path: Path, change: str, closed: bool) -> None:
    first = make(tmp_path)
    write(first, 1)
    files = first.close() if closed else first.sync()
    path = next((tmp_path / "data").iterdir())
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if change == "short" else path.read_bytes() + b"x")
    if change == "long" and not closed:  # what a kill leaves
        make(tmp_path, files=files)
        return
    with pytest.raises(WenhaiError, match=r"00000\.warc\.gz.*: (is gone|has .* bytes), and the crawl recorded"):
        make(tmp_path, files=files)


def test_a_file_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    first = make(tmp_path)
    write(first, 1)
    files = first.sync()
    path = tmp_path / "data" / ".00000.warc.gz.open"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    with pytest.raises(WenhaiError):
        make(tmp_path, files=files)
    assert (tmp_path / "elsewhere").read_bytes() == before


class Killed(BaseException):
    """The process is gone: nothing of it runs any more, not even its handlers of errors."""


CALLS = ("open", "pwrite", "ftruncate", "fsync", "rename", "unlink")


class FaultyOs:
    """`os` as the archive sees it: logs its calls, and dies in the N-th or lets it fail."""

    def __init__(self, at: int = 0, error: int = 0) -> None:
        self.log: list[str] = []
        self.at, self.error, self.dead = at, error, False
        self.descriptors: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *args: self.call(name, real, *args)) if name in CALLS else real

    def call(self, name: str, real: Callable[..., Any], *args: Any) -> Any:
        if self.dead:
            raise Killed
        self.log.append(name)
        if len(self.log) == self.at:
            if name == "pwrite":  # half of it arrives
                descriptor, data, offset = args
                real(descriptor, data[: len(data) // 2], offset)
            if self.error:
                raise OSError(self.error, os.strerror(self.error))
            self.dead = True
            raise Killed
        if name in ("fsync", "sync_folder"):  # slow, and a kill does not need them
            return None
        result = real(*args)
        if name == "open":
            self.descriptors.add(result)
        return result

    def close(self, descriptor: int) -> None:
        self.descriptors.remove(descriptor)
        os.close(descriptor)

    def bury(self) -> None:
        """What the kernel does for the dead."""
        for descriptor in set(self.descriptors):
            self.close(descriptor)


@pytest.fixture
def put_os(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[FaultyOs], FaultyOs]]:
    """Have the archive use another `os`; afterwards nothing it opened is open."""
    put: list[FaultyOs] = []

    def put_one(faulty: FaultyOs) -> FaultyOs:
        put.append(faulty)
        monkeypatch.setattr(archive_module, "os", faulty)
        monkeypatch.setattr(archive_module, "sync_folder", lambda path: faulty.call("sync_folder", sync_folder, path))
        return faulty

    yield put_one
    for one in put:
        one.bury()


def crawl(folder: Path, recorded: dict[str, ArchiveFile], done: list[int], pages: int, fault: FaultyOs) -> None:
    """What a run does: go on where the record ends, and record (at once or not) what has been synced."""

    def record(files: tuple[ArchiveFile, ...]) -> None:
        fault.call("commit", lambda: recorded.update({file.name: file for file in files}))
        done.extend(pending)
        pending.clear()

    archive = make(folder, file_bytes=1_500, files=tuple(recorded.values()))
    pending: list[int] = []
    for index in range(len(done), pages):
        write(archive, index)
        pending.append(index)
        if index % 3 == 2:
            record(archive.sync())
    record(archive.close())


def check_whole(folder: Path, recorded: dict[str, ArchiveFile], pages: int) -> None:
    assert urls(folder) == [str(index) for index in range(pages)]
    assert sorted(recorded) == [f"data/{path.name}" for path in sorted((folder / "data").iterdir())]
    for file in recorded.values():
        data = (folder / file.name).read_bytes()
        assert (file.bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert file.records == len(list(records(folder / file.name)))


PutOs = Callable[[FaultyOs], FaultyOs]


def run_until_whole(folder: Path, put_os: PutOs, faults: Iterable[FaultyOs], pages: int) -> int:
    """One run after another, each with its fault, until one ends: how many did not."""
    recorded: dict[str, ArchiveFile] = {}
    done: list[int] = []
    for killed, fault in enumerate(faults):
        put_os(fault)
        try:
            crawl(folder, recorded, done, pages, fault)
        except (Killed, DiskError, OSError):  # the last of the commit
            fault.bury()
            continue
        check_whole(folder, recorded, pages)
        return killed
    raise AssertionError("no run ended")


@pytest.mark.parametrize("error", [0, errno.ENOSPC])
def test_a_kill_or_a_full_disk_at_every_call_to_the_system(
    tmp_path: Path, put_os: PutOs, error: OSError | None
) -> None:
    for at in range(1, 200):
        fault = FaultyOs(at, error)
        if not run_until_whole(tmp_path / str(at), put_os, [fault, FaultyOs()], pages=7):
            assert len(fault.log) < at and at > 30  # every call has had its turn
            return
    raise AssertionError("every run was killed")


@pytest.mark.parametrize("seed", range(10))
def test_kills_that_follow_each_other(tmp_path: Path, put_os: PutOs, seed: int) -> None:
    chance = random.Random(seed)
    faults = [*(FaultyOs(chance.randrange(1, 16)) for _ in range(20)), FaultyOs()]
    assert run_until_whole(tmp_path, put_os, faults, pages=10) > 3


def test_a_kill_at_every_byte_of_what_was_not_recorded(tmp_path: Path, put_os: PutOs) -> None:
    put_os(FaultyOs())
    first = make(tmp_path)
    write(first, 1)
    files = first.sync()
    write(first, 2)
    path = tmp_path / "data" / ".00000.warc.gz.open"
    whole = path.read_bytes()
    for length in range(files[0].bytes, len(whole) + 1):
        path.write_bytes(whole[:length])
        archive = make(tmp_path, files=files)
        assert path.read_bytes() == whole[: files[0].bytes]
        assert archive.sync() == files
    write(archive, 3)
    (closed,) = archive.close()
    assert closed.records == 5 and urls(tmp_path) == ["1", "3"]
    assert closed.sha256 == hashlib.sha256((tmp_path / closed.name).read_bytes()).hexdigest()


def test_what_is_durable_before_what(tmp_path: Path, put_os: PutOs) -> None:
    fault = put_os(FaultyOs())
    archive = make(tmp_path)
    fault.log.clear()
    write(archive, 1)
    archive.sync()
    assert fault.log == ["open", "pwrite", "sync_folder", "pwrite", "fsync"]
    fault.log.clear()
    files = archive.sync()
    archive.close()
    assert fault.log == ["fsync", "ftruncate", "fsync", "rename", "sync_folder"]
    fault.log.clear()
    put_os(fault)
    make(tmp_path, files=files)
    assert fault.log == ["rename", "open", "ftruncate", "fsync", "sync_folder"]


def test_a_full_disk_leaves_whole_records_and_the_archive_goes_on(tmp_path: Path, put_os: PutOs) -> None:
    archive = make(tmp_path)
    write(archive, 1)
    (before,) = archive.sync()
    put_os(FaultyOs(1, errno.ENOSPC))
    message = r"\.00000\.warc\.gz\.open: cannot be written \(No space left on device\).*same command again"
    with pytest.raises(DiskError, match=message):
        write(archive, 2)
    assert (tmp_path / "data" / ".00000.warc.gz.open").stat().st_size == before.bytes
    assert archive.sync() == (before,)
    put_os(FaultyOs())
    write(archive, 3)
    assert archive.sync()[0].records == 5
    assert urls(tmp_path) == ["1", "3"]


def test_a_full_disk_before_the_first_record(tmp_path: Path, put_os: PutOs) -> None:
    archive = make(tmp_path)
    for at in (1, 2, 3):
        put_os(FaultyOs(at, errno.ENOSPC))
        with pytest.raises(DiskError):
            write(archive, 1)
        assert not list((tmp_path / "data").iterdir()) and archive.sync() == ()
    put_os(FaultyOs())
    write(archive, 2)
    archive.close()
    assert urls(tmp_path) == ["2"]


def test_after_a_failed_sync_nothing_is_believed(tmp_path: Path, put_os: PutOs) -> None:
    archive = make(tmp_path)
    write(archive, 1)
    put_os(FaultyOs(1, errno.EIO))
    for call in (archive.sync, archive.sync, archive.close, lambda: write(archive, 2)):
        with pytest.raises(DiskError, match="Input/output error"):  # a second fsync would lie
            call()

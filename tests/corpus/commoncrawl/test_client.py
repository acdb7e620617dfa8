"""Requests that fail in every way, and whose fault each failure is taken for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corpus.commoncrawl import client as client_module
from corpus.commoncrawl import http as http_module
from corpus.commoncrawl.client import Client, is_path
from corpus.commoncrawl.config import HttpConfig
from corpus.commoncrawl.http import Bad, Http, ServerGone, Temporary
from corpus.engine.disk_budget import Free
from corpus.engine.errors import DiskError
from tests.corpus.commoncrawl.server import Request, Server, serving

QUICK = HttpConfig(contact="test@example.org", attempts=4, backoff_seconds=0.0)
DATA = bytes(range(256)) * 40


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "data").write_bytes(DATA)
    (tmp_path / "large").write_bytes(DATA * 400)
    with serving(tmp_path) as server:
        yield server


def once(fault: str) -> Callable[[Request], str]:
    """The fault at the first request for each range."""
    return lambda request: "" if request.again else fault


def client(server: Server, **options: Any) -> Client:
    return Client(server.url, QUICK.model_copy(update=options))


def test_a_range_is_what_was_asked_for_over_one_connection(small: Server) -> None:
    with client(small) as one:
        assert one.read("data", 5, 300) == DATA[5:300]
        assert one.read("data", 0, 1) == DATA[:1] and one.read_whole("data") == DATA
        assert one.size("data") == len(DATA)
        assert len(one._source._idle) == 1  # type: ignore[union-attr]
    assert {request.agent for request in small.requests} == {http_module.user_agent("test@example.org")}
    assert small.requests[0].agent.startswith("wenhai/") and "(+test@example.org)" in small.requests[0].agent


@pytest.mark.parametrize("fault", ["503", "500", "429:0", "408", "close", "cut:7", "shift", "bare"])
def test_a_passing_failure_is_asked_again(small: Server, fault: str) -> None:
    small.fault = once(fault)
    with client(small) as one:
        assert one.read("data", 10, 200) == DATA[10:200]
    assert len(small.requests) == 2


def test_a_server_that_hangs_is_asked_again(small: Server) -> None:
    small.fault = once("hang")
    with client(small, read_seconds=0.5, attempts=20) as one:
        assert one.read("data", 10, 200) == DATA[10:200]
    assert len(small.requests) >= 2


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("404", "missing"), ("410", "missing"), ("400", "http_400"), ("416", "truncated")],
)
def test_what_is_this_files_own_fault_is_not_asked_again(small: Server, fault: str, kind: str) -> None:
    small.fault = lambda request: fault
    with client(small) as one, pytest.raises(Bad) as caught:
        one.read("data", 10, 200)
    assert caught.value.kind == kind and len(small.requests) == 1


def test_a_file_that_ends_early_is_truncated(small: Server) -> None:
    for end in (len(DATA) + 1, len(DATA) + 5_000):
        with client(small) as one, pytest.raises(Bad, match="the file ends at byte 10,240") as caught:
            one.read("data", 10, end)
        assert caught.value.kind == "truncated"
    with client(small) as one, pytest.raises(Bad) as caught:
        one.read("data", len(DATA), len(DATA) + 1)
    assert caught.value.kind == "truncated"
    assert len(small.requests) == 3


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("403", "refused .*lower --concurrency"),
        ("401", "refused"),
        ("302:http://127.0.0.1:9/elsewhere", "redirects are not followed"),
        ("ignore", "whole files where a range is asked for.*--whole"),
    ],
)
def test_a_server_that_refuses_is_not_asked_again(small: Server, fault: str, words: str) -> None:
    small.fault = lambda request: fault
    with client(small) as one, pytest.raises(ServerGone, match=words):
        try:
            one.read("data", 10, 200)
        except ServerGone:
            one.read("data", 0, 1)
    assert len(small.requests) == 1
    small.fault = lambda request: ""
    with client(small) as one:
        assert one.read("data", 0, 1) == DATA[:1]


def test_a_range_that_never_comes_is_unreachable_while_the_server_answers(small: Server) -> None:
    small.fault = lambda request: "500" if request.start else ""
    with client(small) as one:
        with pytest.raises(Bad, match="500") as caught:
            one.read("data", 10, 200)
        assert caught.value.kind == "unreachable"
        assert one.read("data", 0, 9) == DATA[:9]
    assert [(request.start, request.end) for request in small.requests] == [(10, 200)] * 4 + [(0, 1), (0, 9)]


def test_a_server_that_answers_nothing_is_gone(small: Server) -> None:
    small.fault = lambda request: "503"
    with (
        client(small) as one,
        pytest.raises(ServerGone, match=r"does not answer \(503.*4 attempts.*finished work is kept"),
    ):
        try:
            one.read("data", 10, 200)
        except ServerGone:
            one.read("data", 0, 1)
    assert len(small.requests) == 4 + client_module.PROBES


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        with Client(f"http://127.0.0.1:{held.getsockname()[1]}/", QUICK) as one, pytest.raises(ServerGone):
            one.read("data", 0, 1)


def test_retry_after_silences_all_threads_of_a_client(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    now, waited = 100.0, 0.0

    def wait(seconds: float) -> None:
        nonlocal now, waited
        now, waited = now + seconds, waited + seconds

    small.fault = lambda request: "503:30" if request.number == 1 else ""
    with client(small) as one:
        monkeypatch.setattr(client_module, "time", SimpleNamespace(monotonic=lambda: now))
        monkeypatch.setattr(one._left, "wait", wait)
        assert one.read("data", 0, 9) == DATA[:9]
        assert waited == 30.0 and one._silent_until == 130.0  # what every other thread waits for, too


def test_a_server_that_wants_to_be_left_alone_for_long_is(small: Server) -> None:
    small.fault = lambda request: "429:7200"
    with client(small) as one, pytest.raises(ServerGone, match=r"left alone for 7,200 s.*lower --concurrency"):
        one.read("data", 0, 9)
    assert len(small.requests) == 1


def test_pauses_grow_to_a_limit(small: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    small.fault = lambda request: "503"
    with client(small, attempts=6, backoff_seconds=1.0, max_backoff_seconds=5.0) as one:
        monkeypatch.setattr(one._left, "wait", lambda seconds: waited.append(seconds))
        with pytest.raises(ServerGone):
            one.read("data", 0, 9)
    pauses = [seconds for seconds in waited if seconds]
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, [1, 2, 4, 5, 5], strict=True))


def test_leaving_ends_the_pauses(small: Server) -> None:
    small.fault = lambda request: "503"
    began = threading.Event()
    caught: list[BaseException] = []
    one = client(small, backoff_seconds=600.0, max_backoff_seconds=600.0)

    def read() -> None:
        began.set()
        try:
            one.read("data", 0, 9)
        except ServerGone as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    began.wait()
    one.leave()
    thread.join(timeout=60)
    assert not thread.is_alive() and "has ended" in str(caught[0])


@pytest.mark.parametrize(
    "path", ["../etc/passwd", "a/../b", "/etc/passwd", "http://evil.example/", "//evil.example/x", "a b", "a?b", "a#b",
             "a%2e",
             "a\r\nHost: b", "", "a//b", "文", "a\\b", "a@b", "x" * 2000, "./a", "a/."],
)  # fmt: skip
def test_no_path_leads_elsewhere(small: Server, path: str) -> None:
    assert not is_path(path)
    with client(small) as one, pytest.raises(Bad) as caught:
        one.read(path, 0, 9)
    assert caught.value.kind == "place" and not small.requests


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"])
def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    """In its head and in its body: each byte takes half the time that a silence may."""
    now = 0.0

    def readinto(buffer: memoryview) -> int:
        nonlocal now, head
        now += 30.0
        size = min(len(buffer), max(1, len(head)))
        buffer[:size], head = (head or b"H")[:size], head[size:]
        return size

    monkeypatch.setattr(http_module, "time", SimpleNamespace(monotonic=lambda: now))
    raw = SimpleNamespace(readinto=readinto, close=lambda: None)
    dripping = http_module._Answer(QUICK, SimpleNamespace(makefile=lambda *_, **__: raw))
    with pytest.raises(Temporary, match="too slow"):
        dripping.begin()
        b"".join(Http(QUICK)._blocks(dripping, 9_999_999))
    assert now <= 150


@pytest.mark.parametrize(
    ("start", "again", "words"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "does not end"),
        (b"", b"x" * 1000, "LineTooLong"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", "HTTPException"),
        (b"HTTP/1.1 206 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n", "how long the file is"),
    ],
)
def test_an_answer_without_end_ends(start: bytes, again: bytes, words: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(start)
            while True:
                connection.sendall(again * 100)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with listener, pytest.raises((Temporary, ServerGone), match=words):
        http = Http(QUICK)
        http.read(f"http://127.0.0.1:{listener.getsockname()[1]}/a", 0, 9)
    thread.join(60)
    assert not thread.is_alive()


def test_a_kept_connection_that_the_server_closed_is_opened_again(small: Server) -> None:
    with client(small, attempts=1) as one:
        assert one.read("data", 0, 9) == DATA[:9]
        [(_, connection)] = one._source._idle  # type: ignore[union-attr]
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert one.read("data", 0, 9) == DATA[:9]


# --------------------------------------------------------------------------------------------------------- downloads


def test_a_download_goes_on_where_it_was_cut(small: Server, tmp_path: Path) -> None:
    small.fault = lambda request: "cut:1500000" if request.number <= 2 else ""
    with client(small, attempts=2) as one:
        assert one.download("large", tmp_path / "copy") == len(DATA) * 400
    assert (tmp_path / "copy").read_bytes() == DATA * 400
    assert [request.start for request in small.requests] == [0, 1_500_000, 3_000_000]


def test_a_server_that_cannot_resume_gives_the_file_from_its_beginning(small: Server, tmp_path: Path) -> None:
    small.fault = lambda request: "cut:100000" if request.number == 1 else "ignore"
    with client(small) as one:
        assert one.download("large", tmp_path / "copy") == len(DATA) * 400
    assert (tmp_path / "copy").read_bytes() == DATA * 400


def test_a_file_for_which_there_is_no_room_is_not_begun(
    small: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "free_space", lambda folder: Free(len(DATA) * 400 + 9, 10, None))
    with client(small) as one:
        with pytest.raises(DiskError, match="finished work is kept"):
            one.download("large", tmp_path / "copy")
        assert (tmp_path / "copy").stat().st_size == 0
        assert one.download("data", tmp_path / "copy") == len(DATA)


def test_a_download_that_creeps_ends(small: Server, tmp_path: Path) -> None:
    small.fault = lambda request: "cut:100"
    with client(small) as one, pytest.raises((ServerGone, Bad)):
        one.download("large", tmp_path / "copy")
    assert len(small.of("large")) <= 4 + client_module.PROBES


def test_a_file_that_changes_meanwhile_is_begun_anew(small: Server, tmp_path: Path) -> None:
    def fault(request: Request) -> str:
        if request.number == 2:
            (small.folder / "large").write_bytes(DATA[::-1] * 300)
        return "cut:100000" if request.number == 1 else ""

    small.fault = fault
    with client(small) as one:
        assert one.download("large", tmp_path / "copy") == len(DATA) * 300
    assert (tmp_path / "copy").read_bytes() == DATA[::-1] * 300


def test_a_folder_answers_alike(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    with Client(str(tmp_path), QUICK) as one:
        assert one.read("data", 5, 300) == DATA[5:300] and one.size("data") == len(DATA)
        assert one.download("data", tmp_path / "copy") == len(DATA) and (tmp_path / "copy").read_bytes() == DATA
        for path, start, kind in (("none", 0, "missing"), ("data", len(DATA) - 2, "truncated"), ("../x", 0, "place")):
            with pytest.raises(Bad) as caught:
                one.read(path, start, start + 9)
            assert caught.value.kind == kind

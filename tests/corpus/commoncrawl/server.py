"""A web server on loopback that serves a folder by ranges, and misbehaves as it is told."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Request:
    """What was asked for; `number` counts the requests from 1, and `again` those for the same range of the same
    file."""

    method: str
    path: str
    start: int
    end: int | None  # None: to the end
    number: int
    again: int
    agent: str


Fault = Callable[[Request], str]  # "": answer properly; else one of Handler.misbehave's


@dataclass
class Server:
    """Its address, what it was asked for, and what it does wrong."""

    folder: Path
    fault: Fault = lambda request: ""
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)  # somebody waits at the gate
    release: threading.Event = field(default_factory=threading.Event)  # opens the gate
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, suffix: str) -> list[Request]:
        """GET requests for paths that end so."""
        return [one for one in self.requests if one.method == "GET" and one.path.endswith(suffix)]


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """A server for the time of a block."""
    server = Server(folder)
    handler = type("BoundHandler", (Handler,), {"served": server})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_address[1]}/"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        listener.shutdown()
        listener.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """Ranges, HEAD, keep-alive."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement
    served: Server

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._do("HEAD")

    def do_GET(self) -> None:
        self._do("GET")

    def _do(self, method: str) -> None:
        served, asked = self.served, RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        end = int(asked[2]) + 1 if asked and asked[2] else None
        with served.lock:
            same = [one for one in served.requests if (one.path, one.start, one.end) == (self.path, start, end)]
            agent = self.headers.get("User-Agent", "")
            request = Request(method, self.path, start, end, len(served.requests) + 1, len(same), agent)
            served.requests.append(request)
            fault = served.fault(request)
        path = served.folder / self.path.lstrip("/")
        if not path.is_file():
            self._answer(404, b"no such file")
            return
        data = path.read_bytes()
        if fault == "gate":
            served.reached.set()
            served.release.wait(300)
            fault = ""
        self._misbehave(fault, data, asked is not None, start, len(data) if end is None else min(end, len(data)))

    def _misbehave(self, fault: str, data: bytes, ranged: bool, start: int, end: int) -> None:
        name, _, value = fault.partition(":")
        if name.isdigit():
            headers = {"Location": value} if name.startswith("3") else {"Retry-After": value} if value else {}
            self._answer(int(name), b"sorry", headers)
        elif name == "close":
            self.close_connection = True
        elif name == "hang":
            self.served.release.wait(300)
            self.close_connection = True
        elif name == "ignore":
            self._answer(200, data)
        elif name == "flip":
            middle = (start + end) // 2
            changed = data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]
            self._ranged(changed, ranged, start, end)
        elif name == "cut":
            self._ranged(data, ranged, start, end, sent=int(value or "10"))
        elif name == "shift":
            self._ranged(data, ranged, start + 1, end + 1)
        elif name == "bare":
            self._answer(206, data[start:end])
        else:
            self._ranged(data, ranged, start, end)

    def _ranged(self, data: bytes, ranged: bool, start: int, end: int, sent: int | None = None) -> None:
        if not ranged:
            self._answer(200, data, sent=sent)
        elif start >= len(data):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        else:
            self._answer(206, data[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}, sent)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if sent is None else body[:sent])
        if sent is not None and sent < len(body):
            self.close_connection = True

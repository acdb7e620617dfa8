"""A proxy on loopback with weather, before an S3 server that speaks plain HTTP.

    with running(Weather(slow_down=0.02), "http://127.0.0.1:5000") as proxy: ...  # AWS_ENDPOINT_URL=proxy.address

Refusals are S3's own XML; a change whose connection is reset has been made; a body that is cut ends in its middle.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tools.weather.faults import CHANGES, Weather

ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
ANSWERS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "internal_error": (500, "InternalError", "We encountered an internal error. Please try again."),
    "ended": (400, "ExpiredToken", "The provided token has expired."),
}
BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "date", "server"}
LINGER_NOT = struct.pack("ii", 1, 0)  # a close is a reset then


@contextmanager
def running(weather: Weather, server: str) -> Iterator[Proxy]:
    """Stand before `server` (a URL)."""
    proxy = Proxy(("127.0.0.1", 0), _Handler)
    proxy.weather, proxy.upstream = weather, urlsplit(server).netloc
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class Proxy(ThreadingHTTPServer):
    """The address to use instead of the server's, and the weather, which may change."""

    daemon_threads = True
    block_on_close = False  # connections are kept alive by their clients
    weather: Weather
    upstream: str

    @property
    def address(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client has hung up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Proxy

    def do_any(self) -> None:
        body = self._body()
        kind, path = self._kind()
        fault = self.server.weather.request(kind, path)
        if fault in ANSWERS:
            status, code, message = ANSWERS[fault]
            self._answer(status, [("Content-Type", "application/xml")], ERROR.format(code, message).encode())
            return
        if fault == "reset" and kind not in CHANGES:
            self._hang_up()
            return
        status, headers, data = self._ask(body)
        if fault == "reset":
            self._hang_up()
        elif fault == "cut" and data:
            self._answer(status, headers, data, len(data) // 2)
            self._hang_up()
        else:
            self._answer(status, headers, data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: `Weather.log` counts."""

    def _kind(self) -> tuple[str, str]:
        parts = urlsplit(self.path)
        path = unquote(parts.path).lstrip("/")
        if self.command == "GET" and ("list-type=" in parts.query or "uploads" in parts.query):
            return "list", path
        if self.command == "PUT" and "x-amz-copy-source" in self.headers:
            return "copy", path
        kinds = {"GET": "range" if "Range" in self.headers else "get", "HEAD": "head", "DELETE": "delete", "PUT": "put"}
        return kinds.get(self.command, "delete" if parts.query.startswith("delete") else "put"), path

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.server.upstream, timeout=300)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in BY_HOP}
            connection.request(self.command, self.path, body or None, headers | {"Content-Length": str(len(body))})
            answer = connection.getresponse()
            kept = [pair for pair in answer.getheaders() if pair[0].lower() not in BY_HOP - {"content-length"}]
            data = answer.read()
            if self.command != "HEAD":
                kept = [pair for pair in kept if pair[0].lower() != "content-length"]
            return answer.status, kept, data
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        elif not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:sent])

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.connection.close()

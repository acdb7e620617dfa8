"""What a host of the fake web may say: a well-formed answer, or a script that writes bytes to the connection itself."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import brotli  # type: ignore[import-untyped]

HTML = "text/html; charset=utf-8"
REASONS = {200: "OK", 204: "No Content", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified"}
CHUNK_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: host without port, target as on the request line, header names in lower case."""

    host: str
    target: str
    headers: Mapping[str, str]
    round: int  # of the site's history, from 1: some pages are other ones in the second
    times: int  # how often this host was asked for this target before


@dataclass(frozen=True, slots=True)
class Answer:
    """A well-formed answer. `body` is what the reader shall have in the end; `coding` is how it travels."""

    body: bytes = b""
    status: int = 200
    content_type: str | None = HTML
    headers: tuple[tuple[str, str], ...] = ()
    coding: str = ""  # gzip, deflate, raw-deflate or br, if the reader accepts it
    chunked: bool = False
    close: bool = False  # no length: the end of the connection is the end of the body

    def encode(self, asked: Asked) -> bytes:
        """Head and body as bytes."""
        coding = self.coding if _accepts(asked.headers.get("accept-encoding", ""), self.coding) else ""
        body = _CODERS[coding](self.body)
        headers = [] if self.content_type is None else [("Content-Type", self.content_type)]
        headers += self.headers
        if coding:
            headers.append(("Content-Encoding", "deflate" if coding == "raw-deflate" else coding))
        if self.chunked:
            headers.append(("Transfer-Encoding", "chunked"))
            pieces = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        elif not self.close and self.status not in (204, 304):
            headers.append(("Content-Length", str(len(body))))
        if self.close:
            headers.append(("Connection", "close"))
        return head(self.status, headers) + body


def head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Status line and header fields; values may hold anything."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Whatever')}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


class Wire:
    """The connection as a fault sees it. Every method raises ConnectionError once the other side has gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Write, and wait until the other side takes it."""
        if self._reader.at_eof():
            raise ConnectionResetError("the other side has gone")
        self._writer.write(data)
        await self._writer.drain()

    async def pause(self, seconds: float | None = None) -> None:
        """Wait for so long, None: until the other side goes."""
        try:
            async with asyncio.timeout(seconds):
                if not await self._reader.read(1):
                    raise ConnectionResetError("the other side has gone")
        except TimeoutError:
            return

    async def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        tcp: socket.socket = self._writer.get_extra_info("socket")
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Fault = Callable[[Wire], Awaitable[None]]
Reply = Answer | Fault
Computed = Callable[[Asked], Reply]


def page(text: str, encoding: str = "utf-8", **options: object) -> Answer:
    """An HTML answer; `content_type` defaults to one that names the encoding.

    >>> page("学", "gbk").content_type
    'text/html; charset=gbk'
    """
    options.setdefault("content_type", f"text/html; charset={encoding}")
    return Answer(text.encode(encoding, "xmlcharrefreplace"), **options)  # type: ignore[arg-type]


def redirect(location: str, status: int = 302) -> Answer:
    """A redirect; the location goes out as UTF-8."""
    return Answer(b"<a href=#>moved</a>", status, headers=(("Location", location),))


def _accepts(accepted: str, coding: str) -> bool:
    return ("deflate" if coding == "raw-deflate" else coding) in [
        item.split(";")[0].strip() for item in accepted.split(",")
    ]


_CODERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "deflate": zlib.compress,
    "raw-deflate": lambda data: zlib.compress(data, wbits=-15),
    "br": lambda data: bytes(brotli.compress(data, quality=4)),
}

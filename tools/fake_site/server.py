"""The server: one asyncio process, one port, an address of 127.0.0.0/8 for each host, HTTP/1.1 by hand.

Every request is a line of JSON in the log when it comes and another when its answer begins (crawling.py reads them), so
that a test can tell what was fetched, how often, how many connections a host had, and how long it was left alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from tools.fake_site.wire import Answer, Asked, Computed, Wire

BACKLOG = 256
MAX_TRIES = 50  # to find a port that is free on every address
MAX_HEAD_BYTES = 1 << 17


def open_sockets(addresses: Iterable[str], port: int = 0) -> list[socket.socket]:
    """Listening sockets, one an address, all with one port; 0: one that is free on all of them.

    Raises:
        OSError: the port is taken on one of them, or none is free on all.
    """
    addresses = list(addresses)
    for attempt in range(MAX_TRIES):
        with ExitStack() as opened, suppress(OSError) if not port and attempt < MAX_TRIES - 1 else nullcontext():
            sockets: list[socket.socket] = []
            for address in addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                place = (address, sockets[0].getsockname()[1] if sockets else port)
                sockets.append(opened.enter_context(socket.create_server(place, family=family, backlog=BACKLOG)))
            opened.pop_all()
            return sockets
    raise AssertionError("not reached")


class Server:
    """Hosts that answer. `canaries` are addresses at which nobody may ever knock."""

    def __init__(
        self, hosts: Mapping[str, Computed], log: Path, round_number: int = 1, canaries: Iterable[str] = ()
    ) -> None:
        self._hosts = hosts
        self._log = log.open("a", encoding="utf-8")
        self._round = round_number
        self._canaries = frozenset(canaries)
        self._name = f"{os.getpid()}-{time.monotonic_ns()}"  # one log may be of several servers
        self._asked: Counter[tuple[str, str]] = Counter()
        self._open: dict[int, tuple[str, int, asyncio.StreamReader]] = {}
        self._num_connections = 0
        self._num_requests = 0

    async def serve(self, sockets: Iterable[socket.socket], tls: ssl.SSLContext | None = None) -> None:
        """Answer on these sockets from now on."""
        for tcp in sockets:
            await asyncio.start_server(self._connection, sock=tcp, ssl=tls, limit=MAX_HEAD_BYTES)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._num_connections += 1
        number = self._num_connections
        address = writer.get_extra_info("sockname")[0]
        try:
            if address in self._canaries:
                self._write(event="canary", address=address)
            while await self._exchange(number, address, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ssl.SSLError):
            pass  # the other side went, or never spoke HTTP
        except asyncio.CancelledError:
            return  # the server stops
        finally:
            self._open.pop(number, None)
            with suppress(ConnectionError, ssl.SSLError, TimeoutError):
                writer.close()
                await writer.wait_closed()

    async def _exchange(
        self, number: int, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Read one request and answer it; whether the connection goes on."""
        request_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = request_line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        host = headers.get("host", "").rsplit(":", 1)[0].lower()
        for _ in range(3):  # whatever the other side closed before it sent this, the loop has seen by now
            await asyncio.sleep(0)
        port = writer.get_extra_info("sockname")[1]
        self._open[number] = (host, port, reader)
        at_once = sum((name, at) == (host, port) and not other.at_eof() for name, at, other in self._open.values())
        asked = Asked(host, target, headers, self._round, self._asked[host, target])
        self._asked[host, target] += 1
        self._num_requests += 1
        request = self._num_requests
        self._write(
            event="request",
            request=request,
            at=time.monotonic(),
            host=host,
            target=target,
            method=method,
            agent=headers.get("user-agent", ""),
            sent=sorted(headers),
            connection=number,
            at_once=at_once,
            address=address,
            scheme="https" if writer.get_extra_info("ssl_object") else "http",
            port=port,
            round=self._round,
        )
        reply = self._hosts[host](asked) if host in self._hosts else Answer(b"no such host here", 421)
        # Noted before the first byte leaves: the other side can have the last one before this process runs again.
        self._write(event="answered", request=request, at=time.monotonic())
        if not isinstance(reply, Answer):
            await reply(Wire(reader, writer))
            return False
        writer.write(reply.encode(asked))
        await writer.drain()
        return not reply.close and headers.get("connection", "").lower() != "close"

    def _write(self, **fields: Any) -> None:
        self._log.write(json.dumps({"server": self._name, **fields}, ensure_ascii=False) + "\n")
        self._log.flush()

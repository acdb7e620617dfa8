"""A web site of a few pages on loopback, and a crawl of it, here or in a process of its own."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from corpus.__main__ import main
from corpus.crawl.network.fetched import Fetched
from tests.fork_server import ForkServer

CRAWLER = ForkServer("corpus.crawl.session", "corpus.crawl.run")
HTML = (b"Content-Type", b"text/html; charset=utf-8")
CHARACTERS = "子曰学而时习之不亦说乎有朋自远方来乐人知愠君其为也孝弟好犯上者鲜矣作乱未务本立道生仁与巧言令色曾吾日三省身谋忠交信传"


class Answer(NamedTuple):
    """What a path answers."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {"Content-Type": "text/html; charset=utf-8"}


def fetched(status: int = 200, body: bytes = b"", *headers: tuple[bytes, bytes], **changes: Any) -> Fetched:
    """An answer as the download handler gives it, a page of HTML unless `headers` say otherwise."""
    plain = Fetched(
        *(status, "OK", "HTTP/1.1", headers or (HTML,), body, len(body), "192.0.2.7", 0.1, "2026-11-22T01:02:03Z"),
        request_head=b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    )
    return replace(plain, **changes)


Handler = Callable[[str, Mapping[str, str]], Answer]  # of (path with query, request headers)


def page(number: object, links: Sequence[str] = (), head: str = "") -> Answer:
    """A Chinese page."""
    anchors = "".join(f'<p><a href="{link}">往 {link}</a></p>' for link in links)
    draw = random.Random(str(number))
    text = "".join("".join(draw.choices(CHARACTERS, k=draw.randint(5, 15))) + "。" for _ in range(20))
    return Answer(f"<html><head><title>第{number}页</title>{head}</head><body><p>{text}</p>{anchors}</body>".encode())


def tree(pages: int, fan_out: int = 4) -> dict[str, Answer]:
    """Pages `/0` ... that link to the next ones of a tree, of which `/0` is the root."""
    return {
        f"/{number}": page(
            number, [f"/{child}" for child in range(number * fan_out + 1, (number + 1) * fan_out + 1) if child < pages]
        )
        for number in range(pages)
    }


@dataclass
class Site:
    """A running server: its port and the requests it got, in order."""

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)  # host, path with query

    def url(self, path: str, host: str = "site.test") -> str:
        """The URL of a path."""
        return f"http://{host}:{self.port}{path}"

    def paths(self) -> list[str]:
        """The paths asked for, without robots.txt."""
        return [path for _, path in self.requests if path != "/robots.txt"]


@contextmanager
def serve(answers: Mapping[str, Answer] | Handler) -> Iterator[Site]:
    """Serve answers by path (others are 404), or by a function, under any host name."""
    lock = threading.Lock()

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body in one packet: two of them meet Nagle's algorithm and a late ACK

        def do_GET(self) -> None:
            with lock:
                site.requests.append((self.headers.get("Host", "").partition(":")[0], self.path))
            if callable(answers):
                answer = answers(self.path, self.headers)  # type: ignore[arg-type]
            else:
                answer = answers.get(self.path, Answer(b"", 404))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if answer.status != 304:
                self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    site = Site(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def command(
    site: Site, out: Path, *words: str, seeds: Sequence[str] = ("/0",), hosts: Sequence[str] = ("site.test",)
) -> list[str]:
    """The words of a crawl of the site, without delays."""
    network = ["--allow-address", "127.0.0.0/8", "--port", str(site.port)]
    for host in hosts:
        network += ["--resolve", f"{host}=127.0.0.1"]
    fast = ["--delay", "0", "--set", "crawl.politeness.latency_factor=0", "--set", "crawl.checkpoint_seconds=0.2"]
    urls = [site.url(path) if path.startswith("/") else path for path in seeds]
    return ["crawl", "--out", str(out), "--contact", "me@example.org", "--seeds", *urls, *network, *fast, *words]


class Child:
    """`python -m corpus WORDS` in a process of its own, forked from one that has imported the crawler: that takes
    longer than a small crawl. `file_bytes`: no file may be larger."""

    def __init__(self, words: Sequence[str], file_bytes: int | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self._said = Path(file.name)
        self._process = context.Process(target=_run, args=(list(words), str(self._said), file_bytes))
        CRAWLER.start(self._process)
        assert self._process.pid is not None
        self.pid = self._process.pid

    def wait(self) -> tuple[int, str]:
        """Its exit code and what it said on stderr."""
        self._process.join(150)
        said = self._said.read_text("utf-8")
        self._said.unlink()
        code = self._process.exitcode
        assert code is not None, said
        self._process.close()
        return code, said


def _run(words: list[str], said: str, file_bytes: int | None) -> None:
    fd = os.open(said, os.O_WRONLY)
    os.dup2(fd, 2)
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    code = main(words)
    sys.stderr.flush()
    os._exit(code)


def crawl(site: Site, out: Path, *words: str, code: int = 0, **options: Sequence[str]) -> str:
    """Run a crawl to its end, check its exit code, and return what it said."""
    return run(*command(site, out, *words, **options), code=code)


def run(*words: str, code: int = 0) -> str:
    """`python -m corpus WORDS` in this process: what it said on stderr, its exit code checked."""
    with redirect_stderr(io.StringIO()) as said:
        found = main(list(words))
    assert found == code, said.getvalue()
    return said.getvalue()

"""The whole fake web: its hosts, where to reach them, how to crawl it, and the process that serves it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tools.fake_site import chinese, faults, many, redirects, robots, tls, traps
from tools.fake_site.server import Server, open_sockets
from tools.fake_site.site import Web

NETWORK = "127.1.0.0/16"
CONTACT = "owner@wenhai.test"
MIN_DELAY, MAX_DELAY = 0.02, 0.3  # seconds
KINDS = ("chinese", "robots", "traps", "faults", "redirects")


def build(
    port: int,
    kinds: Sequence[str] = KINDS,
    data: str | Path | None = None,
    round_number: int = 1,
    pages: int = 0,
    tls_folder: str | Path | None = None,
    tls_port: int = 0,
    large: bool = False,
) -> Web:
    """All hosts of these kinds. Equal arguments make equal webs.

    Args:
        port: of all hosts.
        kinds: of `KINDS`.
        data: a folder of folders of HTML pages.
        round_number: 2: as the web is some time later.
        pages: so many plain pages more, for measurements of speed.
        tls_folder: where certificates stand; without it no host speaks TLS.
        tls_port: of hosts that do.
        large: those plain pages are as heavy as real ones.
    """
    web = Web(port, round_number)
    builders = {"robots": robots.build, "traps": traps.build, "faults": faults.build, "redirects": redirects.build}
    for kind in kinds:
        if kind == "chinese":
            chinese.build(web, Path(data) if data else None)
        else:
            builders[kind](web)
    if pages:
        many.build(web, pages, large)
    if tls_folder:
        web.tls_port, web.ca_file = tls_port, str(Path(tls_folder, tls.CA_NAME).resolve())
        tls.build(web)
    return web


def addresses(web: Web) -> dict[str, str]:
    """An address for each host: 127.1.0.1 and on."""
    return {host: f"127.1.{number // 250}.{number % 250 + 1}" for number, host in enumerate(web.sites)}


def crawl_config(web: Web) -> dict[str, Any]:
    """Section [crawl] of a recipe for this web: deadlines of seconds and small budgets, so that a crawl ends soon."""
    trusted = {"ca_file": web.ca_file} if web.ca_file else {}
    return {
        "seeds": web.seeds,
        "contact": CONTACT,
        "follow": "anywhere",
        "checkpoint_seconds": 0.5,
        "network": {
            "ports": [web.port, *([web.tls_port] if web.tls_port else [])],
            "allow_addresses": [NETWORK],
            "resolve": addresses(web) | web.fixed,
            "connect_seconds": 4.0,
            "first_byte_seconds": 4.0,
            "total_seconds": 6.0,
            **trusted,
        },
        "politeness": {
            "min_delay_seconds": MIN_DELAY,
            "max_delay_seconds": MAX_DELAY,
            "max_crawl_delay_seconds": MAX_DELAY,
            "latency_factor": 0.0,
            "max_retry_after_seconds": 5.0,
            "max_attempts": 2,
            "max_host_failures": 8,
        },
        "budget": {
            "max_pages_per_host": 60,
            "max_depth": 12,
            "max_hosts_per_domain": 10,
            "max_urls_per_pattern": 40,
            "max_query_patterns": 8,
            "max_repeats": 5,
        },
    }


def serve(options: dict[str, Any], log: Path, port: int = 0, until_eof: bool = False) -> None:
    """Serve, if asked until standard input ends. The first line of standard output is JSON: the ports."""
    plan = build(0, **options)  # which hosts there are does not depend on ports
    hosts = addresses(plan)
    canaries = [address for address in redirects.CANARIES if _can_bind(address)]
    sockets = open_sockets([*hosts.values(), *canaries], port)
    contexts = tls.make_certificates(Path(options["tls_folder"]), plan.sites) if options.get("tls_folder") else {}
    secure = dict(zip(contexts, open_sockets([hosts[host] for host in contexts]), strict=True))
    ports = {
        name: tcp[0].getsockname()[1] for name, tcp in (("port", sockets), ("tls_port", [*secure.values()])) if tcp
    }
    web = build(**options, **ports)
    responders = {host: site.respond for host, site in web.sites.items()}
    server = Server(responders, log, options.get("round_number", 1), canaries)

    async def run() -> None:
        await server.serve(sockets)
        for host, tcp in secure.items():
            await server.serve([tcp], contexts[host])
        print(json.dumps(ports), flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read) if until_eof else await asyncio.Event().wait()

    asyncio.run(run())


def _can_bind(address: str) -> bool:
    with suppress(OSError):
        for tcp in open_sockets([address]):
            tcp.close()
        return True
    return False


@contextmanager
def start(log: Path, port: int = 0, **options: Any) -> Iterator[Web]:
    """Serve a web (`build`'s options) in a process of its own, and give what is served.

    Raises:
        RuntimeError: the server did not start.
    """
    text = json.dumps(options, default=str)
    command = [sys.executable, "-m", "tools.fake_site", "--port", str(port), "--log", str(log.resolve())]
    command += ["--options", text, "--until-eof"]
    folder = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the fake site did not start (exit code {process.wait()})")
            yield build(**options, **json.loads(line))
        finally:
            process.stdin.close()
            process.wait()

"""Certificates are verified: the chain, the name, the dates."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.engine.errors import UsageError
from tests.corpus.crawl.network.raw_server import LOOPBACK, downloader, loopback, outcome, response, serve
from tools.fake_site.tls import CA_NAME, EXPIRED, GOOD, OTHER_NAME, SELF_SIGNED, make_certificates

HOSTS = {kind: f"tls-{kind}.test" for kind in (GOOD, OTHER_NAME, SELF_SIGNED, EXPIRED)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def contexts(folder: Path) -> dict[str, ssl.SSLContext]:
    """Of a server for each host; the authority that signed most of their certificates stands in the folder."""
    return make_certificates(folder, HOSTS.values())


def fetch(context: ssl.SSLContext, ca_file: Path | None, host: str = HOSTS[GOOD]) -> Fetched | FetchError:
    async def run() -> Fetched | FetchError:
        async with serve(response(b"over TLS"), context=context) as server:
            trusted = None if ca_file is None else str(ca_file)
            network = loopback(server, ca_file=trusted, resolve={host: "127.0.0.1"}, allow_addresses=LOOPBACK)
            async with downloader(network) as handler:
                return await outcome(handler, server.url(host=host, scheme="https"))

    return asyncio.run(run())


def refused(result: Fetched | FetchError) -> str:
    assert isinstance(result, FetchError) and (result.kind, result.retry) == ("tls", False), result
    return result.detail


def test_the_configured_authority_is_trusted_and_one_that_nobody_knows_is_not(
    folder: Path, contexts: dict[str, ssl.SSLContext]
) -> None:
    result = fetch(contexts[HOSTS[GOOD]], folder / CA_NAME)
    assert isinstance(result, Fetched) and (result.body, result.address) == (b"over TLS", "127.0.0.1")
    assert "CERTIFICATE_VERIFY_FAILED" in refused(fetch(contexts[HOSTS[GOOD]], None))


@pytest.mark.parametrize(
    ("kind", "reason"), [(OTHER_NAME, "mismatch"), (SELF_SIGNED, "CERTIFICATE_VERIFY_FAILED"), (EXPIRED, "expired")]
)
def test_a_wrong_certificate_is_refused(
    folder: Path, contexts: dict[str, ssl.SSLContext], kind: str, reason: str
) -> None:
    assert reason in refused(fetch(contexts[HOSTS[kind]], folder / CA_NAME, HOSTS[kind]))


def test_a_server_without_tls_is_refused() -> None:
    async def run() -> Fetched | FetchError:
        answer = response(b"plain", status="400 Bad Request")
        async with serve(answer, speaks_first=True) as server, downloader(loopback(server)) as handler:
            return await outcome(handler, server.url(scheme="https"))

    assert "WRONG_VERSION_NUMBER" in refused(asyncio.run(run()))


def test_certificates_that_cannot_be_read(tmp_path: Path, contexts: dict[str, ssl.SSLContext]) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(UsageError, match=f"ca_file: .*{name} cannot be read"):
            fetch(contexts[HOSTS[GOOD]], tmp_path / name)

"""Certificates are verified: the chain, the name, the dates."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from corpus.crawl.network.fetched import Fetched, FetchError
from corpus.engine.errors import UsageError
from tests.corpus.crawl.network.raw_server import LOOPBACK, downloader, loopback, outcome, response, serve

DAY = datetime.timedelta(days=1)
NAME = "name.example"


class Authority:
    """A certificate authority of a test."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._sign(self._name, self._key.public_key(), [], age=DAY, authority=True)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        names: list[x509.GeneralName],
        age: datetime.timedelta,
        authority: bool = False,
    ) -> x509.Certificate:
        begin = datetime.datetime.now(datetime.UTC) - age
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number(), begin, begin + 3 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def context(self, folder: Path, name: str = NAME, age: datetime.timedelta = DAY) -> ssl.SSLContext:
        """Of a server whose certificate this authority signed."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = self._sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            names[: 1 + (name == NAME)],
            age,
        )
        path = folder / "server.pem"
        plain = serialization.NoEncryption()
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def file(self, folder: Path) -> str:
        """What a client trusts."""
        path = folder / "authority.pem"
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)


def fetch(context: ssl.SSLContext, ca_file: str | None, host: str = NAME) -> Fetched | FetchError:
    async def run() -> Fetched | FetchError:
        async with serve(response(b"over TLS"), context=context) as server:
            network = loopback(server, ca_file=ca_file, resolve={NAME: "127.0.0.1"}, allow_addresses=LOOPBACK)
            async with downloader(network) as handler:
                return await outcome(handler, server.url(host=host, scheme="https"))

    return asyncio.run(run())


@pytest.mark.parametrize("host", [NAME, "127.0.0.1"])
def test_the_configured_authority_is_trusted(tmp_path: Path, host: str) -> None:
    authority = Authority()
    result = fetch(authority.context(tmp_path), authority.file(tmp_path), host)
    assert isinstance(result, Fetched) and (result.body, result.address) == (b"over TLS", "127.0.0.1")


def refused(result: Fetched | FetchError) -> str:
    assert isinstance(result, FetchError) and (result.kind, result.retry) == ("tls", False), result
    return result.detail


def test_an_authority_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in refused(fetch(Authority().context(tmp_path), None))
    assert "CERTIFICATE_VERIFY_FAILED" in refused(fetch(Authority().context(tmp_path), Authority().file(tmp_path)))


def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.context(tmp_path, name="other.example")
    for host in (NAME, "127.0.0.1"):
        assert "mismatch" in refused(fetch(context, authority.file(tmp_path), host))


@pytest.mark.parametrize(("age", "reason"), [(5 * DAY, "expired"), (-2 * DAY, "not yet valid")])
def test_a_certificate_of_other_days_is_refused(tmp_path: Path, age: datetime.timedelta, reason: str) -> None:
    authority = Authority()
    assert reason in refused(fetch(authority.context(tmp_path, age=age), authority.file(tmp_path)))


def test_a_server_without_tls_is_refused() -> None:
    async def run() -> Fetched | FetchError:
        answer = response(b"plain", status="400 Bad Request")
        async with serve(answer, speaks_first=True) as server, downloader(loopback(server)) as handler:
            return await outcome(handler, server.url(scheme="https"))

    assert "WRONG_VERSION_NUMBER" in refused(asyncio.run(run()))


def test_certificates_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(UsageError, match=f"ca_file: .*{name} cannot be read"):
            fetch(Authority().context(tmp_path), str(tmp_path / name))

"""Hosts that speak TLS, with certificates that are right and wrong; all made anew for each folder."""

from __future__ import annotations

import ssl
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tools.fake_site.expected import FAULTY, REDIRECTED, Expected, digest_of
from tools.fake_site.site import Web, article
from tools.fake_site.wire import redirect

GOOD, OTHER_NAME, SELF_SIGNED, EXPIRED, BROKEN = KINDS = ("good", "other-name", "self-signed", "expired", "plain")
TLS_FATES = ("error:tls", "error:connect", "error:http", "error:timeout", "error:robots_unreachable", "error:host_down")
CA_NAME = "ca.pem"


def build(web: Web) -> None:
    """A host of each kind; one that is only to be had over TLS; one whose plain pages are fine though its TLS is
    not."""
    for kind in KINDS:
        site = web.site(f"tls-{kind}.test")
        secure = f"https://{site.host}:{web.tls_port}/secure.html"
        reply = article(f"secure {kind}")
        site.serve("/secure.html", reply)
        if kind == GOOD:
            fates, digest = frozenset(("fetched",)), digest_of(reply.body)
            web.truth.add(Expected(secure, "allowed", "TLS", fates, digest=digest))
        else:
            web.truth.add(Expected(secure, FAULTY, "TLS: wrong certificates", frozenset(TLS_FATES), 0, 0))
        site.add("/plain.html", article(f"plain {kind}"), "plain pages beside TLS")
        site.add("/moved.html", redirect(secure), "redirects to TLS", REDIRECTED, ("moved",))
        site.add("/", article(site.host, [secure, "/plain.html", "/moved.html"]), "plain pages beside TLS")


def make_certificates(folder: Path, hosts: Collection[str]) -> dict[str, ssl.SSLContext]:
    """Write the authority's certificate (`ca.pem`) and keys into the folder; a context for each host that has one."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    authority = ec.generate_private_key(ec.SECP256R1())

    def certificate(host: str, key: ec.EllipticCurvePrivateKey, kind: str) -> x509.Certificate:
        own = kind == SELF_SIGNED
        until = now - timedelta(days=1) if kind == EXPIRED else now + timedelta(days=30)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(host))
            .issuer_name(name(host if own else "fake authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=60))
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=kind == CA_NAME, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if kind != CA_NAME:
            alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
            signer = x509.AuthorityKeyIdentifier.from_issuer_public_key((key if own else authority).public_key())
            builder = builder.add_extension(alternative, critical=False).add_extension(signer, critical=False)
        else:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        return builder.sign(key if own else authority, hashes.SHA256())

    def write(path: Path, signed: x509.Certificate, key: ec.EllipticCurvePrivateKey | None = None) -> None:
        data = signed.public_bytes(serialization.Encoding.PEM)
        if key is not None:
            plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            data += key.private_bytes(*plain)
        path.write_bytes(data)

    folder.mkdir(parents=True, exist_ok=True)
    write(folder / CA_NAME, certificate("fake authority", authority, CA_NAME))
    contexts = {}
    for kind in KINDS:
        host = f"tls-{kind}.test"
        if host not in hosts or kind == BROKEN:
            continue
        key, path = ec.generate_private_key(ec.SECP256R1()), folder / f"{host}.pem"
        write(path, certificate("somebody-else.test" if kind == OTHER_NAME else host, key, kind), key)
        contexts[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[host].load_cert_chain(path)
    return contexts

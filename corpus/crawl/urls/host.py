"""Hosts of URLs: names in ASCII, numbers as the addresses they stand for (url.spec.whatwg.org, section 3.5)."""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import idna

MAX_HOST_BYTES = 253  # RFC 1035
MAX_LABEL_BYTES = 63

_FORBIDDEN_IN_HOST = re.compile(r"[\x00-\x20#%/:<>?@\[\\\]^|\x7f\"`{}']")
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0[xX][0-9A-Fa-f]*)$")
_BARE_0X = re.compile(r"(?<![^.])0[xX](?=\.|$)")  # zero by the URL standard, nothing to the C library


class BadUrl(ValueError):
    """Not a URL to fetch: `kind` is scheme, relative, userinfo, host, port or length."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


@lru_cache(maxsize=16_384)
def normal_host(host: str) -> str:
    """A host in ASCII and lower case: a domain, an IPv4 address, or an IPv6 address in brackets.

    >>> normal_host("Ｗeb。中国."), normal_host("0300.168.257"), normal_host("[::FFFF:1.2.3.4]")
    ('web.xn--fiqs8s', '192.168.1.1', '[::ffff:102:304]')

    Raises:
        BadUrl: no host.
    """
    if host.startswith("["):
        return _ipv6(host)
    if "%" in host:
        host = unquote_to_bytes(host).decode("utf-8", "replace")
    host = _ascii(host).removesuffix(".")
    if not host or _FORBIDDEN_IN_HOST.search(host):
        raise BadUrl("host", "none" if not host else "characters that no host has")
    if _ENDS_IN_NUMBER.search(host):
        return _ipv4(host)
    if len(host) > MAX_HOST_BYTES or any(not 0 < len(label) <= MAX_LABEL_BYTES for label in host.split(".")):
        raise BadUrl("host", "a label or the whole is empty or too long")
    return host


def _ascii(host: str) -> str:
    """UTS 46 ToASCII as the URL standard asks for it: not transitional, hyphens and lengths not checked.

    What is ASCII is a name that DNS may know, so punycode is not looked into.
    """
    if host.isascii():
        return host.lower()
    if len(host) > MAX_HOST_BYTES:
        raise BadUrl("host", "too long")
    try:
        mapped = idna.uts46_remap(host, std3_rules=False, transitional=False)
        return ".".join(map(_ascii_label, mapped.split(".")))
    except ValueError as error:  # IDNAError and UnicodeError are; an unassigned character before a joiner is a bare one
        raise BadUrl("host", "characters that no host has") from error


def _ascii_label(label: str) -> str:
    if label.isascii():
        return label
    idna.check_initial_combiner(label)
    if (
        label.startswith("xn--")
        or not idna.check_bidi(label)
        or any(
            character in "\u200c\u200d" and not idna.valid_contextj(label, place)
            for place, character in enumerate(label)
        )
    ):
        raise UnicodeError("what is no label")
    return "xn--" + label.encode("punycode").decode("ascii")


def _ipv6(host: str) -> str:
    try:
        if not host.endswith("]") or "%" in host:
            raise ValueError
        address = ipaddress.IPv6Address(host[1:-1])
    except ValueError as error:
        raise BadUrl("host", "brackets without an IPv6 address") from error
    if address.ipv4_mapped:  # newer Pythons write its last 32 bits in decimal
        return f"[::ffff:{int(address) >> 16 & 0xFFFF:x}:{int(address) & 0xFFFF:x}]"
    return f"[{address.compressed}]"


def _ipv4(host: str) -> str:
    """The address that up to four numbers in base 8, 10 or 16 stand for; the last one fills the bytes that are left."""
    try:
        return socket.inet_ntoa(socket.inet_aton(_BARE_0X.sub("0", host)))
    except (OSError, UnicodeError) as error:
        raise BadUrl("host", "numbers that are no IPv4 address") from error


def name_of(host: str) -> str:
    """A host without its port.

    >>> name_of("a.cn:8080"), name_of("[::1]:80"), name_of("[::1]")
    ('a.cn', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and "]" not in port else host


def is_address(name: str) -> bool:
    """Whether a normalised host without port is an address."""
    return name.startswith("[") or _ENDS_IN_NUMBER.search(name) is not None

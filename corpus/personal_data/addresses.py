"""Addresses: e-mail, public IPv4 and IPv6."""

from __future__ import annotations

import ipaddress
import re

from corpus.personal_data.window import Span, Window, is_in_url

_LOCAL_PART = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-"
MAX_LOCAL_CHARS = 64  # of an address, before the at sign (RFC 5321)
_AT_DOMAIN = re.compile(
    r"(?: ?[(\[{<] ?[Aa][Tt] ?[)\]}>] ?|@| @ )"
    r"((?:[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.| ?[(\[{] ?[Dd][Oo][Tt] ?[)\]}] ?)){1,6}([A-Za-z]{2,24}))(?![A-Za-z0-9@])"
)
_FILE_ENDINGS = frozenset(
    "png jpg jpeg gif webp svg ico css js ts jsx tsx json html htm xml txt md py java cpp php sh conf cfg ini log "
    "service socket "
    "timer target mount slice device path scope swap automount".split()
)
_NO_PERSON = frozenset({"git", "hg", "svn"})  # git@github.com:owner/repository


def email(text: str, view: Window) -> Span | None:
    """An e-mail address whose at sign, or bracketed "at", stands at the place."""
    at = view.at
    if view.text[at - 1 : at] == " " and view.text[at] in "@([{":
        at -= 1
    match = _AT_DOMAIN.match(view.text, at) or _AT_DOMAIN.match(view.text, view.at)
    if match is None or match[2].lower() in _FILE_ENDINGS:
        return None
    before = view.text[max(0, match.start() - MAX_LOCAL_CHARS) : match.start()]
    local = before[len(before.rstrip(_LOCAL_PART)) :].lstrip(".-%")
    start = match.start() - len(local)
    if not local or local.lower() in _NO_PERSON or view.text[max(0, start - 3) : start] == "://":
        return None
    if view.text[match.end() : match.end() + 1] == "/" and is_in_url(text, view.origin + start):
        return None
    return Span(view.origin + start, view.origin + match.end(), "email")


_IPV4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})(?![0-9A-Za-z_]|[./-][0-9])")
_IP_WORD = re.compile(r"(?:[Ii][Pp]|地址|服务器|主机|节点|来自|登录|访问|攻击|[Hh]ost|ping|ssh|from|server)[^\n]{0,8}$")
_VERSION_WORD = re.compile(
    r"(?:版本|版|固件|驱动|升级|更新|补丁|内核|章节|第|[Vv]er(?:sion)?|[Bb]uild|[Rr]elease|OID|[A-Za-z]{2,24})(?:号|到|至|为|是|[ "
    r":_/.-]){0,3}$"
)
_SMALL_OCTET = 32  # section numbers and versions stay below
_RESOLVERS = frozenset(  # public name servers: every reader of a manual meets them
    "1.1.1.1 1.0.0.1 8.8.8.8 8.8.4.4 9.9.9.9 114.114.114.114 114.114.115.115 223.5.5.5 223.6.6.6 119.29.29.29 "
    "180.76.76.76 "
    "208.67.222.222 208.67.220.220".split()
)
_RESERVED_V4 = tuple(  # RFC 6890: never a person's; kept here because ipaddress changes between Python versions
    (int(network.network_address), int(network.netmask))
    for network in map(
        ipaddress.IPv4Network,
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
        "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3".split(),
    )
)
_IPV6 = re.compile(r"[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}[0-9A-Fa-f](?![0-9A-Za-z_:/]|\.[0-9])")
_RESERVED_V6 = tuple(
    ipaddress.ip_network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)


def ipv4(view: Window) -> Span | None:
    """A public IPv4 address; versions, section numbers, networks and well-known name servers are none."""
    match = _IPV4.match(view.text, view.at)
    before = view.text[max(0, view.at - 32) : view.at]
    if match is None or re.search(r"(?:[0-9A-Za-z_]|[0-9A-Za-z][.-])\Z", before):
        return None
    octets = [int(part) for part in match.groups()]
    if max(octets) > 255 or any(len(part) > 1 and part[0] == "0" for part in match.groups()) or match[0] in _RESOLVERS:
        return None
    address = int.from_bytes(octets)
    if any(address & mask == network for network, mask in _RESERVED_V4) or octets[3] == 0:
        return None
    if not _IP_WORD.search(before[-24:]) and (max(octets) < _SMALL_OCTET or _VERSION_WORD.search(before)):
        return None
    return Span(view.origin + view.at, view.origin + match.end(), "ipv4")


def ipv6(view: Window) -> Span | None:
    """A public IPv6 address."""
    match = _IPV6.match(view.text, view.at)
    if match is None or re.search(r"(?:[0-9A-Za-z_.]|[0-9:]:)\Z", view.text[max(0, view.at - 2) : view.at]):
        return None
    try:
        address = ipaddress.IPv6Address(match[0])
    except ValueError:
        return None
    if any(address in network for network in _RESERVED_V6):
        return None
    return Span(view.origin + view.at, view.origin + match.end(), "ipv6")

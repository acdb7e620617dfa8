"""What an answer says about its own use: X-Robots-Tag, robots metas, and the signals against training.

Honoured, whoever among `*` and our agent they speak to: `noindex`, `nofollow`, `noarchive` (also `nocache`), `none`
(the first two), `noai` and `noimageai`; `TDM-Reservation: 1` and `<meta name="tdm-reservation" content="1">` (W3C
TDMRep); `Content-Usage: train-ai=n` (IETF AIPREF). A `noimageai` speaks of images, which are not kept; with no telling
what its writer meant about text, the page is left alone. `unavailable_after` is not read: it dates a search result, and
a page that is still served has not gone. Directives that allow (`index`, `all`) never undo one that forbids.

Time is linear in the input, and the reasons are of a fixed vocabulary, whatever a host sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from corpus.crawl.politeness.robots import training_refused

_FORBIDS = {
    "noindex": ("noindex",),
    "nofollow": ("nofollow",),
    "none": ("noindex", "nofollow"),
    "noarchive": ("noarchive",),
    "nocache": ("noarchive",),
    "noai": ("opt_out",),
    "noimageai": ("opt_out",),
}
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_AGENT = re.compile(r"[a-z*_-][a-z0-9*_. /-]*")


@dataclass(frozen=True, slots=True)
class Directives:
    """What a page forbids (noindex, nofollow, noarchive, opt_out: not to be used to train models), and where each of
    that came from (`X-Robots-Tag: noindex`), sorted."""

    forbidden: frozenset[str]
    reasons: tuple[str, ...]


def directives(headers: Iterable[tuple[bytes, bytes]], metas: Sequence[tuple[str, str]], agent: str) -> Directives:
    """What an answer's headers, as they came, and its page's metas (name, content) forbid to `agent`."""
    reasons = {*_of_headers(headers, agent.lower()), *_of_metas(metas, agent.lower())}
    forbidden = frozenset(rule for _, token in reasons for rule in _FORBIDS.get(token, ("opt_out",)))
    return Directives(forbidden, tuple(sorted(f"{where}: {token}" for where, token in reasons)))


def _of_headers(headers: Iterable[tuple[bytes, bytes]], agent: str) -> Iterator[tuple[str, str]]:
    usage: list[bytes] = []
    for raw_name, value in headers:
        name = raw_name.lower()
        if name == b"x-robots-tag":
            for token in _addressed(value.decode("latin-1").lower(), agent):
                yield "X-Robots-Tag", token
        elif name == b"tdm-reservation" and _is_one(value.decode("latin-1")):
            yield "TDM-Reservation", "1"
        elif name == b"content-usage":
            usage.append(value)
    if training_refused(b",".join(usage)):  # a header given twice is one list (RFC 9110, 5.3)
        yield "Content-Usage", "train-ai=n"


def _of_metas(metas: Sequence[tuple[str, str]], agent: str) -> Iterator[tuple[str, str]]:
    for name, content in metas:
        name = name.strip().lower()
        if name in ("robots", agent):
            for token in _tokens(content.lower()):
                yield f"meta {'robots' if name == 'robots' else 'agent'}", token
        elif name == "tdm-reservation" and _is_one(content):
            yield "meta tdm-reservation", "1"
        elif name == "content-usage" and training_refused(content.encode("utf-8", "replace")):
            yield "meta content-usage", "train-ai=n"


def _addressed(value: str, agent: str) -> Iterator[str]:
    """The tokens of an X-Robots-Tag that speak to everyone or to `agent`: `[agent:] token, token, other: token`."""
    speaks_to_us = True
    for part in value.split(","):
        name, colon, rest = part.partition(":")
        name = name.strip()
        if colon and name not in _WITH_VALUE and _AGENT.fullmatch(name):
            speaks_to_us = name in ("*", "robots") or name.partition("/")[0] == agent
            part = rest
        if speaks_to_us:
            yield from _tokens(part)


def _tokens(text: str) -> Iterator[str]:
    return (token for token in text.replace(",", " ").replace(";", " ").split() if token in _FORBIDS)


def _is_one(value: str) -> bool:
    return value.strip().strip("\"'") == "1"

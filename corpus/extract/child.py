"""What runs in the child process (corpus.sandbox): bytes of a page in, an `Extracted` out, both as MessagePack."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from corpus.encoding import UndecodableError, decode
from corpus.extract import extract_utf8
from corpus.extract.config import ExtractConfig
from corpus.shape import RefusedPage

Markup = Literal["html", "wikitext"]
MAX_NAMES = 100  # of templates of a page


class Request(msgspec.Struct, array_like=True, frozen=True):
    """A page to extract: the [extract] section as JSON, the declared charset, the page as it was read, its markup."""

    config: bytes
    charset: str | None
    raw: bytes
    markup: Markup = "html"


class Extracted(msgspec.Struct, array_like=True, frozen=True):
    """A page's article, or with `error` the kind of what was wrong; `repaired` tells of an undone double encoding."""

    error: str | None = None
    detail: str = ""
    encoding: str | None = None
    repaired: bool = False
    title: str | None = None
    date: str | None = None
    author: str | None = None
    text: bytes = b""
    num_read: int = 0  # characters of the page without white space
    removed: dict[str, tuple[int, int]] = {}  # by rule: lines, characters
    next_page: str | None = None
    num_expanded: int = 0  # templates of wikitext
    num_left_out: int = 0
    left_out: dict[str, int] = {}  # templates by name, the most frequent


_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
unpack = msgspec.msgpack.Decoder(Extracted).decode  # the answer to a request


def pack(config: ExtractConfig, charset: str | None, raw: bytes, markup: Markup = "html") -> bytes:
    """A request as bytes."""
    return _encoder.encode(Request(_config_json(config), charset, raw, markup))


def extract_payload(payload: bytes) -> bytes:
    """Answer a request."""
    request = _requests.decode(payload)
    config = _config(request.config)
    if request.markup == "wikitext":
        return _encoder.encode(extract_wikitext(request.raw, config))
    return _encoder.encode(extract_page(request.raw, request.charset, config))


def extract_page(raw: bytes, charset: str | None, config: ExtractConfig) -> Extracted:
    """Decode a page and find its article; whatever is wrong with the page becomes a kind of error."""
    try:
        decoded = decode(raw, charset)
    except UndecodableError as error:
        return Extracted(error="charset", detail=str(error))
    try:
        page = extract_utf8(decoded.text.encode() if decoded.utf8 is None else decoded.utf8, config)
    except RefusedPage as refused:
        return Extracted(refused.kind, str(refused), decoded.encoding, decoded.repaired)
    facts = (page.title, page.date, page.author, page.text, page.num_read, page.removed, page.next_page)
    return Extracted(None, "", decoded.encoding, decoded.repaired, *facts)


def extract_wikitext(raw: bytes, config: ExtractConfig) -> Extracted:
    """The text of a wiki page in UTF-8."""
    from corpus.wikitext import to_text  # late: its parser is for those who read dumps

    page = to_text(raw.decode(), config.wikitext_variant)
    text = page.text if len(page.text) >= config.min_text_chars else ""
    counts = (page.num_expanded, page.left_out.total(), dict(page.left_out.most_common(MAX_NAMES)))
    return Extracted(None, "", "utf-8", False, page.title, None, page.author, text.encode(), 0, {}, None, *counts)


def warm_up() -> None:
    """Load code and tables before the memory limit is set."""
    extract_utf8("<p>文".encode(), ExtractConfig())


@lru_cache(maxsize=8)
def _config_json(config: ExtractConfig) -> bytes:
    return config.model_dump_json().encode()


@lru_cache(maxsize=8)
def _config(data: bytes) -> ExtractConfig:
    return ExtractConfig.model_validate_json(data)

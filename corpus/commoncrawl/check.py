"""Is what came the record that the index promised? One gzip member, one WARC response, its URL, its payload's SHA-1."""

from __future__ import annotations

import base64
import hashlib
import zlib

from corpus.commoncrawl.http import Bad

GZIP_MAGIC = b"\x1f\x8b"
GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
HEAD_END = b"\r\n\r\n"
MAX_HEAD_BYTES = 64 << 10


def check_member(member: bytes, url: str, digest: str | None, max_bytes: int) -> None:
    """Accept a capture's bytes or raise `Bad` with what is wrong.

    Args:
        member: the bytes of the capture's range.
        url: what WARC-Target-URI must be.
        digest: the payload's SHA-1 in base32; None: not to be checked. Records that say they were cut short have none
            that could be checked.
        max_bytes: of the record once decompressed.

    Raises:
        Bad: not_gzip, truncated, too_long, wrong_record or digest.
    """
    if not member.startswith(GZIP_MAGIC):
        raise Bad("not_gzip", "no gzip member begins here")
    record = inflate(member, max_bytes)
    head, ended, block = record.partition(HEAD_END)
    if not ended or not head.startswith(b"WARC/1.") or len(head) > MAX_HEAD_BYTES:
        raise Bad("wrong_record", "no WARC record")
    fields = _fields(head)
    if fields.get("warc-type") != "response":
        raise Bad("wrong_record", f"a record of type {fields.get('warc-type', 'none')[:40]}, no response")
    if fields.get("warc-target-uri", "").strip("<>") != url:
        raise Bad("wrong_record", "the record of another URL")
    length = fields.get("content-length", "")
    if not length.isdigit() or len(length) > 15 or int(length) > len(block):
        raise Bad("wrong_record", f"a block of {len(block):,} bytes, and Content-Length {length[:20] or 'missing'}")
    if digest is None or "warc-truncated" in fields:
        return
    _, ended, payload = block[: int(length)].partition(HEAD_END)
    found = base64.b32encode(hashlib.sha1(payload, usedforsecurity=False).digest()).decode()
    if not ended or found != digest.rpartition(":")[2].upper():
        raise Bad("digest", f"SHA-1 of the payload is {found}, not {digest[:40]}")


def inflate(member: bytes, max_bytes: int) -> bytes:
    """What one gzip member holds; raises `Bad`: not_gzip, truncated, too_long, or wrong_record where more follows."""
    decoder = zlib.decompressobj(GZIP_WINDOW_BITS)
    try:
        record = decoder.decompress(member, max_bytes + 1)
    except zlib.error as error:
        raise Bad("not_gzip", f"damaged: {error}") from error
    if len(record) > max_bytes:
        raise Bad("too_long", f"more than {max_bytes:,} bytes once decompressed")
    if not decoder.eof:
        raise Bad("truncated", "the range ends inside a gzip member")
    if decoder.unused_data:
        raise Bad("wrong_record", "the range holds more than one gzip member")
    return record


def _fields(head: bytes) -> dict[str, str]:
    """Header fields by their names in lower case; of repeated ones the last."""
    fields = {}
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower().decode("latin-1")] = value.strip().decode("utf-8", "replace")
    return fields

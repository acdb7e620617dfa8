"""A response's body as it arrives: content encodings undone, within caps on bytes and on growth.

Each decoder gives pieces of bounded size however much its input would grow to, and every piece is counted before the
next is made, so that a bomb costs a piece of each layer and no more.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Sequence

import brotli  # type: ignore[import-untyped]

from corpus.crawl.network.fetched import FetchError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPT_ENCODING = "gzip, deflate, br, zstd"
"""What is asked for: what can be decoded."""
MAX_LAYERS = 3
MAX_MEMBERS = 2_000
"""gzip members or zstd frames of a layer: an empty one has 8 bytes and costs 15 microseconds."""
PIECE_BYTES = 64 << 10
FREE_BYTES = 1 << 20
"""Growth is checked beyond so many bytes."""
MAX_ZSTD_WINDOW_LOG = 23  # 8 MiB (RFC 9659)
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_METHOD = 8  # the lower half of the first byte of a zlib header


class Body:
    """Takes the bytes of a body as they come over the wire, gives the decoded ones at the end."""

    def __init__(self, encodings: Sequence[str], max_bytes: int, max_expansion: int) -> None:
        """`encodings` are the names of Content-Encoding in the order they were applied.

        Raises:
            FetchError: `encoding`, one that is not known, or too many.
        """
        if len(encodings) > MAX_LAYERS:
            raise FetchError("encoding", f"{len(encodings)} encodings, one in another")
        self._decoders = [_decoder(name) for name in reversed(encodings)]
        self._out = [0] * len(encodings)  # bytes that each decoder gave
        self._max_bytes, self._max_expansion = max_bytes, max_expansion
        self._kept = bytearray()
        self.wire_bytes = 0

    def add(self, data: bytes) -> None:
        """Decode what came.

        Raises:
            FetchError: `too_large`, `bomb`, or `encoding` where the bytes are not what the header promised.
        """
        self.wire_bytes += len(data)
        if self.wire_bytes > self._max_bytes:
            raise FetchError("too_large", f"more than {self._max_bytes} bytes")
        try:
            self._pass(data, 0)
        except (zlib.error, brotli.error, zstd.ZstdError) as error:
            raise FetchError("encoding", str(error)) from error

    def _pass(self, data: bytes, layer: int) -> None:
        if layer == len(self._decoders):
            self._kept += data
            if len(self._kept) > self._max_bytes:
                raise FetchError("too_large", f"more than {self._max_bytes} bytes when decoded")
            return
        for piece in self._decoders[layer].decode(data):
            self._out[layer] += len(piece)
            if self._out[layer] > FREE_BYTES + self._max_expansion * self.wire_bytes:
                raise FetchError("bomb", f"more than {self._max_expansion} times its compressed size")
            self._pass(piece, layer + 1)

    def finish(self) -> bytes:
        """The decoded body. An empty one has no encoding, whatever its header says.

        Raises:
            FetchError: `truncated`, it ended inside an encoding.
        """
        if self.wire_bytes and not all(decoder.complete() for decoder in self._decoders):
            raise FetchError("truncated", "the body ends inside its encoding")
        return bytes(self._kept)


def _decoder(name: str) -> _Zlib | _Brotli | _Zstd:
    match name:
        case "gzip" | "x-gzip":
            return _Zlib(_GZIP_BITS)
        case "deflate":
            return _Zlib(None)
        case "br":
            return _Brotli()
        case "zstd":
            return _Zstd()
    raise FetchError("encoding", f"unknown Content-Encoding {name[:40]!r}")


class _Zlib:
    """gzip and deflate. gzip members may follow each other; other bytes after the end are ignored, as browsers do."""

    def __init__(self, bits: int | None) -> None:
        self._bits = bits
        self._decoder = None if bits is None else zlib.decompressobj(bits)
        self._members = 1

    def decode(self, data: bytes) -> Iterator[bytes]:
        starved = not data
        while not starved:
            if self._decoder is None:  # `deflate` is a zlib stream by the standard and a raw one by some servers
                is_zlib = data[0] & 0x0F == _DEFLATE_METHOD
                self._decoder = zlib.decompressobj(_ZLIB_BITS if is_zlib else _RAW_BITS)
            elif self._decoder.eof:
                if self._bits != _GZIP_BITS or not data or not _GZIP_MAGIC.startswith(data[:2]):
                    return
                self._members = _one_more(self._members)
                self._decoder = zlib.decompressobj(_GZIP_BITS)
            piece = self._decoder.decompress(data, PIECE_BYTES)
            if piece:
                yield piece
            data = self._decoder.unused_data if self._decoder.eof else self._decoder.unconsumed_tail
            starved = not data and len(piece) < PIECE_BYTES

    def complete(self) -> bool:
        return self._decoder is not None and self._decoder.eof


def _one_more(members: int) -> int:
    if members == MAX_MEMBERS:
        raise FetchError("bomb", f"more than {MAX_MEMBERS} members of a compressed body")
    return members + 1


class _Brotli:
    """Bytes after the end are an error: the library does not give what came before them."""

    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._decoder.is_finished():
            raise FetchError("encoding", "bytes after the end of a brotli stream")
        while True:
            piece = self._decoder.process(data, output_buffer_limit=PIECE_BYTES)
            data = b""
            if piece:
                yield piece
            if self._decoder.is_finished() or (not piece and self._decoder.can_accept_more_data()):
                return

    def complete(self) -> bool:
        return bool(self._decoder.is_finished())


class _Zstd:
    """Frames may follow each other."""

    def __init__(self) -> None:
        self._decoder = self._new()
        self._members = 1

    @staticmethod
    def _new() -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_ZSTD_WINDOW_LOG})

    def decode(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._decoder.eof or self._decoder.needs_input):
            if self._decoder.eof:
                self._members = _one_more(self._members)
                self._decoder = self._new()
            piece = self._decoder.decompress(data, PIECE_BYTES)
            if piece:
                yield piece
            data = self._decoder.unused_data

    def complete(self) -> bool:
        return self._decoder.eof

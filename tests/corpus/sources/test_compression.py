"""gzip and zstd to their ends: every good byte comes out, and what follows the damage is named."""

from __future__ import annotations

import gzip
import io
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources.compression import PIECE_BYTES, Compression, DamagedStream, read_pieces

TEXT = "".join(f"第{index}行：学而时习之。\n" for index in range(20_000)).encode()


def pack(data: bytes, kind: Compression) -> bytes:
    if kind == "gzip":
        return gzip.compress(data, mtime=0)
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def unpack(data: bytes, kind: Compression) -> tuple[bytes, str | None]:
    """What came out, and the kind of damage."""
    out = io.BytesIO()
    try:
        for piece in read_pieces(io.BytesIO(data), kind):
            assert len(piece) <= PIECE_BYTES
            out.write(piece)
    except DamagedStream as damage:
        return out.getvalue(), damage.kind
    return out.getvalue(), None


both = pytest.mark.parametrize("kind", ["gzip", "zstd"])


@both
def test_round_trip_of_one_and_many_frames(kind: Compression) -> None:
    assert unpack(pack(TEXT, kind), kind) == (TEXT, None)
    assert unpack(pack(b"", kind) + pack(TEXT, kind) + pack(b"x", kind), kind) == (TEXT + b"x", None)
    assert unpack(b"", kind) == (b"", None)


def test_streamed_zstd_without_content_size_and_skippable_frames() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    streamed = packer.compress(TEXT) + packer.flush()
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    assert unpack(skippable + streamed + skippable + pack(b"y", "zstd"), "zstd") == (TEXT + b"y", None)


@both
def test_a_cut_anywhere_is_truncated_and_the_part_before_it_comes_out(kind: Compression) -> None:
    data = pack(TEXT, kind)
    longest = 0
    for cut in [1, 2, 3, 4, 5, 9, 17, 100, len(data) // 2, len(data) - 30, len(data) - 9, len(data) - 1]:
        out, damage = unpack(data[:cut], kind)
        assert damage == "truncated", cut
        assert TEXT.startswith(out)
        longest = max(longest, len(out))
    assert longest == len(TEXT)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "zstd"]))
def test_any_bytes_end_in_data_or_damage(data: bytes, kind: Compression) -> None:
    head = zlib.compress(b"") if kind == "gzip" else b"\x28\xb5\x2f\xfd"
    unpack(head[: len(data) % 5] + data, kind)

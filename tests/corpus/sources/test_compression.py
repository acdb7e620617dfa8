"""gzip, bzip2 and zstd to their ends: every good byte comes out, and what follows the damage is named."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpus.sources.compression import PIECE_BYTES, Compression, DamagedStream, read_pieces

TEXT = "".join(f"第{index}行：学而时习之。\n" for index in range(20_000)).encode()


def pack(data: bytes, kind: Compression) -> bytes:
    if kind != "zstd":
        return gzip.compress(data, mtime=0) if kind == "gzip" else bz2.compress(data, 1)
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


every = pytest.mark.parametrize("kind", ["gzip", "bzip2", "zstd"])


@every
def test_round_trip_of_one_and_many_frames(kind: Compression) -> None:
    assert unpack(pack(TEXT, kind), kind) == (TEXT, None)
    assert unpack(pack(b"", kind) + pack(TEXT, kind) + pack(b"x", kind), kind) == (TEXT + b"x", None)
    assert unpack(pack(TEXT, kind) + bytes(1000), kind) == (TEXT, None)
    assert unpack(b"", kind) == (b"", None)


def test_streamed_zstd_without_content_size_and_skippable_frames() -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    streamed = packer.compress(TEXT) + packer.flush()
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    assert unpack(skippable + streamed + skippable + pack(b"y", "zstd"), "zstd") == (TEXT + b"y", None)


@every
def test_a_cut_anywhere_is_truncated_and_the_part_before_it_comes_out(kind: Compression) -> None:
    data = pack(TEXT, kind)
    longest = 0
    for cut in [1, 2, 3, 4, 5, 9, 17, 100, len(data) // 2, len(data) - 30, len(data) - 9, len(data) - 1]:
        out, damage = unpack(data[:cut], kind)
        assert damage == "truncated", cut
        assert TEXT.startswith(out)
        longest = max(longest, len(out))
    assert longest == len(TEXT) or kind == "bzip2"  # whose blocks come out whole
    assert longest > len(TEXT) // 2 and unpack(data + data[:-1], kind)[1] == "truncated"


@every
def test_damage_and_garbage_are_told_apart(kind: Compression) -> None:
    data = pack(TEXT, kind)
    assert unpack(data[:40] + bytes([data[40] ^ 0x10]) + data[41:], kind)[1] == "corrupt"
    assert unpack(data + b"garbage", kind) == (TEXT, "trailing")
    assert unpack(data + bytes(9) + b"garbage", kind) == (TEXT, "trailing")
    text = "".join(map(chr, random.Random(0).choices(range(0x4E00, 0x5A00), k=400_000))).encode()  # of several pieces
    long = bytearray(pack(text, kind))
    long[len(long) * 2 // 3] ^= 0x10
    assert unpack(data + long, kind)[1] == "corrupt"


HEADS: dict[Compression, bytes] = {
    "gzip": zlib.compress(b""),
    "bzip2": bz2.compress(TEXT)[:15],
    "zstd": b"\x28\xb5\x2f\xfd",
}


@given(st.binary(max_size=200), st.integers(0, 14), st.sampled_from(["gzip", "bzip2", "zstd"]))
def test_any_bytes_end_in_data_or_damage(data: bytes, size: int, kind: Compression) -> None:
    unpack(HEADS[kind][:size] + data, kind)

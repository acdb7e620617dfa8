"""FAULTS row 6: zstd and gzip files that end early, go on in garbage or have several frames; the usual readers say
nothing."""

from __future__ import annotations

import pytest

from corpus.sources.compression import Compression
from tests.corpus.sources.test_compression import TEXT, pack, unpack

both = pytest.mark.parametrize("kind", ["gzip", "zstd"])


@both
def test_every_cut_of_a_small_file_is_seen(kind: Compression) -> None:
    data = pack("学而时习之".encode(), kind) * 2
    sound = {0, len(data) // 2, len(data)}
    for cut in range(len(data) + 1):
        assert (unpack(data[:cut], kind)[1] is None) == (cut in sound), cut


@both
def test_trailing_garbage_is_refused_after_all_good_data(kind: Compression) -> None:
    assert unpack(pack(TEXT, kind) + b"garbage", kind) == (TEXT, "trailing")
    assert unpack(pack(TEXT, kind) + bytes(600_000), kind) == (TEXT, None)  # tape blocks are padded with zeros
    assert unpack(b"not compressed at all", kind) == (b"", "corrupt")


@both
def test_flipped_bits_never_pass(kind: Compression) -> None:
    data = pack(TEXT, kind)
    for place in range(4, len(data), len(data) // 40):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        out, damage = unpack(bytes(flipped), kind)
        assert damage is not None or out == TEXT

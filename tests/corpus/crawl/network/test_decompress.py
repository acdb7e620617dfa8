from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Sequence

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from corpus.crawl.network.decompress import FREE_BYTES, MAX_LAYERS, MAX_MEMBERS, PIECE_BYTES, Body
from corpus.crawl.network.fetched import FetchError

TEXT = ("天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。" * 40).encode() + random.Random(0).randbytes(2000)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: bytes(brotli.compress(data, quality=5)),
    "zstd": zstandard.compress,
}
NAMES = st.lists(st.sampled_from(sorted(PACKERS)), max_size=MAX_LAYERS)


def pack(data: bytes, names: Sequence[str]) -> bytes:
    for name in names:
        data = PACKERS[name](data)
    return data


def unpack(
    data: bytes, names: Sequence[str], step: int = 1 << 14, max_bytes: int = 10_000_000, max_expansion: int = 200
) -> bytes:
    body = Body(names, max_bytes, max_expansion)
    for start in range(0, len(data), step):
        body.add(data[start : start + step])
    return body.finish()


def kind(data: bytes, names: Sequence[str], step: int = 1 << 14, max_bytes: int = 10_000_000) -> str:
    try:
        unpack(data, names, step, max_bytes)
    except FetchError as error:
        return error.kind
    return "ok"


@given(st.binary(max_size=3000), NAMES, st.integers(1, 4000))
def test_what_was_packed_comes_out_however_it_is_cut(data: bytes, names: list[str], step: int) -> None:
    assert unpack(pack(data, names), names, step) == data


@pytest.mark.parametrize("name", sorted(PACKERS))
@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES])
def test_bodies_of_several_pieces(name: str, size: int) -> None:
    data = bytes(size)
    assert unpack(pack(data, [name]), [name]) == data
    assert unpack(pack(data, [name]), [name], step=7) == data


@pytest.mark.parametrize("step", [1, 1 << 14])
def test_raw_deflate_members_and_frames(step: int) -> None:
    assert unpack(raw_deflate(TEXT), ["deflate"], step) == TEXT
    assert unpack(gzip.compress(TEXT) + gzip.compress(b"more"), ["gzip"], step) == TEXT + b"more"
    assert unpack(zstandard.compress(TEXT) + zstandard.compress(b"more"), ["zstd"], step) == TEXT + b"more"


@pytest.mark.parametrize("step", [1, 1 << 14])
def test_bytes_after_the_end_are_ignored_where_the_library_can(step: int) -> None:
    for name in ("gzip", "deflate"):
        assert unpack(pack(TEXT, [name]) + b"\0\0<!-- served by -->", [name], step) == TEXT
    for name in ("br", "zstd"):
        assert kind(pack(TEXT, [name]) + b"\0\0<!-- served by -->", [name], step) == "encoding"


@given(NAMES.filter(len), st.data())
def test_a_cut_is_found_wherever_it_is(names: list[str], data: st.DataObject) -> None:
    packed = pack(TEXT, names)
    cut = data.draw(st.integers(1, len(packed) - 1))
    assert kind(packed[:cut], names) == "truncated"


@given(st.sampled_from(sorted(PACKERS)), st.binary(min_size=1, max_size=200), st.integers(1, 50))
def test_garbage_is_an_error_of_a_known_kind(name: str, garbage: bytes, step: int) -> None:
    assert kind(garbage, [name], step) in ("encoding", "truncated", "ok")  # some garbage is a stream
    assert kind(b"<html>" + garbage, [name], step) in ("encoding", "truncated")


@given(st.sampled_from(["gzip", "zstd"]), st.data())
def test_a_flipped_bit_never_gives_other_bytes_with_a_checksum(name: str, data: st.DataObject) -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    packed = bytearray(gzip.compress(TEXT) if name == "gzip" else packer.compress(TEXT))
    at = data.draw(st.integers(0, len(packed) * 8 - 1))
    packed[at // 8] ^= 1 << at % 8
    try:
        assert unpack(bytes(packed), [name]) == TEXT  # a bit of the header that says nothing
    except FetchError as error:
        assert error.kind in ("encoding", "truncated")


def test_an_empty_body_has_no_encoding() -> None:
    assert unpack(b"", ["gzip"]) == b""
    assert kind(b"", ["zstd", "br"]) == "ok"


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_without_end_are_a_bomb(name: str) -> None:
    """They give nothing that could be counted, and each costs a new decoder."""
    member = pack(b"", [name])
    assert kind(member * MAX_MEMBERS, [name]) == "ok"
    assert kind(member * (MAX_MEMBERS + 1), [name]) == "bomb"
    assert kind(pack(member * 50_000, ["gzip"]), [name, "gzip"]) == "bomb"


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_small_bodies_of_one_character_are_no_bombs(name: str) -> None:
    assert kind(pack(bytes(FREE_BYTES), [name]), [name]) == "ok"


@pytest.mark.parametrize("names", [[], ["gzip"], ["br", "zstd"]])
def test_caps_on_both_sides(names: list[str]) -> None:
    packed = pack(TEXT, names)
    assert kind(packed, names, max_bytes=len(TEXT)) == "ok"
    assert kind(packed, names, max_bytes=len(TEXT) - 1) == "too_large"
    assert kind(packed, names, max_bytes=min(len(packed), len(TEXT)) - 1) == "too_large"


def test_a_window_that_is_too_large_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(TEXT) + packer.flush()
    assert kind(packed, ["zstd"]) == "encoding"

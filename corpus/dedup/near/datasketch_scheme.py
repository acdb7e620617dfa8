"""`scheme = "datasketch"`: signatures equal bit for bit to those of `datasketch.MinHash` 2, for use in its indexes.

    LeanMinHash(seed=1, hashvalues=signature, scheme="affine32")

A shingle's UTF-8 bytes are hashed by SHA-1, the first four bytes of the digest being a little-endian integer; it is
mixed by MurmurHash3's 32-bit finaliser and mapped by a x + b mod 2^32. The odd factors a and the summands b are drawn
from numpy's `RandomState(1)`, whose stream numpy has frozen. The text is the folded one. SHA-1 of every shingle is
the price.
"""

from __future__ import annotations

import numpy as np

from corpus.dedup.near.minhash import NO_SHINGLE, SignatureArray
from corpus.dedup.text.fold import Bytes, Codes, Offsets
from corpus.dedup.text.hashing import Keys
from corpus.engine.compiled import kernel

SEED = 1  # datasketch's default
WORD = np.uint64(0xFFFFFFFF)
FINALISER = (np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35))


def minhash(codes: Codes, offsets: Offsets, ngram: int, num_permutations: int) -> SignatureArray:
    """Return uint32[n, k]: the signatures of n folded texts, `NO_SHINGLE` throughout for one shorter than `ngram`."""
    signatures = np.empty((len(offsets) - 1, num_permutations), np.uint32)
    factors, summands = permutations(num_permutations)
    _minima(codes, offsets, ngram, factors, summands, signatures)
    return signatures


def permutations(count: int) -> tuple[Codes, Codes]:
    """Return the odd factors and the summands; the summands depend on the count, as they are drawn after the
    factors."""
    generator = np.random.RandomState(SEED)
    factors = generator.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return factors, generator.randint(0, 1 << 32, count, dtype=np.uint32)


@kernel("uint64(uint64, int64)")
def _rotate(x: np.uint64, bits: int) -> np.uint64:
    return ((x << np.uint64(bits)) | (x >> np.uint64(32 - bits))) & WORD


@kernel("uint32(uint8[::1], int64, uint64[::1])")
def sha1_hash32(message: Bytes, length: int, words: Keys) -> np.uint32:
    """The first 4 bytes of SHA-1 (FIPS 180-4), little-endian, of a message of at most 55 bytes.

    `message` (64 bytes) and `words` (80) are overwritten.
    """
    message[length] = 0x80
    message[length + 1 :] = 0
    message[62], message[63] = (8 * length) >> 8, (8 * length) & 0xFF
    for i in range(16):
        words[i] = (
            (np.uint64(message[4 * i]) << np.uint64(24))
            | (np.uint64(message[4 * i + 1]) << np.uint64(16))
            | (np.uint64(message[4 * i + 2]) << np.uint64(8))
            | np.uint64(message[4 * i + 3])
        )
    for i in range(16, 80):
        words[i] = _rotate(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1)
    a, b, c = np.uint64(0x67452301), np.uint64(0xEFCDAB89), np.uint64(0x98BADCFE)
    d, e = np.uint64(0x10325476), np.uint64(0xC3D2E1F0)
    for i in range(80):
        if i < 20:
            mixed, constant = (b & c) | ((b ^ WORD) & d), np.uint64(0x5A827999)
        elif i < 40:
            mixed, constant = b ^ c ^ d, np.uint64(0x6ED9EBA1)
        elif i < 60:
            mixed, constant = (b & c) | (b & d) | (c & d), np.uint64(0x8F1BBCDC)
        else:
            mixed, constant = b ^ c ^ d, np.uint64(0xCA62C1D6)
        new = (_rotate(a, 5) + mixed + e + constant + words[i]) & WORD
        e, d, c, b, a = d, c, _rotate(b, 30), a, new
    first = (a + np.uint64(0x67452301)) & WORD
    return np.uint32(
        (first >> np.uint64(24))
        | ((first >> np.uint64(8)) & np.uint64(0xFF00))
        | ((first & np.uint64(0xFF00)) << np.uint64(8))
        | ((first & np.uint64(0xFF)) << np.uint64(24))
    )


@kernel("int64(uint32, uint8[::1], int64)")
def _write_utf8(code: np.uint32, message: Bytes, at: int) -> int:
    """Write a code point; returns the place after it."""
    if code < 0x80:
        message[at] = code
        return at + 1
    length = 2 if code < 0x800 else 3 if code < 0x10000 else 4
    for i in range(length - 1, 0, -1):
        message[at + i] = 0x80 | (code & np.uint32(0x3F))
        code >>= np.uint32(6)
    message[at] = (0xF00 >> length) & 0xFF | code
    return at + length


@kernel(
    "void(Array(uint32, 1, 'C', True), Array(int64, 1, 'C', True), int64, Array(uint32, 1, 'C', True),"
    " Array(uint32, 1, 'C', True), uint32[:, ::1])"
)
def _minima(
    codes: Codes, offsets: Offsets, ngram: int, factors: Codes, summands: Codes, signatures: SignatureArray
) -> None:
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    hashes, message, words = np.empty(longest, np.uint32), np.empty(64, np.uint8), np.empty(80, np.uint64)
    for text in range(len(offsets) - 1):
        start = offsets[text]
        count = max(0, offsets[text + 1] - start - ngram + 1)
        for s in range(count):
            length = 0
            for i in range(start + s, start + s + ngram):
                length = _write_utf8(codes[i], message, length)
            x = np.uint64(sha1_hash32(message, length, words))
            x = ((x ^ (x >> np.uint64(16))) * FINALISER[0]) & WORD
            x = ((x ^ (x >> np.uint64(13))) * FINALISER[1]) & WORD
            hashes[s] = np.uint32(x ^ (x >> np.uint64(16)))
        for p in range(signatures.shape[1]):
            factor, summand, minimum = factors[p], summands[p], NO_SHINGLE
            for s in range(count):
                minimum = min(minimum, np.uint32(hashes[s] * factor + summand))
            signatures[text, p] = minimum

"""MinHash signatures over folded code points, and the keys of their bands.

Classic scheme (Broder 1997): k permutations of the 32-bit hashes of a document's character n-grams, here the affine
maps x -> a x + b mod 2^32 with odd a; a signature holds the k minima, and the share of equal minima of two signatures
estimates the Jaccard similarity j of their n-gram sets with standard error sqrt(j (1 - j) / k).

`python -m tools.bench signatures`: at k = 112, folding included, it runs at half the speed of hashing the shingles
alone, where one-permutation hashing would run at three quarters. Its error is the theory's at every length (theirs is
1.2 times it at 30 shingles): short documents are the ones that fail, and the minima are independent, as the S-curve
assumes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from corpus.dedup.text.fold import Codes, Offsets
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.engine.compiled import kernel

SignatureArray = npt.NDArray[np.uint32]

SEED = np.uint64(0x77656E686169)  # "wenhai"; another seed is another family of permutations
NO_SHINGLE = np.uint32(0xFFFFFFFF)  # every minimum of a document shorter than the shingle
EXACT_BAND = 255


def permutations(count: int) -> tuple[Codes, Codes]:
    """Return the factors (odd) and summands of `count` affine permutations of 32-bit integers.

    A fixed splitmix64 sequence: the first permutations are the same for every count, and no library's generator can
    change them.
    """
    state = SEED + GOLDEN * np.arange(1, 2 * count + 1, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    words = ((state ^ (state >> np.uint64(31))) >> np.uint64(32)).astype(np.uint32)
    return words[0::2] | np.uint32(1), np.ascontiguousarray(words[1::2])


def minhash(codes: Codes, offsets: Offsets, ngram: int, num_permutations: int) -> SignatureArray:
    """Return uint32[n, k]: the signatures of n folded texts, `NO_SHINGLE` throughout for one shorter than `ngram`."""
    signatures = np.empty((len(offsets) - 1, num_permutations), np.uint32)
    factors, summands = permutations(num_permutations)
    _minima(codes, offsets, ngram, factors, summands, signatures)
    return signatures


def band_keys(signatures: SignatureArray, bands: int, rows: int) -> Keys:
    """Return uint64[n, bands]: 56 mixed bits of each band's minima, and the band's number in the low byte.

    Two bands can therefore never share a key. Keys of different minima of one band may (once in 2^56 pairs), which
    costs one comparison: candidates are verified.
    """
    keys = np.empty((len(signatures), bands), np.uint64)
    _band_keys(signatures, rows, keys)
    return keys


def exact_band_keys(exact: Keys) -> Keys:
    """Return uint64[n]: the exact key (uint64[n, 2]) as the key of one more band."""
    return (exact[:, 0] & ~np.uint64(0xFF)) | np.uint64(EXACT_BAND)


def min_matches(threshold: float, num_permutations: int) -> int:
    """Return how many of k minima must be equal for an estimated Jaccard of at least `threshold`."""
    return math.ceil(threshold * num_permutations - 1e-9)


@kernel("int64(Array(int64, 1, 'C', True))", leaf=True)
def longest_text(offsets: Offsets) -> int:
    """The most code points of one text: no text has more shingles."""
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest


@kernel("int64(Array(uint32, 1, 'C', True), int64, int64, int64, uint32[::1])", leaf=True)
def hash_shingles(codes: Codes, start: int, end: int, ngram: int, hashes: Codes) -> int:
    """Write the 32-bit hash of each n-gram of `codes[start:end]`, by a rolling polynomial; returns their number."""
    leaving = np.uint64(1)  # the factor of the oldest code point of a window
    for _ in range(ngram):
        leaving *= GOLDEN
    rolling, count = np.uint64(0), 0
    for i in range(start, end):
        rolling = rolling * GOLDEN + np.uint64(codes[i])
        if i - start >= ngram:
            rolling -= leaving * np.uint64(codes[i - ngram])
        if i - start >= ngram - 1:
            hashes[count] = np.uint32(mix(rolling) >> np.uint64(32))
            count += 1
    return count


@kernel(
    "void(Array(uint32, 1, 'C', True), Array(int64, 1, 'C', True), int64, Array(uint32, 1, 'C', True),"
    " Array(uint32, 1, 'C', True), uint32[:, ::1])"
)
def _minima(
    codes: Codes, offsets: Offsets, ngram: int, factors: Codes, summands: Codes, signatures: SignatureArray
) -> None:
    """Shingles in the inner loop, one permutation in registers: the compiler makes it eight minima an instruction."""
    hashes = np.empty(longest_text(offsets), np.uint32)
    for text in range(len(offsets) - 1):
        count = hash_shingles(codes, offsets[text], offsets[text + 1], ngram, hashes)
        for p in range(signatures.shape[1]):
            factor, summand, minimum = factors[p], summands[p], NO_SHINGLE
            for s in range(count):
                minimum = min(minimum, np.uint32(hashes[s] * factor + summand))
            signatures[text, p] = minimum


@kernel("void(Array(uint32, 2, 'C', True), int64, uint64[:, ::1])")
def _band_keys(signatures: SignatureArray, rows: int, keys: Keys) -> None:
    for text in range(keys.shape[0]):
        for band in range(keys.shape[1]):
            state = np.uint64(band) + np.uint64(1)
            for row in range(band * rows, (band + 1) * rows):
                state = mix(state * GOLDEN + np.uint64(signatures[text, row]))
            keys[text, band] = (state & ~np.uint64(0xFF)) | np.uint64(band)

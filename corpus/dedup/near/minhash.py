"""MinHash signatures over folded code points, and the keys of their bands.

Classic scheme (Broder 1997): k permutations of the 32-bit hashes of a document's character n-grams, here the affine
maps x -> a x + b mod 2^32 with odd a; a signature holds the k minima, and the share of equal minima of two signatures
estimates the Jaccard similarity j of their n-gram sets with standard error sqrt(j (1 - j) / k).

`python -m tools.bench signatures`: at k = 112, folding included, it runs at half the speed of hashing the shingles
alone, where one-permutation hashing would run at three quarters. Its error is the theory's at every length (theirs is
1.2 times it at 30 shingles): short documents are the ones that fail, and the minima are independent, as the S-curve
assumes.

`scheme = "datasketch"` gives the signatures of `datasketch.MinHash` 2, bit for bit, for use in its indexes:
`LeanMinHash(seed=1, hashvalues=signature, scheme="affine32")`. SHA-1 of every shingle is the price: 3.9 MB/s.
"""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from corpus.dedup.text.fold import Codes, Offsets
from corpus.dedup.text.hashing import GOLDEN, Keys, mix
from corpus.engine.compiled import kernel

SignatureArray = npt.NDArray[np.uint32]

SEED = np.uint64(0x77656E686169)  # "wenhai"; another seed is another family of permutations
NO_SHINGLE = np.uint32(0xFFFFFFFF)  # every minimum of a document shorter than the shingle
EXACT_BAND = 255
DATASKETCH_SEED = 1  # its default
DATASKETCH_BLOCK = 4096  # shingles whose permutations are held at once: 2 MB at k = 112


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


def datasketch_permutations(count: int) -> tuple[Codes, Codes]:
    """Return datasketch's odd factors and its summands, which depend on the count: they are drawn after the factors.

    From numpy's `RandomState(1)`, whose stream numpy has frozen.
    """
    generator = np.random.RandomState(DATASKETCH_SEED)
    factors = generator.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return factors, generator.randint(0, 1 << 32, count, dtype=np.uint32)


def datasketch_minhash(codes: Codes, offsets: Offsets, ngram: int, num_permutations: int) -> SignatureArray:
    """As `minhash`, with datasketch's numbers: SHA-1's first four bytes, MurmurHash3's 32-bit finaliser, a x + b."""
    factors, summands = datasketch_permutations(num_permutations)
    signatures = np.full((len(offsets) - 1, num_permutations), NO_SHINGLE)
    text = codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for row, (start, end) in enumerate(pairwise(offsets.tolist())):
        shingles = {text[i : i + ngram].encode("utf-8", "surrogatepass") for i in range(start, end - ngram + 1)}
        x = np.frombuffer(b"".join(hashlib.sha1(shingle).digest()[:4] for shingle in shingles), "<u4")
        x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
        x = x ^ (x >> 16)
        for first in range(0, len(x), DATASKETCH_BLOCK):
            mapped = x[first : first + DATASKETCH_BLOCK, None] * factors + summands
            signatures[row] = np.minimum(signatures[row], mapped.min(axis=0))
    return signatures


SCHEMES = {"classic": minhash, "datasketch": datasketch_minhash}


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


@kernel(leaf=True)
def longest_text(offsets: Offsets) -> int:
    """The most code points of one text: no text has more shingles."""
    longest = 0
    for text in range(len(offsets) - 1):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest


@kernel(leaf=True)
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


@kernel()
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


@kernel()
def _band_keys(signatures: SignatureArray, rows: int, keys: Keys) -> None:
    for text in range(keys.shape[0]):
        for band in range(keys.shape[1]):
            state = np.uint64(band) + np.uint64(1)
            for row in range(band * rows, (band + 1) * rows):
                state = mix(state * GOLDEN + np.uint64(signatures[text, row]))
            keys[text, band] = (state & ~np.uint64(0xFF)) | np.uint64(band)

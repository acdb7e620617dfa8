"""`scheme = "one_permutation"`: one hash a shingle instead of k, and a signature of k minima all the same.

One-permutation hashing (Li, Owen and Zhang 2012): the hashes are cut into k equal intervals, the bins, and a signature
holds the least hash of each. A text of few shingles leaves bins empty; each of those takes the minimum of another bin,
which a fixed pseudo-random walk of its own finds (optimal densification, Shrivastava 2017): two texts whose walks end in
the same bin agree there with probability j. The estimate of j stays unbiased. Its error is the theory's sqrt(j (1 - j) /
k) or less where a text has at least as many shingles as bins, and above it for shorter ones, whose minima are copies of
few (`python -m tools.bench signatures` prints both).
"""

from __future__ import annotations

import numpy as np

from corpus.dedup.fold import Codes, Offsets
from corpus.dedup.minhash import GOLDEN, NO_SHINGLE, SEED, SignatureArray, hash_shingles, longest_text, mix
from corpus.engine.compiled import kernel


def minhash(codes: Codes, offsets: Offsets, ngram: int, num_permutations: int) -> SignatureArray:
    """Return uint32[n, k]: the signatures of n folded texts, `NO_SHINGLE` throughout for one shorter than `ngram`."""
    signatures = np.full((len(offsets) - 1, num_permutations), NO_SHINGLE, np.uint32)
    _minima(codes, offsets, ngram, signatures)
    return signatures


@kernel("int64(int64, int64, int64)", leaf=True)
def probe(empty: int, attempt: int, bins: int) -> int:
    """Where the walk of an empty bin looks at its `attempt`-th step, from 0: 2-universal in both."""
    word = mix(SEED + GOLDEN * np.uint64(empty << 32 | attempt))
    return int(((word >> np.uint64(32)) * np.uint64(bins)) >> np.uint64(32))


@kernel("void(Array(uint32, 1, 'C', True), Array(int64, 1, 'C', True), int64, uint32[:, ::1])")
def _minima(codes: Codes, offsets: Offsets, ngram: int, signatures: SignatureArray) -> None:
    bins = signatures.shape[1]
    hashes = np.empty(longest_text(offsets), np.uint32)
    sparse = np.empty(bins, np.uint32)
    for text in range(len(offsets) - 1):
        signature = signatures[text]
        count = hash_shingles(codes, offsets[text], offsets[text + 1], ngram, hashes)
        for s in range(count):
            bin = int((np.uint64(hashes[s]) * np.uint64(bins)) >> np.uint64(32))
            signature[bin] = min(signature[bin], hashes[s])
        empty = 0
        for place in range(bins):
            sparse[place] = signature[place]
            empty += sparse[place] == NO_SHINGLE
        if empty == bins:  # no shingle, or none but the one in 2^32 that hashes to NO_SHINGLE
            continue
        for place in range(bins if empty else 0):
            attempt = 0
            while signature[place] == NO_SHINGLE:
                signature[place] = sparse[probe(place, attempt, bins)]
                attempt += 1

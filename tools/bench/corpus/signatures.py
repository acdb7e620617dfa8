"""Signatures of fresh text on one core: every part, the physical limit, and the peers.

"Hashing the shingles alone" is folding and one hash a shingle: no signature can cost less. Ratios are to it, unless
another row is named. The peers get a spread sample, and ours is timed on that sample again. Nothing here remembers a
text it has seen, so that a second run over the same text is as slow as the first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from corpus.dedup import DedupConfig
from corpus.dedup.near.minhash import SCHEMES, band_keys, hash_shingles, longest_text, minhash
from corpus.dedup.near.signatures import sign_texts
from corpus.dedup.text.fold import Codes, Offsets, fold
from corpus.dedup.text.keys import document_keys, text_buffers
from corpus.engine.compiled import kernel
from corpus.filters.columns import id_array
from tools.bench.inputs import read_documents, spread
from tools.bench.peers.environment import DATATROVE
from tools.bench.timing import num_bytes, one_core, show, speed

MAX_BYTES = 32_000_000
PEER_BYTES = 500_000


def run(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    config = DedupConfig()
    texts = pa.array(spread(list(read_documents(arguments)), MAX_BYTES), pa.large_string())
    few = pa.array(spread(texts.to_pylist(), PEER_BYTES), pa.large_string())
    print(
        f"{len(texts):,} documents, {num_bytes(texts) / 1e6:,.1f} MB of text; character {config.ngram}-grams, "
        f"{config.num_permutations} minima, {config.bands} bands of {config.rows}; one core\n"
    )
    with one_core():
        parts(texts, config)
        compare(few, config, arguments.peers)


def parts(texts: pa.LargeStringArray, config: DedupConfig) -> None:
    """What signing costs, part by part, and all of it, by the default scheme."""
    size, n, k = num_bytes(texts), config.ngram, config.num_permutations
    offsets, data = text_buffers(texts)
    codes, code_offsets = fold(offsets, data)
    ids = pa.array([bytes(16)] * len(texts), pa.binary(16))
    signatures = minhash(codes, code_offsets, n, k)

    def hashing() -> None:
        hash_all(*fold(offsets, data), n)

    alone = speed(size, hashing)
    show("limit: hashing the shingles alone", alone)
    show("  fold", speed(size, lambda: fold(offsets, data)))
    show("  hash of each shingle, folded before", speed(size, lambda: hash_all(codes, code_offsets, n)))
    show("  hashes and minima, folded before", speed(size, lambda: minhash(codes, code_offsets, n, k)))
    keyed = partial(document_keys, id_array(ids), offsets, data, codes, code_offsets)
    show("exact keys and ranks", speed(size, keyed))
    show("band keys", speed(size, partial(band_keys, signatures, config.bands, config.rows)))
    show("fold and minima", speed(size, lambda: minhash(*fold(offsets, data), n, k)), alone)
    show("classic: everything", speed(size, lambda: sign_texts(ids, texts, config)), alone)
    print()


@kernel("uint32(Array(uint32, 1, 'C', True), Array(int64, 1, 'C', True), int64)")
def hash_all(codes: Codes, offsets: Offsets, ngram: int) -> np.uint32:
    """Hash every shingle and keep none; the sum is there so that the compiler cannot leave the work out."""
    total = np.uint32(0)
    hashes = np.empty(longest_text(offsets), np.uint32)
    for text in range(len(offsets) - 1):
        count = hash_shingles(codes, offsets[text], offsets[text + 1], ngram, hashes)
        if count:
            total += hashes[count - 1]
    return total


def compare(texts: pa.LargeStringArray, config: DedupConfig, with_peers: bool) -> None:
    """Everything ours does, beside what others do for the signature alone, on the same sample."""
    from datasketch import MinHash

    size, sample = num_bytes(texts), texts.to_pylist()
    ids = pa.array([bytes(16)] * len(texts), pa.binary(16))
    rates = {}
    for scheme in SCHEMES:
        chosen = config.model_copy(update={"scheme": scheme})
        rates[scheme] = speed(size, partial(sign_texts, ids, texts, chosen))
    calls: dict[str, Callable[[], Any]] = {
        "datasketch MinHash.bulk": lambda: MinHash.bulk(
            [_shingles(text, config.ngram) for text in sample], num_perm=config.num_permutations
        ),
        "datasketch update_batch": lambda: [
            MinHash(num_perm=config.num_permutations).update_batch(_shingles(text, config.ngram)) for text in sample
        ],
    }
    peers = {name: speed(size, call) for name, call in calls.items()}
    if with_peers:
        DATATROVE.install()
    if DATATROVE.is_installed():
        found = DATATROVE.run_on(sample, "datatrove_minhash.py", "signatures")
        peers["datatrove 0.10.1, its signature step, cmn_Hani"] = found["mb_a_second"]
    print(f"{len(sample):,} of the documents, {size / 1e6:,.1f} MB; x is classic, everything, to that row")
    for scheme, rate in rates.items():
        show(f"{scheme}: everything", rate)
    for name, rate in peers.items():
        print(f"{name:<46}{rate:>10,.3f} MB/s x {rates['classic'] / rate:>9,.1f}", flush=True)
    print()


def _shingles(text: str, ngram: int) -> list[bytes]:
    return [shingle.encode() for shingle in {text[i : i + ngram] for i in range(len(text) - ngram + 1)}]

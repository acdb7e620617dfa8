"""Signatures of fresh text on one core: every part, the physical limit, the schemes and their errors, and the peers.

"Hashing the shingles alone" is folding and one hash a shingle: no signature can cost less. Ratios are to it, unless
another row is named. The peers get a spread sample, and ours is timed on that sample again. Nothing here remembers a
text it has seen, so that a second run over the same text is as slow as the first.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup import DedupConfig
from corpus.dedup.near.minhash import SCHEMES, band_keys, hash_shingles, longest_text, minhash
from corpus.dedup.near.signatures import sign_texts
from corpus.dedup.text.fold import Codes, Offsets, fold
from corpus.dedup.text.keys import document_keys, text_buffers
from corpus.engine.compiled import kernel
from corpus.filters.columns import id_array
from tools.bench.inputs import read_documents, spread
from tools.bench.peers import environment
from tools.bench.timing import num_bytes, one_core, show, speed

MAX_BYTES = 32_000_000
PEER_BYTES = 500_000
REPEATS = 20  # of ours on the sample, which is signed in milliseconds
SEED = 0
JACCARDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
PAIRS = 400  # of each Jaccard: an RMSE is known to 1 in sqrt(2 x pairs), 3.5 %
LENGTHS = (600, 60, 30)  # shingles a text
HAN = (0x4E00, 0x9F00)

Floats = npt.NDArray[np.float64]


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
    for length in LENGTHS:
        errors(length, config)


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
        rates[scheme] = speed(REPEATS * size, partial(_repeat, partial(sign_texts, ids, texts, chosen)))
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
        environment.install()
    if environment.is_installed():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "documents.jsonl")
            environment.write_documents(path, sample)
            found = environment.call("datatrove_minhash.py", "signatures", str(path))
        peers["datatrove 0.10.1, its signature step, cmn_Hani"] = found["mb_a_second"]
    print(f"{len(sample):,} of the documents, {size / 1e6:,.1f} MB; x is classic, everything, to that row")
    for scheme, rate in rates.items():
        show(f"{scheme}: everything", rate)
    for name, rate in peers.items():
        print(f"{name:<46}{rate:>10,.3f} MB/s x {rates['classic'] / rate:>9,.1f}", flush=True)
    print()


def _repeat(work: Callable[[], Any]) -> None:
    for _ in range(REPEATS):
        work()


def _shingles(text: str, ngram: int) -> list[bytes]:
    return [shingle.encode() for shingle in {text[i : i + ngram] for i in range(len(text) - ngram + 1)}]


def errors(shingles: int, config: DedupConfig) -> None:
    """RMSE of the estimates over the theory's sqrt(j (1 - j) / k), and their bias in standard errors, by Jaccard."""
    k, found = config.num_permutations, {name: np.empty((len(JACCARDS), PAIRS)) for name in (*SCHEMES, "library")}
    print(f"RMSE / theory, {shingles} shingles a text, {PAIRS} pairs each; library is datasketch itself")
    print("".join(f"{name:>17}" for name in ("Jaccard", *found)))
    theory = np.empty((len(JACCARDS), PAIRS))
    for row, similarity in enumerate(JACCARDS):
        texts, truth = pairs(similarity, shingles + config.ngram - 1, config.ngram, SEED + row)
        theory[row] = truth * (1 - truth) / k
        for name, estimates in found.items():
            estimates[row] = estimated(name, texts, config) - truth
        ratios = [rms(estimates[row]) / np.sqrt(theory[row].mean()) for estimates in found.values()]
        print(f"{truth.mean():>17.3f}" + "".join(f"{ratio:>17.3f}" for ratio in ratios))
    print(f"{'all':>17}" + "".join(f"{rms(x / np.sqrt(theory)):>17.3f}" for x in found.values()))
    count = theory.size**0.5
    print(f"{'bias / error':>17}" + "".join(f"{(x / np.sqrt(theory)).mean() * count:>17.2f}" for x in found.values()))
    print(flush=True)


def pairs(similarity: float, length: int, ngram: int, seed: int) -> tuple[list[str], Floats]:
    """2 x PAIRS random Han texts, two and two with a shared beginning, and the exact Jaccard of each pair."""
    generator, texts = np.random.default_rng(seed), []
    shared = round((length - ngram + 1) * 2 * similarity / (1 + similarity)) + ngram - 1
    for _ in range(PAIRS):
        common = generator.integers(*HAN, shared)
        for _ in range(2):
            ending = generator.integers(*HAN, length - shared)
            texts.append("".join(map(chr, [*common, *ending])))
    codes, offsets = fold(*text_buffers(pa.array(texts, pa.large_string())))
    forms = ["".join(map(chr, codes[a:b])) for a, b in pairwise(offsets)]
    sets = [set(_shingles(form, ngram)) for form in forms]
    truth = [len(a & b) / len(a | b) for a, b in zip(sets[::2], sets[1::2], strict=True)]
    return forms, np.array(truth)


def estimated(name: str, texts: Sequence[str], config: DedupConfig) -> Floats:
    """The share of equal minima of each pair of already folded texts."""
    if name == "library":
        from datasketch import MinHash

        sketches = [MinHash(num_perm=config.num_permutations) for _ in texts]
        for sketch, text in zip(sketches, texts, strict=True):
            sketch.update_batch(_shingles(text, config.ngram))
        signatures = np.stack([sketch.hashvalues for sketch in sketches])
    else:
        codes, offsets = fold(*text_buffers(pa.array(texts, pa.large_string())))
        signatures = SCHEMES[name](codes, offsets, config.ngram, config.num_permutations)
    return np.asarray((signatures[::2] == signatures[1::2]).mean(axis=1), np.float64)


def rms(errors: Floats) -> float:
    """The root of the mean square."""
    return float(np.sqrt((errors**2).mean()))

"""A shard of documents to everything the later stages need of it: keys, signatures, band records.

Every document has one record under its exact key, and one a band unless it is shorter than the shingle: such a document
has no n-gram, so it can only be an exact duplicate. It is never near anything and never dropped for being short.

`python -m tools.bench signatures` prints what each part costs: three fifths of the time are minima, a third is folding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from corpus.dedup.config import DedupConfig
from corpus.dedup.near.minhash import SCHEMES, SignatureArray, band_keys, exact_band_keys
from corpus.dedup.near.ranks import Facts, rank_words
from corpus.dedup.text.fold import fold
from corpus.dedup.text.hashing import Keys
from corpus.dedup.text.keys import KEY_DTYPE, DocumentKeys, document_keys, text_buffers
from corpus.filters.columns import id_array

APART = 0x9E3779B9  # of which both halves differ from 0: sketches are the lower one


@dataclass(frozen=True)
class Signed:
    """n documents; band records in no particular order."""

    keys: DocumentKeys  # KEY_DTYPE[n]
    signatures: SignatureArray  # uint32[n, k]
    band_keys: Keys
    band_rows: npt.NDArray[np.uint32]  # the document of each band record


def sign_texts(
    ids: pa.ChunkedArray | pa.Array, texts: pa.ChunkedArray | pa.Array, config: DedupConfig, facts: Facts | None = None
) -> Signed:
    """Sign one batch: columns of binary(16) and large_string, and what else ranks them; without it, length does.

    With `scripts = "keep"` the keys and minima of Traditional documents are other bijections of their shingles:
    editions never meet, and texts of one script are compared as ever.
    """
    offsets, data = text_buffers(texts)
    codes, code_offsets = fold(offsets, data)
    keys = document_keys(id_array(ids), offsets, data, codes, code_offsets)
    signatures = SCHEMES[config.scheme](codes, code_offsets, config.ngram, config.num_permutations)
    if facts is not None:
        keys["rank"] = rank_words(np.diff(code_offsets), facts, config)
        if config.scripts == "keep":
            keys["exact"][facts.traditional] ^= np.uint64(APART)
            signatures[facts.traditional] ^= np.uint32(APART)
    long_enough = np.flatnonzero(np.diff(code_offsets) >= config.ngram).astype(np.uint32)
    bands = band_keys(signatures[long_enough], config.bands, config.rows)
    rows = np.concatenate((np.arange(len(keys), dtype=np.uint32), np.repeat(long_enough, config.bands)))
    return Signed(keys, signatures, np.concatenate((exact_band_keys(keys["exact"]), bands.ravel())), rows)


def sign(batches: Sequence[Signed], config: DedupConfig) -> Signed:
    """Join the batches of a shard; there may be none."""
    starts = np.cumsum([0, *(len(batch.keys) for batch in batches)]).astype(np.uint32)
    return Signed(
        np.concatenate([np.empty(0, KEY_DTYPE), *(batch.keys for batch in batches)]),
        np.concatenate([np.empty((0, config.num_permutations), np.uint32), *(batch.signatures for batch in batches)]),
        np.concatenate([np.empty(0, np.uint64), *(batch.band_keys for batch in batches)]),
        np.concatenate(
            [np.empty(0, np.uint32), *(batch.band_rows + start for batch, start in zip(batches, starts, strict=False))]
        ),
    )

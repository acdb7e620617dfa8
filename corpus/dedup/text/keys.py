"""What deduplication knows of a document besides its signature: its exact key and its rank, 64 bytes a document.

Rank decides which of two duplicates stays: the higher rank word (near/ranks.py: source, script, worth, date), then more
bytes, then the smaller id, then the smaller digest of the raw text. All four come from the document and the recipe, so
the choice cannot depend on the order or the split of the inputs; documents equal in all are the same record read twice,
and either may stay.

Both digests and the rest cost 0.8 us a document of 2.2 KB.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpus.dedup.text.fold import Bytes, Codes, Offsets
from corpus.dedup.text.hashing import Keys
from corpus.filters.columns import one_chunk
from corpus.filters.statistic import buffers

KEY_DTYPE = np.dtype(
    [
        ("exact", "<u8", (2,)),  # xxh3-128 of the folded text
        ("rank", "<u8"),  # near/ranks.py
        ("num_bytes", "<u8"),
        ("id", "<u8", (2,)),
        ("digest", "<u8", (2,)),  # xxh3-128 of the text as it is
    ]
)
EARLIER = np.uint64(1 << 63)  # set in the rank of a document of an earlier build, which outranks all new ones
NOTHING_LEFT_SEED = 1  # sets raw keys apart from folded ones

DocumentKeys = npt.NDArray[np.void]


def document_keys(ids: Bytes, offsets: Offsets, data: Bytes, codes: Codes, code_offsets: Offsets) -> DocumentKeys:
    """Return one `KEY_DTYPE` record a document, its rank the number of its folded characters.

    Args:
        ids: uint8[n, 16].
        offsets, data: the texts, as in `fold`.
        codes, code_offsets: the same texts folded. One that folds to nothing (punctuation alone) is keyed by its raw
            bytes, so that 。。。 and ！！ are not called duplicates.
    """
    keys = np.empty(len(ids), KEY_DTYPE)
    texts, folded = data.data, codes.astype("<u4", copy=False).view(np.uint8).data
    bounds, folded_bounds = offsets.tolist(), (code_offsets * 4).tolist()
    digests, exact = bytearray(), bytearray()
    for i in range(len(ids)):
        text = texts[bounds[i] : bounds[i + 1]]
        form = folded[folded_bounds[i] : folded_bounds[i + 1]]
        digests += xxhash.xxh3_128_digest(text)
        exact += xxhash.xxh3_128_digest(form) if form else xxhash.xxh3_128_digest(text, seed=NOTHING_LEFT_SEED)
    keys["exact"] = _pairs(exact)
    keys["rank"] = np.diff(code_offsets)
    keys["num_bytes"] = np.diff(offsets)
    keys["id"] = _pairs(ids.tobytes())
    keys["digest"] = _pairs(digests)
    return keys


def id_bytes(keys: DocumentKeys) -> Bytes:
    """Return uint8[n, 16]: the documents' ids as they were given."""
    return id_words_bytes(keys["id"])


def id_words_bytes(words: Keys) -> Bytes:
    """Return uint8[n, 16] of the field `id` of KEY_DTYPE, uint64[n, 2]."""
    return words.astype(">u8").view(np.uint8).reshape(len(words), 16)


def text_buffers(column: pa.ChunkedArray | pa.Array) -> tuple[Offsets, Bytes]:
    """Return the offsets (int64[n + 1]) and bytes of a large_string column, without copying a single chunk."""
    return buffers(one_chunk(column.cast(pa.large_string())))


def _pairs(digests: bytes | bytearray) -> Keys:
    """16-byte digests as uint64[n, 2], most significant half first, so that numbers order as bytes do."""
    return np.frombuffer(bytes(digests), ">u8").reshape(-1, 2).astype("<u8")

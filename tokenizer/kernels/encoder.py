"""Arrow batches of text to ids: by the kernels of BPE (bpe.py) and Unigram (unigram.py), or by SentencePiece.

The ids are those of `Tokenizer.encode_batch`, always. Each model is tried when it is loaded, on every character of
plane 0, every piece beside its neighbours and long runs; `differing` compares some documents of each run (encode.py). A
model that no kernel encodes, or that differs, is left to SentencePiece.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenizer.kernels import bpe, unigram
from tokenizer.kernels.lexicon import UnsupportedError, read_lexicon
from tokenizer.kernels.text_kernels import Kernel
from tokenizer.model import CHUNK_CHARACTERS, PROBE, SPACE_MARK, Tokenizer
from tokenizer.pieces import BPE, UNIGRAM
from tokenizer.shards.record import DTYPES, Tokens, dtype_name
from tokenizer.shards.writer import narrow

SURROGATES = range(0xD800, 0xE000)
RUNS = (" ", "a", "的", "\n", "\0", SPACE_MARK, "=", "\U0002ffff", "ab ")
RUN_LENGTH = 500

_log = logging.getLogger(__name__)


class BatchEncoder:
    """Encodes Arrow batches with the ids of `Tokenizer.encode_batch`; may be used from several threads.

    `reason` says why SentencePiece does it for this model; None where a kernel does.
    """

    def __init__(self, tokenizer: Tokenizer, reason: str | None = None) -> None:
        """With a `reason`, SentencePiece does it for any model."""
        self._tokenizer = tokenizer
        self.dtype = DTYPES[dtype_name(tokenizer.vocab_size)]
        self._kernel: Kernel | None = None
        self.reason = reason
        if reason is None:
            try:
                kernel = build_kernel(tokenizer)
                self.reason = _trial(kernel, tokenizer)
                self._kernel = kernel if self.reason is None else None
            except UnsupportedError as error:
                self.reason = str(error)
            if self.reason is not None:
                _log.warning("%s: SentencePiece encodes, which is slower: %s.", tokenizer.path, self.reason)

    def encode(self, texts: pa.LargeStringArray) -> list[Tokens]:
        """The ids of each text in the dtype of token shards; texts are valid UTF-8 without nulls."""
        return _split(*self.encode_flat(texts))

    def encode_flat(self, texts: pa.LargeStringArray) -> tuple[Tokens, NDArray[np.int64]]:
        """The same, one text's ids behind another's, and how many each has."""
        if self._kernel is not None:
            return _encode_flat(self._kernel, texts, self.dtype)
        ids = self._tokenizer.encode_batch(texts.to_pylist())
        flat = np.concatenate(ids) if ids else np.empty(0, np.int32)
        return narrow(flat, self._tokenizer.vocab_size, "a batch"), np.array([len(some) for some in ids], np.int64)

    def differing(self, texts: pa.LargeStringArray) -> list[int]:
        """The rows whose ids are not SentencePiece's."""
        expected = self._tokenizer.encode_batch(texts.to_pylist())
        pairs = zip(self.encode(texts), expected, strict=True)
        return [row for row, (found, ids) in enumerate(pairs) if not np.array_equal(found, ids)]


@lru_cache(maxsize=1)
def batch_encoder(tokenizer: Tokenizer) -> BatchEncoder:
    """The encoder of a tokenizer, kept for the next shard: its tables and their trial take a second or two."""
    return BatchEncoder(tokenizer)


def build_kernel(tokenizer: Tokenizer) -> Kernel:
    """The kernel for a model.

    Raises:
        UnsupportedError: there is none.
    """
    lexicon = read_lexicon(tokenizer)
    if lexicon.model_type == BPE:
        return bpe.build_kernel(tokenizer, lexicon)
    if lexicon.model_type == UNIGRAM:
        return unigram.build_kernel(tokenizer, lexicon)
    raise UnsupportedError("it is neither BPE nor Unigram")


def encode_with(
    kernel: Kernel, texts: pa.LargeStringArray, dtype: np.dtype[Any], chunk_characters: int = CHUNK_CHARACTERS
) -> list[Tokens]:
    """The ids of each text by a kernel; the length of chunks is a parameter for tests."""
    return _split(*_encode_flat(kernel, texts, dtype, chunk_characters))


def _encode_flat(
    kernel: Kernel, texts: pa.LargeStringArray, dtype: np.dtype[Any], chunk_characters: int = CHUNK_CHARACTERS
) -> tuple[Tokens, NDArray[np.int64]]:
    """All ids and how many each text has; the ids are a view of more memory, which was not touched."""
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return np.empty(0, dtype), np.empty(0, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    ids = np.empty(int(bounds[-1] - bounds[0]), dtype)  # a byte is at most one token; pages not reached take no memory
    ends = np.empty(len(texts), np.int64)
    scratch = kernel.make_scratch(chunk_characters)
    count = kernel.encode(bounds, np.frombuffer(data or b"", np.uint8), kernel.tables, scratch, ids, ends)
    return ids[:count], np.diff(ends, prepend=0)


def _split(ids: Tokens, lengths: NDArray[np.int64]) -> list[Tokens]:
    ids = ids.copy()
    return [ids[start:stop] for start, stop in pairwise([0, *np.cumsum(lengths).tolist()])]


def _trial(kernel: Kernel, tokenizer: Tokenizer) -> str | None:
    """What differs from SentencePiece on the trial texts."""
    ids = range(tokenizer.vocab_size)
    pieces = [tokenizer.piece_bytes(id).decode("utf-8", "replace") for id in ids]
    plane = "".join(chr(code) for code in range(1 << 16) if code not in SURROGATES)
    texts = ["", PROBE, plane, "".join(pieces), "".join(reversed(pieces)), " ".join(pieces[::7])]
    texts += ["".join(tokenizer.piece(id) for id in ids if tokenizer.is_control(id))]
    texts += [unit * RUN_LENGTH for unit in RUNS]
    found = encode_with(kernel, pa.array(texts, pa.large_string()), DTYPES[dtype_name(tokenizer.vocab_size)])
    for text, some, expected in zip(texts, found, tokenizer.encode_batch(texts), strict=True):
        if not np.array_equal(some, expected):
            return f"its ids differ on a trial text of {len(text):,} characters that begins {text[:8]!r}"
    return None

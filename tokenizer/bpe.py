"""BPE without SentencePiece: from the UTF-8 bytes of an Arrow batch to ids, with no Python string between.

The rule (SentencePiece 0.2, bpe_model.cc): symbols are at first single characters; of all neighbours whose
concatenation is a piece, those that give the piece of the highest score are merged, the leftmost first, until none are
left. The trainer numbers pieces in the order of their scores, so the smallest id is the highest score.

Only models of this form are encoded here: BPE as `tokenizer.train` trains it. All others are left to SentencePiece, and
so is one whose ids differ on any of the texts that every model is tried on.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tokenizer.bpe_kernels import FREE, ID_BITS, NO_PIECE, Tables, encode, fill_joins, fill_merges, make_scratch
from tokenizer.model import CHUNK_CHARACTERS, PROBE, SPACE_MARK, Tokenizer
from tokenizer.shard_writer import narrow
from tokenizer.shards import DTYPES, Tokens, dtype_name

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
SHORT_CHUNK = 48  # symbols; longer chunks are merged by a heap
JOIN_BITS = 16  # of the filter, for each pair: at most one in sixteen others passes

_log = logging.getLogger(__name__)


class UnsupportedError(Exception):
    """A model is not of the form that the kernels encode; the message says why."""


class BatchEncoder:
    """Encodes Arrow batches with the ids of `Tokenizer.encode_batch`; may be used from several threads.

    `reason` says why SentencePiece does it for this model; None where the kernels do.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._dtype = DTYPES[dtype_name(tokenizer.vocab_size)]
        self._tables: Tables | None = None
        self.reason: str | None
        try:
            tables = build_tables(tokenizer)
        except UnsupportedError as error:
            self.reason = str(error)
            return
        self.reason = _difference(tables, tokenizer)
        if self.reason is None:
            self._tables = tables
        else:
            _log.warning("%s: SentencePiece encodes, which is slower: %s.", tokenizer.path, self.reason)

    def encode(self, texts: pa.LargeStringArray) -> list[Tokens]:
        """The ids of each text in the dtype of token shards; texts are valid UTF-8 without nulls."""
        if self._tables is not None:
            return encode_with(self._tables, texts, self._dtype)
        size = self._tokenizer.vocab_size
        return [narrow(ids, size, "a document") for ids in self._tokenizer.encode_batch(texts.to_pylist())]


@lru_cache(maxsize=1)
def batch_encoder(tokenizer: Tokenizer) -> BatchEncoder:
    """The encoder of a tokenizer, kept for the next shard: its tables and their trial take some tenths of a second."""
    return BatchEncoder(tokenizer)


def encode_with(
    tables: Tables,
    texts: pa.LargeStringArray,
    dtype: np.dtype[Any],
    *,
    chunk_characters: int = CHUNK_CHARACTERS,
    short_chunk: int = SHORT_CHUNK,
) -> list[Tokens]:
    """The ids of each text by the kernels; the two limits are parameters for tests."""
    _, offsets, data = texts.buffers()
    if not len(texts) or offsets is None:
        return []
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    ids = np.empty(int(bounds[-1] - bounds[0]), dtype)  # a byte is at most one token; pages not reached take no memory
    ends = np.empty(len(texts), np.int64)
    count = encode(
        bounds, np.frombuffer(data or b"", np.uint8), tables, make_scratch(chunk_characters), short_chunk, ids, ends
    )
    ids = ids[:count].copy()
    return [ids[start:stop] for start, stop in pairwise([0, *ends.tolist()])]


def build_tables(tokenizer: Tokenizer) -> Tables:
    """The tables of a vocabulary.

    Raises:
        UnsupportedError: it is not BPE of the form that `tokenizer.train` gives.
    """
    ids = _pieces(tokenizer)
    characters = {piece for piece in ids if len(piece) == 1}
    joined = {pair for piece in ids for pair in pairwise(piece)}
    inside = {character for pair in joined for character in pair}
    if inside - characters:
        raise UnsupportedError("a character has no piece of its own, but is part of one")
    if "\n" in inside:
        raise UnsupportedError("a newline is part of a longer piece, so cutting long texts there would change ids")
    spelled = np.array([tokenizer.processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)], np.int32)
    symbols = np.full(CODE_POINTS, NO_PIECE, np.int32)
    for character in characters:
        if character.isascii() and character not in inside:  # such a byte is this character in every text
            spelled[ord(character)] = ids[character]
        else:
            symbols[ord(character)] = ids[character]
    pairs = np.array([(ids[left], ids[right]) for left, right in joined], np.uint64).reshape(-1, 2)
    joins = np.zeros(max(64, 1 << (JOIN_BITS * len(pairs)).bit_length()) >> 3, np.uint8)
    fill_joins(pairs, joins)
    rules = np.array([rule for piece, id in ids.items() for rule in _splits(piece, id, ids)], np.uint64).reshape(-1, 3)
    merges = np.full(1 << max(4, (2 * len(rules)).bit_length()), FREE, np.uint64)
    fill_merges(rules, merges)
    return Tables(symbols, spelled, joins, merges)


def _pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids of what the trainer made; a space is a space here."""
    processor = tokenizer.processor
    if tokenizer.vocab_size > 1 << ID_BITS:
        raise UnsupportedError(f"it has more than {1 << ID_BITS:,} pieces")
    normal = [id for id in range(tokenizer.vocab_size) if not (tokenizer.is_control(id) or tokenizer.is_byte(id))]
    if [processor.get_score(id) for id in normal] != [-rank for rank in range(len(normal))]:
        raise UnsupportedError("its scores are not the order of BPE merges (another kind of model, or added pieces)")
    if any(processor.is_unused(id) for id in normal):
        raise UnsupportedError("some pieces are marked as unused")
    controls = set(range(tokenizer.vocab_size)) - set(normal)
    if any(len(tokenizer.piece(id)) == 1 for id in controls):
        raise UnsupportedError("a control symbol is a single character")
    pieces = {tokenizer.piece(id).replace(SPACE_MARK, " "): id for id in normal}
    if " " not in pieces or len(pieces) < len(normal):
        raise UnsupportedError("it has no piece for a space, or two")
    return pieces


def _splits(piece: str, id: int, ids: dict[str, int]) -> list[tuple[int, int, int]]:
    """Each way to merge a piece out of two others."""
    parts = [(ids.get(piece[:at]), ids.get(piece[at:])) for at in range(1, len(piece))]
    return [(left, right, id) for left, right in parts if left is not None and right is not None]


def _difference(tables: Tables, tokenizer: Tokenizer) -> str | None:
    """What differs from SentencePiece on every character of plane 0, every piece beside its neighbours, and long runs."""
    pieces = [tokenizer.piece_bytes(id).decode("utf-8", "replace") for id in range(tokenizer.vocab_size)]
    plane = "".join(chr(c) for c in range(1 << 16) if c not in SURROGATES)
    texts = ["", PROBE, plane, "".join(pieces), "".join(reversed(pieces)), " ".join(pieces[::7])]
    texts += [unit * 500 for unit in (" ", "a", "的", "\n", "\0", SPACE_MARK, "=", "\U0002ffff", "ab ")]
    found = encode_with(tables, pa.array(texts, pa.large_string()), DTYPES[dtype_name(tokenizer.vocab_size)])
    for text, ids, expected in zip(texts, found, tokenizer.encode_batch(texts), strict=True):
        if not np.array_equal(ids, expected):
            return f"its ids differ on a trial text of {len(text):,} characters that begins {text[:8]!r}"
    return None

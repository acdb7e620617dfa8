"""A trained tokenizer: text to ids and back, exactly. sentencepiece is imported when a model is opened.

decode(encode(text)) == text for every text that is valid Unicode (no lone surrogates). SentencePiece alone does not
give that, nor bounded time:

- It writes a space as U+2581 and so reads a real U+2581 as a space. Here U+2581 is spelled in its three bytes.
- One long line costs more than its length: 16 MB of spaces took 7 s and 850 MB of memory, 1 MB 0.3 s. Here a text
  longer than 65,536 characters is cut after the last newline of each 65,536 or, where there is none, at their end.
  No piece but the newline itself holds a newline, so the first kind of cut changes no id; the second may spell the
  characters around it differently, always in the same way. The same 16 MB then take 4 s and no memory to speak of.

Control symbols are ids that no text produces: "<|endoftext|>" in a text stays thirteen characters.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corpus.engine import durable
from corpus.engine.errors import WenhaiError

EOD_PIECE = "<|endoftext|>"
TRAIN_ANEW = "Train one with `python -m tokenizer run`."
SPACE_MARK = "\u2581"
MAX_MODEL_BYTES = 64 << 20
CHUNK_CHARACTERS = 1 << 16
PROBE = "  学而时习之，不亦说乎！\r\n\n\tＡ１　e\u0301ﬁ  "  # what normalisers change
_SPACE_MARKS = re.compile("(\u2581+)")

Ids = NDArray[np.int32]


class TokenizerError(WenhaiError):
    """A model file cannot be used, or a text cannot be encoded."""


class Tokenizer:
    """A SentencePiece model trained by `tokenizer.train`.

    Args:
        path: the `.model` file, the folder of a tokenizer stage, or an output folder that holds one.

    Raises:
        TokenizerError: the file is missing, not a model, or lacks what exactness needs (bytes, end-of-document symbol).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = model_path(Path(path))
        try:
            with open(self.path, "rb") as file:
                data = file.read(MAX_MODEL_BYTES + 1)
        except OSError as error:
            raise TokenizerError(f"{self.path}: cannot be read ({error.strerror}).") from error
        if len(data) > MAX_MODEL_BYTES:
            raise TokenizerError(f"{self.path}: larger than {MAX_MODEL_BYTES:,} bytes; this is not a tokenizer.")
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.processor = _load(data, str(self.path))  # SentencePiece's own object
        self.vocab_size: int = self.processor.vocab_size()
        self.eod: int = self.processor.piece_to_id(EOD_PIECE)
        if not self.processor.is_control(self.eod):
            raise TokenizerError(f"{self.path}: has no control symbol {EOD_PIECE}. {TRAIN_ANEW}")
        self._bytes = _piece_bytes(self.processor, str(self.path))
        self._space_mark = np.array([self._bytes.index(bytes([byte])) for byte in SPACE_MARK.encode()], np.int32)
        if self.decode(self.encode(PROBE)) != PROBE:
            raise TokenizerError(f"{self.path}: changes text (its normaliser is not the identity). {TRAIN_ANEW}")

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Path]]:
        return Tokenizer, (self.path,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without an end-of-document token.

        Raises:
            TokenizerError: the text holds lone surrogates, which are not Unicode text.
        """
        ids: list[int] = self.encode_batch([text])[0].tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts, int32 each; equal to `encode` of each."""
        is_plain = [len(text) <= CHUNK_CHARACTERS and SPACE_MARK not in text for text in texts]
        ids = self._encode_plain([text if plain else "" for text, plain in zip(texts, is_plain, strict=True)])
        for index, plain in enumerate(is_plain):
            if not plain:
                ids[index] = np.concatenate([self._encode_chunk(chunk) for chunk in _chunks(texts[index])])
        return ids

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids; control symbols give nothing, bytes that are no UTF-8 (a cut character) give U+FFFD.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: ArrayLike) -> bytes:
        """What ids stand for in UTF-8, also where they begin or end inside a character.

        Raises:
            TokenizerError: an id is outside the vocabulary.
        """
        try:
            values = np.asarray(ids, dtype=np.int64).tolist()
            if values and min(values) < 0:
                raise IndexError
            return b"".join([self._bytes[value] for value in values])
        except (IndexError, OverflowError):
            raise TokenizerError(f"{self.path}: ids outside 0..{self.vocab_size - 1} cannot be decoded.") from None

    def piece(self, id: int) -> str:
        """The piece of an id as the vocabulary spells it: U+2581 for a space, <0xE4> for a byte."""
        return str(self.processor.id_to_piece(id))

    def piece_bytes(self, id: int) -> bytes:
        """The UTF-8 bytes an id stands for; none for a control symbol."""
        return self._bytes[id]

    def is_byte(self, id: int) -> bool:
        """Whether an id is a byte of a character that has no piece."""
        return bool(self.processor.is_byte(id))

    def is_control(self, id: int) -> bool:
        """Whether an id is one that no text produces."""
        return bool(self.processor.is_control(id) or self.processor.is_unknown(id))

    def _encode_chunk(self, chunk: str) -> Ids:
        """The ids of a chunk in which U+2581 may stand: what is between is encoded alone."""
        parts = _SPACE_MARKS.split(chunk)  # text, marks, text, marks, ..., text
        ids = [np.tile(self._space_mark, len(part)) for part in parts]
        ids[::2] = self._encode_plain(parts[::2])
        return np.concatenate(ids)

    def _encode_plain(self, texts: list[str]) -> list[Ids]:
        try:
            ids: list[Ids] = self.processor.encode(texts, return_type="numpy", num_threads=1)
        except TypeError:  # what sentencepiece makes of a str that UTF-8 cannot spell
            raise TokenizerError("a text with lone surrogates cannot be encoded: decode its bytes as UTF-8.") from None
        return ids


def model_path(path: Path) -> Path:
    """The model file: `path` itself, or the one that the manifest of its tokenizer stage lists."""
    if not path.is_dir():
        return path
    if not (path / "MANIFEST.json").is_file():
        try:
            path = path / durable.read_json(path / "run.json")["stages"]["tokenizer"]["folder"]
        except (WenhaiError, KeyError, TypeError):
            raise TokenizerError(
                f"{path}: no finished tokenizer here. Run `python -m tokenizer run --out {path}` or name a model file."
            ) from None
    return path / "model" / "tokenizer.model"


def _chunks(text: str) -> Iterator[str]:
    """Parts of bounded length, cut after newlines where there are any."""
    start = 0
    while len(text) - start > CHUNK_CHARACTERS:
        newline = text.rfind("\n", start, start + CHUNK_CHARACTERS)
        stop = newline + 1 if newline >= start else start + CHUNK_CHARACTERS
        yield text[start:stop]
        start = stop
    yield text[start:]


def _load(data: bytes, where: str) -> Any:
    import sentencepiece

    try:
        if not data:
            raise ValueError("empty")
        return sentencepiece.SentencePieceProcessor(model_proto=data)
    except (RuntimeError, ValueError, TypeError) as error:
        raise TokenizerError(f"{where}: not a SentencePiece model. {TRAIN_ANEW}") from error


def _piece_bytes(processor: Any, where: str) -> list[bytes]:
    """What each id stands for in UTF-8. Decoding by this table is SentencePiece's, without its special cases."""
    table: list[bytes] = []
    for id in range(processor.vocab_size()):
        piece: str = processor.id_to_piece(id)
        if processor.is_control(id) or processor.is_unknown(id):
            table.append(b"")
        elif processor.is_byte(id):
            table.append(bytes([int(piece[3:5], 16)]))
        else:
            table.append(piece.replace(SPACE_MARK, " ").encode())
    if len({entry for id, entry in enumerate(table) if processor.is_byte(id)}) != 256:
        raise TokenizerError(f"{where}: lacks byte pieces, so not every text has ids. {TRAIN_ANEW}")
    return table

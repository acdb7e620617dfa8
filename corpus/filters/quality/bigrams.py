"""Does a text's order of characters mean anything? Association of adjacent Han characters under a small table.

Scrambled characters, word salad and text decoded wrongly keep the characters of Chinese and lose their order. The
statistic is pointwise mutual information: how much more often two characters stand side by side than their own
frequencies explain. Because every pair is compared with chance for *its* characters, rare names and terms of a trade
cost nothing (nothing was expected of them), and the table's own subject matters little: it is counted from
documentation, classical verse and a word list, and serves web pages.

`bigrams.table` (`python -m tools.bigram_table` makes it; `bigrams.txt` names its sources and their licences) holds
4,095 characters by frequency, Traditional ones folded into Simplified, and the pairs that matter; any other pair scores
what an unseen one does. Loading unfolds it to one byte a pair (16 MB), so the kernel does one lookup a character. Sums
are integers: a document's value depends on nothing but its text.

File: the line `wenhai bigrams 1`, a line of JSON (`digest`: sha256 of the payload; `chars`, `pairs`, `unit`: scores
are in 1/unit nat; `smoothing`, `total`), then zlib of the payload: the characters as UTF-16, their log counts (int16,
1/unit nat), the pairs as differences of row * 4096 + column in LEB128, their scores (int8).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.engine.errors import WenhaiError
from corpus.filters.statistic import Batch, Floats, Ints, statistic
from corpus.kernels.tables import script_pairs

Array = npt.NDArray[Any]

PATH = Path(__file__).with_name("bigrams.table")
MAGIC = b"wenhai bigrams 1\n"
SIZE = 4096  # rows and columns; 0 is every other character
MAX_PAYLOAD_BYTES = 4 << 20
MAX_SCORE = 127
PRIOR_PAIRS = 20  # pairs of score 0 that every document is given, so that little evidence decides little
MIN_PAIRS = 10  # below it there is no perplexity
PAIRS, SCORE, LOG_PROBABILITY = range(3)  # columns of `measure_bigrams`
NUM_COLUMNS = 3


class Bigrams:
    """The table, unfolded when it is first used.

    `characters` are the SIZE - 1 characters by frequency; `log_counts`, int16 of them, and `scores`, int8 of `pairs`
    (row * SIZE + column, ascending), are in 1/unit nat.
    """

    def __init__(self, path: Path = PATH) -> None:
        try:
            self._read(path.read_bytes())
        except (OSError, LookupError, TypeError, ValueError, RecursionError, zlib.error) as error:
            raise WenhaiError(f"{path}: not the table that was shipped. Install the package again.") from error

    def _read(self, data: bytes) -> None:
        header, _, packed = data.removeprefix(MAGIC).partition(b"\n")
        about = json.loads(header)
        payload = zlib.decompressobj().decompress(packed, MAX_PAYLOAD_BYTES)
        if not data.startswith(MAGIC) or hashlib.sha256(payload).hexdigest() != about["digest"]:
            raise ValueError("its first line, or the sha256 of its payload, differs")
        self.digest: str = about["digest"]
        self.unit, self.smoothing, total = int(about["unit"]), float(about["smoothing"]), float(about["total"])
        chars, pairs = about["chars"], about["pairs"]
        if min(self.unit, self.smoothing, total, chars, pairs) <= 0:
            raise ValueError("a number of its header is not above 0")
        self.log_total: float = float(np.log(total))
        self.characters = payload[: 2 * chars].decode("utf-16-le")
        self.log_counts = np.frombuffer(payload, "<i2", chars, 2 * chars)
        self.scores = np.frombuffer(payload, np.int8, pairs, len(payload) - pairs)
        self.pairs = np.cumsum(_leb128(np.frombuffer(payload, np.uint8)[4 * chars : len(payload) - pairs]))
        if len(self.pairs) != pairs:
            raise ValueError("its numbers of pairs and of scores differ")

    @cached_property
    def numbers(self) -> npt.NDArray[np.uint16]:
        """uint16[0x10000]: the row of each character of the basic plane, Traditional as Simplified; 0 for others."""
        numbers = np.zeros(0x10000, np.uint16)
        for number, character in enumerate(self.characters, 1):
            numbers[ord(character)] = number
        for traditional, simplified in script_pairs()[0].items():
            if ord(traditional) < 0x10000 and ord(simplified) < 0x10000:
                numbers[ord(traditional)] = numbers[ord(simplified)]
        return numbers

    @cached_property
    def matrix(self) -> npt.NDArray[np.int8]:
        """int8[SIZE * SIZE]: the score of every pair. An unseen one has log(k / (expected + k)), k the smoothing."""
        level = np.zeros(SIZE, np.int64)
        level[1 : 1 + len(self.log_counts)] = self.log_counts
        expected = np.exp(np.arange(2 * level.max() + 1) / self.unit - self.log_total)  # by sum of two levels
        unseen = np.rint(self.unit * expected_score(0.0, expected, self.smoothing)).clip(-MAX_SCORE).astype(np.int8)
        matrix = np.empty((SIZE, SIZE), np.int8)
        for row in range(SIZE):
            matrix[row] = unseen[level[row] + level]
        flat = matrix.reshape(-1)
        flat[self.pairs] = self.scores
        return flat

    @cached_property
    def log_probabilities(self) -> npt.NDArray[np.int16]:
        """int16[SIZE]: log p of each character, in 1/unit nat."""
        out = np.zeros(SIZE, np.int16)
        out[1 : 1 + len(self.log_counts)] = self.log_counts - round(self.unit * self.log_total)
        return out

    def measure(self, offsets: Ints, data: npt.NDArray[np.uint8]) -> Ints:
        """int64[documents, NUM_COLUMNS]: pairs, and the sums of their scores and of log p of their second character."""
        out = np.empty((len(offsets) - 1, NUM_COLUMNS), np.int64)
        measure_bigrams(offsets, data, self.numbers, self.matrix, self.log_probabilities, out)
        return out


@lru_cache(maxsize=1)
def load_bigrams() -> Bigrams:
    """The shipped table, read once a process."""
    return Bigrams()


def expected_score(count: Any, expected: Any, smoothing: float) -> Any:
    """log((count + k) / (expected + k)): mutual information that needs evidence; unseen and unexpected is 0."""
    return np.log((count + smoothing) / (expected + smoothing))


def pack(header: dict[str, Any], characters: str, log_counts: Array, pairs: Array, scores: Array) -> bytes:
    """The bytes of a table file; `Bigrams` reads them back."""
    payload = (
        characters.encode("utf-16-le")
        + log_counts.astype("<i2").tobytes()
        + _to_leb128(np.diff(pairs, prepend=0))
        + scores.astype(np.int8).tobytes()
    )
    about = header | {
        "digest": hashlib.sha256(payload).hexdigest(),
        "chars": len(characters),
        "pairs": len(pairs),
    }
    return MAGIC + json.dumps(about, sort_keys=True).encode() + b"\n" + zlib.compress(payload, 9)


def _to_leb128(values: Array) -> bytes:
    out = bytearray()
    for value in values.tolist():
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def _leb128(data: Array) -> Array:
    """Numbers of at most four bytes, seven bits each, low ones first."""
    last = np.flatnonzero(data < 0x80)
    first = np.concatenate(([0], last[:-1] + 1))
    values = np.zeros(len(last), np.int64)
    for k in range(4):
        position = first + k
        inside = position <= last
        values[inside] |= (data[position[inside]].astype(np.int64) & 0x7F) << (7 * k)
    return values


@kernel()
def measure_bigrams(
    offsets: Array, data: Array, numbers: Array, matrix: Array, log_probabilities: Array, out: Array
) -> None:
    """Sums over adjacent pairs of known Han characters of each document; anything else between two parts them."""
    for row in range(len(offsets) - 1):
        pairs = score = log_probability = 0
        previous = np.int64(0)
        i = offsets[row]
        end = offsets[row + 1]
        while i < end:
            byte = data[i]
            if byte & 0xF0 == 0xE0 and i + 2 < end:
                code = (
                    (np.int64(byte & 0x0F) << 12) | (np.int64(data[i + 1] & 0x3F) << 6) | np.int64(data[i + 2] & 0x3F)
                )
                i += 3
                number = np.int64(numbers[code])
                if number > 0 and previous > 0:
                    pairs += 1
                    score += matrix[previous * SIZE + number]
                    log_probability += log_probabilities[number]
                previous = number
            else:
                i += 1
                previous = np.int64(0)
        out[row, 0] = pairs
        out[row, 1] = score
        out[row, 2] = log_probability


@statistic(unit="nats")
def bigram_association(batch: Batch) -> Floats:
    """Mean over adjacent Han pairs ab of log((n(ab) + k) / (n(a) n(b) / N + k)): smoothed mutual information, k = 3.

    0 is chance; text is above, whatever its age or subject, and scrambled text below. Each document has 20 pairs of
    score 0 besides its own.

    >>> from corpus.filters import measure
    >>> measure("quality.bigram_association", ["请在菜单中选择要打开的文件", "件选在文要请的择打中开单菜"]).round(1)
    array([ 1. , -0.5])
    """
    counted = batch.bigrams
    unit = batch.resources.bigrams.unit
    pairs = counted[:, PAIRS]
    return np.asarray(counted[:, SCORE] / (pairs + PRIOR_PAIRS) / unit, np.float64)


@statistic(unit="perplexity")
def bigram_perplexity(batch: Batch) -> Floats:
    """exp of minus the mean of log p(b|a) = association + log p(b): how many characters a reader of pairs hesitates
    over.

    Not normalised over b (the table is smoothed and cut), so good for comparing documents only. 0 for fewer than 10
    pairs.

    >>> from corpus.filters import measure
    >>> measure("quality.bigram_perplexity", ["学而时习之", "件选在文要请的择打中开单菜"]).round(-2)
    array([  0., 2200.])
    """
    counted = batch.bigrams
    unit = batch.resources.bigrams.unit
    pairs = counted[:, PAIRS]
    mean = (counted[:, SCORE] + counted[:, LOG_PROBABILITY]) / np.maximum(pairs, 1) / unit
    return np.where(pairs >= MIN_PAIRS, np.exp(-mean), 0.0)

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

File: an .npz archive, whose members have checksums: `characters` as UTF-16, their `log_counts` (int16, 1/unit nat), the
pairs as differences of row * 4096 + column (`gaps`, uint16), their `scores` (int8, 1/unit nat), `unit`, `smoothing`,
`total`, and a `digest` of these.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from corpus.engine.compiled import kernel
from corpus.engine.errors import WenhaiError
from corpus.filters.statistic import Batch, Floats, Ints, statistic
from corpus.kernels.tables import script_pairs

Array = npt.NDArray[Any]

PATH = Path(__file__).with_name("bigrams.table")
SIZE = 4096  # rows and columns; 0 is every other character
MAX_SCORE = 127
PRIOR_PAIRS = 20  # pairs of score 0 that every document is given, so that little evidence decides little
MIN_PAIRS = 10  # below it there is no perplexity
PAIRS, SCORE, LOG_PROBABILITY = range(3)  # columns of `measure_bigrams`
NUM_COLUMNS = 3
DAMAGE = (
    *(OSError, EOFError, LookupError, AttributeError, TypeError, ValueError, BadZipFile, zlib.error),
    *(RuntimeError, struct.error, MemoryError),  # of a flipped flag, method or shape
)


class Bigrams:
    """The table, unfolded when it is first used.

    `characters` are the SIZE - 1 characters by frequency; `log_counts`, int16 of them, and `scores`, int8 of `pairs`
    (row * SIZE + column, ascending), are in 1/unit nat.
    """

    def __init__(self, path: Path = PATH) -> None:
        self.path = path
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as table:
                self.digest = str(table["digest"])
                self.unit, self.smoothing = int(table["unit"]), float(table["smoothing"])
                self.log_total = float(np.log(table["total"]))
                self.characters = table["characters"].tobytes().decode("utf-16-le")
                self.log_counts, self.scores = table["log_counts"], table["scores"]
                self.pairs = np.cumsum(table["gaps"], dtype=np.int64)
        except DAMAGE as error:
            raise WenhaiError(f"{path}: not the table that was shipped. Install the package again.") from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Read again by other processes, and laid out there: 17 MB once it was used."""
        return (load_bigrams, ()) if self.path == PATH else (Bigrams, (self.path,))

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
    gaps = np.diff(pairs, prepend=0)
    assert gaps.max(initial=0) < 1 << 16
    arrays = {
        "characters": np.frombuffer(characters.encode("utf-16-le"), "<u2"),
        "log_counts": log_counts.astype("<i2"),
        "gaps": gaps.astype("<u2"),
        "scores": scores.astype(np.int8),
    }
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    file = io.BytesIO()
    np.savez_compressed(file, digest=digest, **header | arrays)
    return file.getvalue()


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

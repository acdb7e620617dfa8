"""A linear quality model over hashed character n-grams: what kind of text a document is, and how surely a good one.

The model is multinomial logistic regression on the mean of per-n-gram weights, so a document's score is one table
lookup an n-gram and a class. A fastText classifier is the same sum after its embedding and output matrices are
multiplied, which its own `predict` never does. Weights are int16 and sums are integers: a score depends on nothing but
the text. Text is seen folded as word lists see it (half-width, lower case, Simplified), digits as one, a run of white
space as one space: script and typing habits are no sign of quality.

A recipe names a file of its own, [filter.quality] model = "quality.model", or "kinds", which ships with the package
(docs/quality.md). `python -m corpus quality train` makes the one, tools/train_kinds.py made the other.

File: the line `wenhai quality 1`, a line of JSON (`Header`), then int16 weights, little endian, [buckets, classes - 1]:
the first class is the reference with weight 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pydantic

from corpus.engine import durable
from corpus.engine.compiled import kernel
from corpus.engine.config import Strict
from corpus.engine.errors import UsageError
from corpus.filters.statistic import Batch, Floats, Ints, statistic
from corpus.filters.statistics.length import HAN_CLASSES
from corpus.kernels.code_points import decode
from corpus.kernels.folding import matching_table
from corpus.kernels.tables import CLASS_MASK, CODE_POINTS, LATIN, OTHER, class_table

Array = npt.NDArray[Any]

MAGIC = b"wenhai quality 1\n"
MAX_HEADER_BYTES = 64 << 10
MIN_BITS, MAX_BITS = 12, 22
MAX_CLASSES = 13
ORDERS = (1, 2, 3)
GOOD, ADVERTISEMENT = "good", "advertisement"
KINDS = (
    GOOD, ADVERTISEMENT, "advertorial", "spun", "machine_translated", "generated", "error_login", "navigation",
    "ocr_noise", "adult_gambling", "garbled",
)  # fmt: skip  # of corpus/quality/rubric.md
MODEL_STATISTICS = ("score", ADVERTISEMENT, "kind")
BUILT_IN = {  # by name; sha256
    "kinds": (
        Path(__file__).with_name("kinds.model"),
        "afff9fa17e12e5815b12ae0107f8fd08524f2f11dead0002da6133b0b7b02c47",
    )
}
MAX_WEIGHTS = {2: 32767, 3: 2047}  # by lanes: of up to 9 classes, of more
MAX_NATS = 1e6  # beyond anything trained; keeps logits finite: a NaN would read as "not measured" and pass every rule
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, 2^64 / golden ratio
SPACE = 32
WORDS = 4  # of a bucket's weights in memory, each of 2 or 3 lanes, so that one addition serves all of a word's classes
LANES = {2: 32, 3: 21}  # bits of each; a block's sum of weights, moved up to be positive, fits in
CHARACTER_BITS = np.uint64(21)
CHARACTER_MASK = np.uint64((1 << 21) - 1)
READ_BYTES = 64 << 10  # of a text whose n-grams are told one by one
BLOCK = 512  # buckets that wait for their weights: finding them first and loading then is faster than by turns

Characters = Literal["folded", "han", "letters"]  # what n-grams are of, `feature_table`


class Header(Strict):
    """What a model file says of itself. `trained` is free: counts, digests of inputs, versions, held-out quality."""

    classes: tuple[str, ...] = pydantic.Field(min_length=2, max_length=MAX_CLASSES, strict=False)
    orders: tuple[int, ...] = pydantic.Field(min_length=1, strict=False)
    bits: int = pydantic.Field(ge=MIN_BITS, le=MAX_BITS)
    seed: int = pydantic.Field(ge=0, lt=1 << 63)
    characters: Characters = "folded"
    unit: float = pydantic.Field(gt=0, le=MAX_NATS)  # a weight of 1 in the file, in nats
    bias: tuple[Annotated[float, pydantic.Field(ge=-MAX_NATS, le=MAX_NATS)], ...] = pydantic.Field(
        strict=False
    )  # of every class but the first, nats
    temperature: float = pydantic.Field(ge=1 / MAX_NATS, le=MAX_NATS)  # logits are divided by it
    weights: str  # sha256
    trained: dict[str, Any] = {}

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.classes)) != len(self.classes) or len(self.bias) != len(self.classes) - 1:
            raise ValueError("classes must differ, and all but the first have a bias")
        if sorted(set(self.orders)) != list(self.orders) or not set(self.orders) <= set(ORDERS):
            raise ValueError("n-gram orders are some of 1, 2, 3, ascending")
        return self


class Model:
    """A trained model; `digest` is the sha256 of its file."""

    def __init__(self, header: Header, weights: npt.NDArray[np.int16]) -> None:
        self.header = header
        self.classes = header.classes
        self.weights = weights
        self._lanes = lanes_of(header.classes)
        self._packed = _pack(weights, self._lanes)
        self.digest = hashlib.sha256(self.to_bytes()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """A built-in one is read again by other processes; of another its file's content travels."""
        built_in = [name for name, (_, sha256) in BUILT_IN.items() if sha256 == self.digest]
        return (load_model, (built_in[0],)) if built_in else (Model, (self.header, self.weights))

    def to_bytes(self) -> bytes:
        """The file."""
        fields = self.header.model_dump(mode="json", exclude_defaults=True)
        header = json.dumps(fields, ensure_ascii=False, sort_keys=True)
        return MAGIC + header.encode() + b"\n" + self.weights.astype("<i2").tobytes()

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        durable.write_bytes(path, self.to_bytes())

    def logits(self, offsets: Ints, data: npt.NDArray[np.uint8]) -> Floats:
        """float64[documents, classes]: log-odds against the first class, nats, before the temperature."""
        header = self.header
        sums = np.zeros((len(offsets) - 1, WORDS * self._lanes + 1), np.int64)
        score_ngrams(
            offsets, data, feature_table(header.characters), order_mask(header.orders), header.bits,
            np.uint64(header.seed), self._packed, self._lanes, LANES[self._lanes], sums,
        )  # fmt: skip
        counts = sums[:, -1:]
        weights = sums[:, : len(self.classes) - 1] - counts * (MAX_WEIGHTS[self._lanes] + 1)
        mean = weights * header.unit / np.maximum(counts, 1)
        return np.hstack((np.zeros((len(mean), 1)), mean + np.array(header.bias)))

    def measure(self, offsets: Ints, data: npt.NDArray[np.uint8]) -> Floats:
        """float64[documents, classes]: probabilities. A text without an n-gram has those of the biases."""
        return softmax(self.logits(offsets, data) / self.header.temperature)

    def contributions(self, text: str) -> dict[str, tuple[int, float]]:
        """{n-gram as the model sees it: (how often, nats)} of the first `READ_BYTES`: what all of its places together
        add to the log-odds of the first class.

        With the bias they add up to the log-odds against one other class. Of several other classes each weighs as
        much as the text looks like it, which is the gradient of the log-odds.
        """
        header = self.header
        found: list[str] = []
        counts, rows = [np.zeros(0, np.int64)], [np.zeros((0, len(self.classes) - 1), np.int16)]
        codes = _seen(text.encode()[:READ_BYTES].decode("utf-8", "ignore"), feature_table(header.characters))
        for order in header.orders:
            if len(codes) < order:
                break
            shifts = np.uint64(21) * np.arange(order, dtype=np.uint64)[::-1]
            packed = (np.lib.stride_tricks.sliding_window_view(codes, order) << shifts).sum(axis=1, dtype=np.uint64)
            ngrams, times = np.unique(packed, return_counts=True)
            places = bucket(ngrams, np.uint64(header.seed), np.uint64(64 - header.bits))
            letters = (ngrams[:, None] >> shifts) & CHARACTER_MASK
            found += ["".join(map(chr, ngram)) for ngram in letters.tolist()]
            counts.append(times)
            rows.append(self.weights[places])
        times, weights = np.concatenate(counts), np.concatenate(rows) * header.unit
        weights = weights * times[:, None] / max(1, times.sum()) / header.temperature
        others = softmax((weights.sum(axis=0) + np.array(header.bias) / header.temperature)[None])[0]
        return dict(zip(found, zip(times.tolist(), (-weights @ others).tolist(), strict=True), strict=True))


def lanes_of(classes: Sequence[str]) -> int:
    """How many of a model's classes share a word."""
    return 2 if len(classes) - 1 <= 2 * WORDS else 3


def _pack(weights: npt.NDArray[np.int16], lanes: int) -> npt.NDArray[np.uint64]:
    """uint64[buckets * WORDS]: weights, moved up to be positive, in lanes of words."""
    columns = np.zeros((len(weights), WORDS * lanes), np.uint64)
    columns[:, : weights.shape[1]] = (weights.astype(np.int64) + MAX_WEIGHTS[lanes] + 1).astype(np.uint64)
    shifts = np.arange(lanes, dtype=np.uint64) * np.uint64(LANES[lanes])
    return np.ascontiguousarray((columns.reshape(-1, lanes) << shifts).sum(axis=1, dtype=np.uint64))


def _seen(text: str, table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint64]:
    """uint64[characters]: a text as `next_buckets` reads it, folded, and of white space one SPACE, none at its head."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    codes = np.where(codes < CODE_POINTS, table[np.minimum(codes, CODE_POINTS - 1)], codes)
    blank = codes == SPACE
    return np.asarray(codes[~(blank & np.append(True, blank)[:-1])], np.uint64)


def softmax(logits: Floats) -> Floats:
    """Rows of probabilities.

    >>> softmax(np.log([[1.0, 3.0]]))
    array([[0.25, 0.75]])
    """
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float64)


@lru_cache(maxsize=4)
def load_model(path: str) -> Model:
    """Read a model file, or the built-in one of a name, once a process.

    Raises:
        UsageError: it cannot be read, or is not a whole model file of this format.
        WenhaiError: a built-in one is not as it was shipped.
    """
    if path in BUILT_IN:
        durable.read_shipped(*BUILT_IN[path])
        path = str(BUILT_IN[path][0])
    try:
        with open(path, "rb") as file:
            magic = file.read(len(MAGIC))
            line = file.readline(MAX_HEADER_BYTES)
            if magic != MAGIC or not line.endswith(b"\n"):
                raise ValueError("its first line is not that of a model")
            header = Header.model_validate(json.loads(line))
            size = (2 << header.bits) * (len(header.classes) - 1)
            payload = file.read(size + 1)
    except OSError as error:
        raise UsageError(f"filter.quality.model: {path} cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        reason = "a damaged header" if isinstance(error, pydantic.ValidationError) else "no model header"
        raise UsageError(f"filter.quality.model: {path} has {reason}. {MAKE_ONE}") from error
    if len(payload) != size or hashlib.sha256(payload).hexdigest() != header.weights:
        raise UsageError(f"filter.quality.model: {path} is cut or damaged: its weights' sha256 differs. {MAKE_ONE}")
    weights = np.frombuffer(payload, "<i2").astype(np.int16).reshape(1 << header.bits, -1)
    most = MAX_WEIGHTS[lanes_of(header.classes)]
    if weights.max() > most or weights.min() < -most - 1:
        raise UsageError(f"filter.quality.model: {path} has weights beyond {most}. {MAKE_ONE}")
    return Model(header, weights)


MAKE_ONE = "Make one: python -m corpus quality train --help"


def require_model(model: Model | None, asked: Mapping[str, str]) -> None:
    """Refuse rules and conditions on statistics that have no model, or whose model has no such class.

    Args:
        model: the recipe's.
        asked: the statistics of `MODEL_STATISTICS` that are read, and the rule that reads each.

    Raises:
        UsageError: with what to write into the recipe.
    """
    for name, rule in asked.items() if model is None else ():
        raise UsageError(f'filter.{rule}: quality.{name} needs a model: [filter.quality] model = "path". {MAKE_ONE}')
    if model is not None and ADVERTISEMENT in asked and ADVERTISEMENT not in model.classes:
        raise UsageError(
            f"filter.{asked[ADVERTISEMENT]}: the model's classes are {', '.join(model.classes)}; "
            "train one with --advertisement, or take the rule out."
        )


@lru_cache(maxsize=3)
def feature_table(characters: Characters = "folded") -> npt.NDArray[np.uint32]:
    """uint32[0x20000]: each code point as the model sees it; beside Han, or letters of other scripts, all is SPACE."""
    table = matching_table().copy()
    classes, wanted = class_table() & CLASS_MASK, HAN_CLASSES if characters == "han" else (LATIN, OTHER)
    for code in range(CODE_POINTS):
        if 0xD800 <= code < 0xE000:
            continue
        character = chr(code)
        if characters != "folded":
            table[code] = ord(character.lower()[0]) if classes[code] in wanted and character.isalpha() else SPACE
        elif character.isspace():
            table[code] = SPACE
        elif character.isdecimal():
            table[code] = ord("0")
    table.setflags(write=False)
    return table


def order_mask(orders: Sequence[int]) -> int:
    """One bit an order: (1, 2) is 0b11."""
    return sum(1 << (order - 1) for order in orders)


@kernel()
def bucket(ngram: Any, seed: Any, shift: Any) -> Any:
    """The bucket of an n-gram packed as 21-bit code points, the last lowest."""
    h = (ngram ^ seed) * MULTIPLIER
    h ^= h >> np.uint64(32)
    return (h * MULTIPLIER) >> shift


@kernel(leaf=True)
def next_buckets(
    data: Array,
    i: Any,
    end: Any,
    earlier: Any,
    known: int,
    table: Array,
    orders: int,
    seed: Any,
    shift: Any,
    block: Array,
) -> tuple[int, Any, Any, int]:
    """The buckets of the next n-grams from byte i, into `block`, which then is full or the text at its end.

    `earlier` are the last three characters, 21 bits each, and `known` how many of the document were read; a document
    begins with a SPACE and 0. Returns (buckets written, byte to go on from, earlier, known).
    """
    count = 0
    while i < end and count + len(ORDERS) <= len(block):
        c, i = decode(data, i)
        if c < CODE_POINTS:
            c = table[c]
        if c == SPACE and earlier & CHARACTER_MASK == SPACE:
            continue
        earlier = (earlier << CHARACTER_BITS) | np.uint64(c)
        known += 1
        for order in range(1, 4):
            if known < order:
                break
            if orders & (1 << (order - 1)) == 0:
                continue
            ngram = earlier & ((np.uint64(1) << np.uint64(21 * order)) - np.uint64(1))
            block[count] = bucket(ngram, seed, shift)
            count += 1
    return count, i, earlier, known


@kernel()
def score_ngrams(
    offsets: Array,
    data: Array,
    table: Array,
    orders: int,
    bits: int,
    seed: Any,
    weights: Array,
    lanes: int,
    lane_bits: int,
    out: Array,
) -> None:
    """Sums of the packed weights of each document's n-grams, and their number, into int64[documents, columns + 1]."""
    shift = np.uint64(64 - bits)
    block = np.empty(BLOCK, np.int64)
    mask = (np.uint64(1) << np.uint64(lane_bits)) - np.uint64(1)
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        earlier, known = np.uint64(SPACE), 0
        while i < end:
            count, i, earlier, known = next_buckets(data, i, end, earlier, known, table, orders, seed, shift, block)
            out[row, -1] += count
            a = b = c = d = np.uint64(0)
            for place in range(count):
                at = block[place] * WORDS
                a += weights[at]
                b += weights[at + 1]
                c += weights[at + 2]
                d += weights[at + 3]
            for lane in range(lanes):
                right = np.uint64(lane_bits * lane)
                out[row, lane] += np.int64((a >> right) & mask)
                out[row, lanes + lane] += np.int64((b >> right) & mask)
                out[row, 2 * lanes + lane] += np.int64((c >> right) & mask)
                out[row, 3 * lanes + lane] += np.int64((d >> right) & mask)


@kernel()
def count_ngrams(
    offsets: Array,
    data: Array,
    table: Array,
    orders: int,
    bits: int,
    seed: Any,
    indptr: Array,
    buckets: Array,
    counts: Array,
) -> int:
    """The rows of a sparse matrix of n-gram counts: int64 `indptr`, int32 `buckets` and `counts`; returns their
    length."""
    shift = np.uint64(64 - bits)
    block = np.empty(BLOCK, np.int64)
    place = np.full(1 << bits, -1, np.int64)  # where in the row a bucket's count is
    length = 0
    for row in range(len(offsets) - 1):
        indptr[row] = start = length
        i, end = offsets[row], offsets[row + 1]
        earlier, known = np.uint64(SPACE), 0
        while i < end:
            count, i, earlier, known = next_buckets(data, i, end, earlier, known, table, orders, seed, shift, block)
            for at in block[:count]:
                if place[at] < start:
                    place[at] = length
                    buckets[length] = at
                    counts[length] = 0
                    length += 1
                counts[place[at]] += 1
    indptr[len(offsets) - 1] = length
    return length


@statistic(unit="probability", optional=True)
def score(batch: Batch) -> Floats:
    """The probability of the recipe's model that the text is of its first class, "good" or "high"; NaN without a model.

    ChineseWebText keeps above 0.5 of a fastText model trained like this.

    >>> from corpus.filters import measure
    >>> measure("quality.score", ["without a model nothing is measured"])
    array([nan])
    """
    return _probability(batch, 0)


@statistic(unit="probability", optional=True)
def advertisement(batch: Batch) -> Floats:
    """The probability of the recipe's model that the text is of its class "advertisement"; NaN without such a class.

    Yuan's fine filter drops by it; there is no default.

    >>> from corpus.filters import measure
    >>> measure("quality.advertisement", ["without a model nothing is measured"])
    array([nan])
    """
    model = batch.resources.quality
    if model is None or ADVERTISEMENT not in model.classes:
        return _probability(batch, None)
    return _probability(batch, model.classes.index(ADVERTISEMENT))


@statistic(unit="label", labels=KINDS, optional=True)
def kind(batch: Batch) -> Floats:
    """The likeliest class of the recipe's model, where it is a kind of docs/quality.md; null without a model.

    >>> from corpus.filters import measure
    >>> measure("quality.kind", ["without a model nothing is measured"]).tolist()
    [None]
    """
    model = batch.resources.quality
    if model is None:
        return _probability(batch, None)
    places = [KINDS.index(name) if name in KINDS else np.nan for name in model.classes]
    found: Floats = np.array(places, np.float64)[batch.quality.argmax(axis=1)]
    return found


def _probability(batch: Batch, index: int | None) -> Floats:
    if batch.resources.quality is None or index is None:
        return np.full(len(batch.offsets) - 1, np.nan)
    return np.ascontiguousarray(batch.quality[:, index])

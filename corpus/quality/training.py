"""Train the linear model of filters/quality/model.py on labelled documents: scikit-learn's logistic regression, seeded.

A feature is the share of a document's n-grams that fall into a bucket, over the root of the bucket's mean share: shares
of rare n-grams vary by about that root, so one penalty fits all. N-grams of fewer than MIN_DOCUMENTS documents get no
weight. Classes count alike whatever their sizes.

Documents are dealt by the hash of their text, so equal texts fall on one side: 8 of 10 train, one tenth sets the
temperature (a single number that makes confidences honest), one tenth is held out, and the quality printed is of it.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from corpus.engine.errors import UsageError
from corpus.filters import edits
from corpus.filters.quality import model as quality
from corpus.filters.statistic import Floats, Ints, buffers
from corpus.quality.assessment import Assessment, assess, log_loss

BATCH_ROWS = 1024
MAX_TEXT_BYTES = 1 << 16  # of one training document
MIN_DOCUMENTS = 2
MIN_CLASS_DOCUMENTS = 20
TENTHS = 10
CALIBRATE, HELD_OUT = 8, 9  # tenths; the others train
MAX_ITERATIONS = 500
TEMPERATURES = np.geomspace(0.05, 20, 400)


@dataclass(frozen=True)
class Options:
    """What a model is: n-gram orders, 2^bits buckets, the inverse penalty, the seed of hashing and dealing."""

    orders: tuple[int, ...] = (1, 2)
    bits: int = 18
    inverse_penalty: float = 10.0
    seed: int = 1
    characters: quality.Characters = "folded"
    max_documents: int = 100_000  # of a class; those of the smallest hashes


@dataclass
class Labelled:
    """Documents and their classes' numbers."""

    texts: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def digest(self) -> str:
        """sha256 over classes and texts in order."""
        digest = hashlib.sha256()
        for text, label in zip(self.texts, self.labels, strict=True):
            data = text.encode()
            digest.update(label.to_bytes(1, "little") + len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    def select(self, chosen: npt.NDArray[np.bool_]) -> Labelled:
        """Some of them."""
        rows = np.flatnonzero(chosen).tolist()
        return Labelled([self.texts[row] for row in rows], [self.labels[row] for row in rows])


def gather(
    classes: Mapping[str, Iterable[str]], options: Options, min_documents: int = MIN_CLASS_DOCUMENTS
) -> Labelled:
    """Texts as the filter measures them (normalised, without boilerplate lines), each once, in a fixed order.

    A text of two classes counts for the first. Of a class larger than `max_documents`, those of the smallest hashes.

    Raises:
        UsageError: a class has too few documents.
    """
    labelled = Labelled()
    seen: set[int] = set()
    for label, (name, texts) in enumerate(classes.items()):
        smallest: list[tuple[int, str]] = []  # a heap of (-hash, text)
        for text in prepare(texts):
            key = xxhash.xxh3_64_intdigest(text.encode(), options.seed)
            if key in seen:
                continue
            seen.add(key)
            if len(smallest) < options.max_documents:
                heapq.heappush(smallest, (-key, text))
            else:
                heapq.heappushpop(smallest, (-key, text))
        if len(smallest) < min_documents:
            raise UsageError(
                f"class {name}: {len(smallest)} documents (equal ones count once, for the class named first); "
                f"at least {min_documents} are needed."
            )
        labelled.texts += [text for _, text in sorted(smallest, reverse=True)]
        labelled.labels += [label] * len(smallest)
    return labelled


def prepare(texts: Iterable[str]) -> Iterator[str]:
    """Texts as the filter measures them, cut to MAX_TEXT_BYTES, without empty ones."""
    for batch in _batches(texts):
        array = pa.array(batch, pa.large_string())
        for text in edits.edit(array)[0].to_pylist():
            if text:
                yield text.encode()[:MAX_TEXT_BYTES].decode("utf-8", "ignore")


def train(labelled: Labelled, names: tuple[str, ...], options: Options) -> tuple[quality.Model, Assessment]:
    """A model of some documents, and its quality on the tenth that was held out.

    Raises:
        UsageError: scikit-learn is not installed, or a tenth lacks a class.
    """
    hashes = (xxhash.xxh3_64_intdigest(text.encode(), options.seed + 1) for text in labelled.texts)
    tenths = np.array([number % TENTHS for number in hashes], np.int64)
    chosen = (tenths < CALIBRATE, tenths == CALIBRATE, tenths == HELD_OUT)
    training, calibration, held_out = parts = [labelled.select(tenth) for tenth in chosen]
    if any(len(set(part.labels)) < len(names) for part in parts):
        raise UsageError("too few documents to hold some of each class out; give more.")
    model = fit(training, calibration, names, options)
    result = assess(probabilities(model, held_out.texts), np.array(held_out.labels), names)
    trained = model.header.trained | {"held_out": result.as_json(), "documents": labelled.digest()}
    return quality.Model(model.header.model_copy(update={"trained": trained}), model.weights), result


def fit(training: Labelled, calibration: Labelled, names: tuple[str, ...], options: Options) -> quality.Model:
    """Weights from some documents, the temperature from others; raises UsageError without scikit-learn."""
    if find_spec("sklearn") is None:
        raise UsageError("training needs scikit-learn: pip install 'wenhai[quality]'")
    shares = features(training.texts, options)
    columns = np.bincount(shares.indices, shares.data, 1 << options.bits) / len(training.texts)
    documents = np.bincount(shares.indices, minlength=1 << options.bits)
    used = np.flatnonzero(documents >= MIN_DOCUMENTS)
    scale = 1 / np.sqrt(columns[used])
    matrix = shares[:, used].multiply(scale).tocsr()
    norm = float(np.sqrt(matrix.multiply(matrix).sum(axis=1)).mean())  # so that the penalty means the same everywhere
    coefficients, bias = _logistic_regression(matrix / norm, np.array(training.labels), options)
    weights = np.zeros((1 << options.bits, len(names) - 1))
    weights[used] = coefficients.T * (scale / norm)[:, None]
    unit = float(np.abs(weights).max()) / quality.MAX_WEIGHTS[quality.lanes_of(names)] or 1.0
    integers = np.rint(weights / unit).astype(np.int16)
    header = quality.Header(
        classes=names,
        orders=options.orders,
        bits=options.bits,
        seed=options.seed,
        characters=options.characters,
        unit=unit,
        bias=tuple(bias.tolist()),
        temperature=1.0,
        weights=hashlib.sha256(integers.astype("<i2").tobytes()).hexdigest(),
        trained={
            "counts": {name: training.labels.count(index) for index, name in enumerate(names)},
            "inverse_penalty": options.inverse_penalty,
            "scikit-learn": version("scikit-learn"),
        },
    )
    model = quality.Model(header, integers)
    logits = model.logits(*_buffers(calibration.texts))
    labels = np.array(calibration.labels)
    losses = [log_loss(quality.softmax(logits / temperature), labels) for temperature in TEMPERATURES]
    temperature = float(TEMPERATURES[int(np.argmin(losses))])
    return quality.Model(header.model_copy(update={"temperature": temperature}), integers)


def features(texts: list[str], options: Options) -> Any:
    """scipy CSR float32[documents, buckets]: the share of each document's n-grams in each bucket."""
    from scipy.sparse import csr_matrix, vstack

    parts = []
    for batch in _batches(texts):
        offsets, data = _buffers(batch)
        most = int(offsets[-1]) * len(options.orders)  # an n-gram of each order a byte, at most
        indptr = np.empty(len(offsets), np.int64)
        buckets, counts = np.empty(most, np.int32), np.empty(most, np.int32)
        length = quality.count_ngrams(
            offsets, data, quality.feature_table(options.characters), quality.order_mask(options.orders), options.bits,
            np.uint64(options.seed), indptr, buckets, counts,
        )  # fmt: skip
        rows = np.repeat(np.arange(len(batch)), np.diff(indptr))
        totals = np.bincount(rows, counts[:length], len(batch))
        shares = (counts[:length] / totals[rows]).astype(np.float32)
        parts.append(csr_matrix((shares, buckets[:length].copy(), indptr), (len(batch), 1 << options.bits)))
    return vstack(parts, "csr")


def probabilities(model: quality.Model, texts: list[str]) -> Floats:
    """float64[documents, classes] of prepared texts."""
    return np.vstack([model.measure(*_buffers(batch)) for batch in _batches(texts)])


def _logistic_regression(matrix: Any, labels: Ints, options: Options) -> tuple[Floats, Floats]:
    """Coefficients and biases of every class but the first, against the first."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    solver = LogisticRegression(
        C=options.inverse_penalty, class_weight="balanced", max_iter=MAX_ITERATIONS, random_state=options.seed
    )
    with threadpool_limits(1):  # the order of sums, and so the model's bytes, must not depend on the number of cores
        solver.fit(matrix, labels)
    coefficients, bias = np.asarray(solver.coef_, np.float64), np.asarray(solver.intercept_, np.float64)
    if len(coefficients) == 1:  # two classes: scikit-learn gives the second's log-odds
        return coefficients, bias
    return coefficients[1:] - coefficients[0], bias[1:] - bias[0]


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while batch := list(islice(rest, BATCH_ROWS)):
        yield batch


def _buffers(texts: list[str]) -> tuple[Ints, npt.NDArray[np.uint8]]:
    return buffers(pa.array(texts, pa.large_string()))

"""The index arrays of Megatron-Core's GPTDataset and BlendedDataset, bit for bit, as pure functions of integers.

One dataset of N sequences ("documents" below), read for E epochs, has three arrays:

    document index  int32[E N]       the documents in the order in which they are laid end to end, shuffled
    sample index    int32[S + 1, 2]  where sample s begins: its place in the document index, and the token within it
    shuffle index   uint32[S]        which sample is the s-th of the run

Sample s holds the T + 1 tokens from where it begins to where sample s + 1 begins, that token included. E is the fewest
epochs that hold the samples asked for. All epochs are shuffled together, except that a last epoch of which less than
80 % is needed is shuffled apart, behind the others. All shuffles come from one `numpy.random.RandomState(seed)`, whose
numbers numpy has promised never to change (NEP 19).

Blending gives sample i to the dataset that lags most: the largest `weight x max(i, 1) - taken`, of equals the first.
Products and differences are rounded to float64 as in Megatron's C++, since rounding decides between datasets that lag
alike. From megatron-core 0.16.1: datasets/gpt_dataset.py, datasets/blended_dataset.py, datasets/helpers.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FINAL_EPOCH_RATIO = 0.80
BLOCK_DOCUMENTS = 1 << 20  # laid end to end at a time: 8 to 40 bytes each of passing memory
LANE_STEPS = 1 << 10  # a blend's lanes are not shorter
MAX_LANE_CELLS = 1 << 15  # lanes x datasets: what fits into a core's second cache

Int64Array = NDArray[np.int64]
IndexArray = NDArray[Any]  # of Megatron's choice of dtype
Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Indices:
    """The three arrays of one dataset."""

    document: NDArray[np.int32]  # [E N]
    sample: IndexArray  # [S + 1, 2], int32, or int64 where a place or a token needs it
    shuffle: IndexArray  # [S], uint32, or int64 from 2**32 - 2 samples on


def build_indices(
    lengths: NDArray[np.int32],
    sequence_length: int,
    num_samples: int,
    seed: int,
) -> Indices:
    """The arrays that GPTDataset makes.

    Args:
        lengths: int32[N], tokens of each document, at least 1.
        sequence_length: T.
        num_samples: how many are asked for, at least.
        seed: in [0, 2**32).
    """
    num_tokens = int(lengths.sum(dtype=np.int64))
    num_epochs = count_epochs(num_tokens, sequence_length, num_samples)
    # What the epochs but the last hold is shuffled on its own where little of the last is needed.
    before_final = ((num_epochs - 1) * num_tokens - 1) // sequence_length
    per_epoch = (num_tokens - 1) // sequence_length
    is_apart = num_epochs > 1 and num_samples - before_final < int(FINAL_EPOCH_RATIO * per_epoch)

    random = np.random.RandomState(seed)
    documents = document_index(len(lengths), num_epochs, is_apart, random)
    samples = sample_index(lengths, documents, sequence_length, num_epochs * num_tokens)
    total = len(samples) - 1
    return Indices(documents, samples, shuffle_index(before_final if is_apart else total, total, random))


def count_epochs(num_tokens: int, sequence_length: int, num_samples: int) -> int:
    """The fewest epochs of `num_tokens` that hold the samples: their tokens, and the one that the last looks ahead.

    >>> count_epochs(100, 10, 9), count_epochs(100, 10, 10)
    (1, 2)
    """
    return max(1, -(-(num_samples * sequence_length + 1) // num_tokens))


def document_index(
    num_documents: int, num_epochs: int, is_apart: bool, random: np.random.RandomState
) -> NDArray[np.int32]:
    """int32[num_epochs x num_documents]: every document once an epoch, epochs mixed; the last one apart if asked."""
    index = np.tile(np.arange(num_documents, dtype=np.int32), num_epochs)
    num_mixed = len(index) - num_documents * is_apart
    random.shuffle(index[:num_mixed])
    if is_apart:
        random.shuffle(index[num_mixed:])
    return index


def sample_index(
    lengths: NDArray[np.int32],
    documents: NDArray[np.int32],
    sequence_length: int,
    num_tokens: int,
) -> IndexArray:
    """[S + 1, 2]: the place in `documents`, and the token of that document, at which each sample begins.

    Sample s begins s T tokens into the documents laid end to end. Megatron walks the samples one by one; here each
    document finds the samples that begin in it by a division, and all of them are written at once.

    Args:
        lengths: int32[N], tokens of each document.
        documents: int32[E N], the document index.
        sequence_length: T.
        num_tokens: of all epochs together.
    """
    num_samples = (num_tokens - 1) // sequence_length
    largest = max(len(documents), int(lengths.max()))
    index = np.empty((num_samples + 1, 2), dtype=np.int32 if largest < 2**31 else np.int64)
    for place, bounds in laid_end_to_end(lengths, documents):
        firsts = -(-bounds // sequence_length)  # the first sample that begins at or after each bound
        firsts = np.minimum(firsts, num_samples + 1)
        owners = np.repeat(np.arange(len(bounds) - 1), np.diff(firsts))
        samples = slice(int(firsts[0]), int(firsts[-1]))
        index[samples, 0] = place + owners
        index[samples, 1] = np.arange(samples.start, samples.stop) * sequence_length - bounds[owners]
    return index


def laid_end_to_end(lengths: NDArray[np.int32], documents: NDArray[np.int32]) -> Iterator[tuple[int, Int64Array]]:
    """Blocks of the document index: the place of the first, and int64[n + 1], the tokens before each and after all."""
    end = 0
    for place in range(0, len(documents), BLOCK_DOCUMENTS):
        own = lengths[documents[place : place + BLOCK_DOCUMENTS]]
        bounds = end + np.insert(np.cumsum(own, dtype=np.int64), 0, 0)
        end = int(bounds[-1])
        yield place, bounds


def shuffle_index(num_first: int, num_samples: int, random: np.random.RandomState) -> IndexArray:
    """range(num_samples), shuffled: the first `num_first` among themselves, then the others among themselves."""
    index = np.arange(num_samples, dtype=np.uint32 if num_samples < 2**32 - 2 else np.int64)
    random.shuffle(index[:num_first])
    if num_first < num_samples:
        random.shuffle(index[num_first:])
    return index


def blending_indices(weights: Float64Array, num_samples: int) -> tuple[NDArray[np.int16], Int64Array]:
    """Which dataset gives each sample of a blend, and the number of the sample in that dataset.

    Each choice depends on all before it, so Megatron makes them one by one. Here many stretches ("lanes") are walked
    side by side, each from a guess of what has been taken before it. A dataset that the guess puts behind catches up at
    once, so that a lane soon runs as if it had begun right. Then, lane after lane, the true counts walk until they meet
    the lane's own; from there on the lane is exact, and so is the result, however bad a guess was.

    Args:
        weights: float64[D], normalized, all above 0.
        num_samples: of the blend.

    Returns:
        (int16[num_samples], int64[num_samples]).
    """
    num_lanes = max(1, min(num_samples // LANE_STEPS, MAX_LANE_CELLS // len(weights)))
    num_steps = -(-num_samples // num_lanes)
    starts = np.arange(num_lanes, dtype=np.int64) * num_steps
    shares = weights[:, None] * starts
    guesses = np.floor(shares)  # float64[D, lanes]: counts, exact below 2**53
    guesses += (guesses - shares).argsort(axis=0).argsort(axis=0) < starts - guesses.sum(axis=0)
    chosen, ends = _walk(weights, starts, guesses, num_steps)
    taken = guesses[:, 0].copy()
    for lane, start in enumerate(starts.tolist()):
        taken = _mend(weights, start, taken, guesses[:, lane], chosen[lane], ends[:, lane])
    datasets = chosen.ravel()[:num_samples]
    return datasets, _numbers(datasets, len(weights))


def _walk(
    weights: Float64Array, starts: Int64Array, taken: Float64Array, num_steps: int
) -> tuple[NDArray[np.int16], Float64Array]:
    """Choose `num_steps` samples from each of `starts` on: int16[lanes, num_steps], and what is taken then."""
    chosen = np.empty((num_steps, len(starts)), dtype=np.int16)
    taken, lanes, column = taken.copy(), np.arange(len(starts)), weights[:, None]
    lag = np.empty_like(taken)
    for step in range(num_steps):
        np.multiply(column, np.maximum(starts + step, 1), out=lag)
        lag -= taken
        lag.argmax(axis=0, out=lanes)
        chosen[step] = lanes
        taken[lanes, np.arange(len(starts))] += 1
    return np.ascontiguousarray(chosen.T), taken


def _mend(
    weights: Float64Array,
    start: int,
    taken: Float64Array,
    guess: Float64Array,
    chosen: NDArray[np.int16],
    end: Float64Array,
) -> Float64Array:
    """Rewrite the beginning of a lane that began with `guess` instead of `taken`; returns what is taken at its end.

    The first lane, of sample 0, begins right and is never rewritten.
    """
    taken, guess = taken.copy(), guess.copy()
    for step in range(len(chosen)):
        if np.array_equal(taken, guess):
            return end
        guess[chosen[step]] += 1
        chosen[step] = (weights * (start + step) - taken).argmax()
        taken[chosen[step]] += 1
    return taken


def _numbers(datasets: NDArray[np.int16], num_datasets: int) -> Int64Array:
    """How often each entry has occurred before: int64[n]."""
    numbers = np.empty(len(datasets), dtype=np.int64)
    taken = np.zeros(num_datasets, dtype=np.int64)
    for first in range(0, len(datasets), BLOCK_DOCUMENTS):
        block = datasets[first : first + BLOCK_DOCUMENTS]
        counts = np.bincount(block, minlength=num_datasets)
        order = np.argsort(block, kind="stable")
        numbers[first + order] = np.arange(len(block)) - np.repeat(np.cumsum(counts) - counts - taken, counts)
        taken += counts
    return numbers

"""The order of Megatron-Core's GPTDataset and BlendedDataset, sample for sample: for runs that must see what a run of
Megatron-LM saw.

A corpus of one shard, alone, is in the order of `--data-path PREFIX`. Several shards, of one corpus or of more, are
what Megatron's users list as `--data-path W1 PREFIX1 W2 PREFIX2 ...`: each shard is a dataset of its own, shuffled for
itself, and a corpus' weight is divided among its shards by their tokens. Both with `--split 100,0,0`, since our splits
are shards of their own, with `--seed` and `--seq-length` alike, and with a run of as many samples: here as there
another number of steps or another global batch size is another order, while `Stream` has one order for all runs.

What it costs: as in Megatron, arrays that are built at the start, here by every process: 4 bytes a document and epoch,
12 bytes a sample (see `megatron_arrays`) and, in a blend, 10 more a sample; for 10^8 samples (of 2,048 tokens: 200
billion) of several corpora 2.2 GB, and while they are built half as much again. Beyond `MAX_INDEX_BYTES` a run is
refused. `order = "permuted"` needs none of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpus.engine.errors import UsageError
from pretrain.data.megatron_arrays import Int64Array, blending_indices, build_indices, count_epochs, laid_end_to_end
from pretrain.data.reader import ShardReader
from pretrain.data.stream import Shard, Span
from tokenizer.shards import open_split

MAX_INDEX_BYTES = 8 << 30
MAX_SEED = 2**32 - 1  # of numpy's RandomState
MAX_DATASETS = 2**15 - 2  # their numbers are int16
SURPLUS = 0.005  # Megatron's mid_level_dataset_surplus: more samples asked of each dataset than its weight gives
SAMPLE_BYTES, DOCUMENT_BYTES, BLEND_BYTES = 12, 4, 10


class MegatronStream:
    """One shard as Megatron's GPTDataset reads it in a run that asks it for `num_samples` samples.

    It has the samples of whole epochs, at least those asked for: `num_built`.

    Args:
        shard: where the tokens are.
        lengths: int32, the tokens of each of its sequences.
        sequence_length: T; a sample is T + 1 tokens.
        num_samples: what the run asks for; the order depends on it.
        seed: Megatron's `--seed`.
        name: of the corpus.
    """

    def __init__(
        self,
        shard: Shard,
        lengths: NDArray[np.int32],
        sequence_length: int,
        num_samples: int,
        seed: int = 0,
        name: str = "",
    ) -> None:
        self.shards = [shard]
        self.sequence_length = sequence_length
        self.name = name
        self.num_tokens = shard.num_tokens
        self.num_samples = max(self.num_tokens - 1, 0) // sequence_length  # of one epoch
        label = f"corpus {name}" if name else "the corpus"
        if self.num_samples == 0:
            raise UsageError(
                f'{label}: a shard of {self.num_tokens} tokens, and one sample of order = "megatron" needs '
                f'{sequence_length + 1} of one shard. Use a shorter sequence_length, or order = "permuted".'
            )
        if not 0 <= seed <= MAX_SEED:
            raise UsageError(f'seed {seed}: order = "megatron" takes seeds of 0 to {MAX_SEED}.')
        self.starts: Int64Array = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.indices = build_indices(lengths, sequence_length, num_samples, seed)
        self.num_built = len(self.indices.shuffle)

    def spans(self, start: int, count: int) -> list[list[Span]]:
        """Where the T + 1 tokens of each of the samples [start, start + count) lie: a span for each document."""
        if not 0 <= start <= start + count <= self.num_built:
            raise ValueError(f"samples [{start}, {start + count}) of a run of {self.num_built:,}")
        windows = self.indices.shuffle[start : start + count].astype(np.int64)
        begins, ends = self.indices.sample[windows].astype(np.int64), self.indices.sample[windows + 1].astype(np.int64)
        found = []
        for (place, offset), (last, end) in zip(begins.tolist(), ends.tolist(), strict=True):
            documents = self.indices.document[place : last + 1]
            starts, stops = self.starts[documents], self.starts[documents + 1]
            stops[-1] = starts[-1] + end + 1
            starts[0] += offset
            found.append([Span(0, *bounds) for bounds in zip(starts.tolist(), stops.tolist(), strict=True)])
        return found

    def samples(self, shard: int, start: int, stop: int, limit: int) -> list[int]:
        """The samples below `limit` that hold one of the tokens [start, stop) of the shard, in ascending order.

        One pass over the document index and one over the shuffle index.
        """
        if start == stop:
            return []
        first, last = self.starts.searchsorted([start, stop - 1], side="right") - 1
        wanted = np.zeros(self.num_built, dtype=np.bool_)
        lengths = np.diff(self.starts).astype(np.int32)
        for place, bounds in laid_end_to_end(lengths, self.indices.document):
            documents = self.indices.document[place : place + len(bounds) - 1]
            rows = np.flatnonzero((first <= documents) & (documents <= last))
            shifts = bounds[rows] - self.starts[documents[rows]]  # from the shard to the documents laid end to end
            lows = np.maximum(bounds[rows], start + shifts)
            highs = np.minimum(bounds[rows + 1], stop + shifts)
            for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
                # Token q is in window w if w T <= q <= w T + T.
                before = max(0, -(-low // self.sequence_length) - 1)
                wanted[before : (high - 1) // self.sequence_length + 1] = True
        found: list[int] = np.flatnonzero(wanted[self.indices.shuffle[:limit]]).tolist()
        return found


class MegatronBlend:
    """Which dataset gives each sample: Megatron's BlendedDataset with weights, in a run of `num_samples` samples.

    Args:
        weights: relative to each other, above 0, as they stand in `--data-path`.
        num_samples: of the run.
    """

    def __init__(self, weights: Sequence[float], num_samples: int) -> None:
        if len(weights) > MAX_DATASETS:
            raise UsageError(
                f'order = "megatron" blends {MAX_DATASETS:,} shards at most, not {len(weights):,}. Use "permuted".'
            )
        refuse_beyond_bound(num_samples * BLEND_BYTES)
        shares = normalize(np.array(weights, dtype=np.float64))
        targets = [math.ceil(num_samples * share) for share in shares.tolist()]
        self.requests = [math.ceil(target * (1 + SURPLUS)) for target in targets]  # samples to ask of each dataset
        # Megatron's builder normalizes, and so does its dataset, with what the builder made of them.
        self.datasets, self.numbers = blending_indices(normalize(shares), sum(targets))
        self.counts = np.bincount(self.datasets, minlength=len(weights))  # of each dataset, over the run
        self.weights = [Fraction(int(count), len(self.datasets)) for count in self.counts]

    def origins(self, start: int, count: int) -> tuple[NDArray[np.int16], Int64Array]:
        """Of each of the samples [start, start + count): its dataset, and its number among the dataset's samples."""
        if not 0 <= start <= start + count <= len(self.datasets):
            raise ValueError(f"samples [{start}, {start + count}) of a run of {len(self.datasets):,}")
        return self.datasets[start : start + count], self.numbers[start : start + count]

    def samples(self, corpus: int, indices: Int64Array) -> Int64Array:
        """The samples of the run that took the samples `indices` of a dataset; those that no sample took are left
        out."""
        places = np.flatnonzero(self.datasets == corpus)
        return places[indices[indices < len(places)]]


def open_megatron(
    corpora: Sequence[tuple[str, Path, float]],
    split: str,
    sequence_length: int,
    num_samples: int,
    seed: int,
    verify: bool = True,
) -> tuple[list[MegatronStream], MegatronBlend | None]:
    """Streams, one a shard, and their blend, of a run of `num_samples` samples; one shard alone needs no blend.

    Args:
        corpora: name, folder and weight of each. Shards without a document are left out.
        split: which shards of the folders.
        sequence_length: T.
        num_samples: of the run.
        seed: Megatron's `--seed`.
        verify: check the blocks of tokens when they are first read.

    Raises:
        ShardError: a shard is missing, foreign or damaged.
        UsageError: a shard is shorter than a sample, the indices pass MAX_INDEX_BYTES, or so few samples are asked of a
            dataset that the blend takes more of it than were built.
    """
    readers: list[ShardReader] = []
    names: list[str] = []
    weights: list[float] = []
    for name, folder, weight in corpora:
        shards = [shard for shard in open_split(folder, split) if shard.num_tokens]
        total = sum(shard.num_tokens for shard in shards)
        for number, shard in enumerate(shards):
            readers.append(ShardReader(shard, verify))
            names.append(name if len(shards) == 1 else f"{name}/{number}")
            weights.append(weight * shard.num_tokens / total)
    if not readers:
        raise UsageError(f"no {split} documents in {', '.join(str(folder) for _, folder, _ in corpora)}")
    blend = MegatronBlend(weights, num_samples) if len(readers) > 1 else None
    requests = blend.requests if blend else [num_samples]
    refuse_beyond_bound(
        (num_samples * BLEND_BYTES if blend else 0)
        + sum(
            index_bytes(reader.num_tokens, reader.shard.num_sequences, sequence_length, request)
            for reader, request in zip(readers, requests, strict=True)
        )
    )
    streams = [
        MegatronStream(reader, reader.shard.lengths, sequence_length, request, seed, name)
        for reader, request, name in zip(readers, requests, names, strict=True)
    ]
    if blend:
        for stream, taken in zip(streams, blend.counts.tolist(), strict=True):
            if taken > stream.num_built:
                raise UsageError(
                    f"corpus {stream.name}: the blend takes {taken} samples and {stream.num_built} are built, as in "
                    'Megatron, which stops there too. Give it a larger weight, or use order = "permuted".'
                )
    return streams, blend


def normalize(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights that sum to one, rounded as Megatron rounds them."""
    shares: NDArray[np.float64] = weights / np.sum(weights)
    return shares


def index_bytes(num_tokens: int, num_documents: int, sequence_length: int, num_samples: int) -> int:
    """What the three arrays of one dataset take.

    >>> index_bytes(num_tokens=2_050_000_000, num_documents=2_000_000, sequence_length=2_048, num_samples=1_000_000)
    20011712
    """
    num_epochs = count_epochs(num_tokens, sequence_length, num_samples)
    num_built = (num_epochs * num_tokens - 1) // sequence_length
    return num_epochs * num_documents * DOCUMENT_BYTES + num_built * SAMPLE_BYTES


def refuse_beyond_bound(num_bytes: int) -> None:
    """Raise UsageError where indices of so many bytes are too large."""
    if num_bytes > MAX_INDEX_BYTES:
        raise UsageError(
            f'the indices of order = "megatron" would take {num_bytes / 1e9:,.1f} GB of memory in each process, beyond '
            f'the {MAX_INDEX_BYTES / 1e9:,.1f} GB that are allowed. Use order = "permuted", which needs none, or fewer '
            "samples."
        )

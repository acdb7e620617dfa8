"""Batches of training samples, each a pure function of integers: of the run's seed and the numbers of its samples.

A loader's whole state is one integer, the number of samples taken. Resuming, changing the number of ranks or the size
of the batch, and asking "what did step N see?" are arithmetic: which corpus gives a sample (`blend`), which window of
it (`stream`), where its tokens lie. Megatron's loader builds document, sample and shuffle indices on rank 0 instead: 12
bytes a sample, 10 more in a blend, and 4 a document and epoch.

Windows ignore document boundaries; `document_ids` tells a mask where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from corpus.engine.durable import digest
from corpus.engine.errors import UsageError
from pretrain.config import RunConfig
from pretrain.data.blend import Blend
from pretrain.data.documents import Int32Array, document_ids, positions, prefix_ends
from pretrain.data.examples import BoolArray, Packs, answer_prefixes
from pretrain.data.megatron import MegatronBlend, MegatronStream
from pretrain.data.order import Int64Array
from pretrain.data.stream import Span, Stream
from tokenizer.shards import TokenShard

IGNORED_TARGET = -1  # a target that no loss is taken of


SampleStream = Stream | Packs | MegatronStream  # a corpus
SampleBlend = Blend | MegatronBlend  # which of several: of each, the samples taken are numbered without gaps


@dataclass(frozen=True)
class Batch:
    """B samples of T tokens; `targets[b, t]` is the token that follows `tokens[b, t]`.

    Args:
        tokens: int64 [B, T].
        targets: int64 [B, T]; -1 where the token sees its target, which lies in the prefix of its own segment, and
            costs nothing. What follows a segment is no part of its prefix: the first token of the next document is a
            target. Of examples (see `examples`) -1 wherever the token that follows does not count.
        document_ids: int32 [B, T]: tokens of one document share a number, from 0 in each window, its end-of-document
            token included, so that a mask may keep attention inside a document.
        positions: int32 [B, T], counted anew from each document's beginning; None: 0 to T - 1.
        prefix_ends: int32 [B, T], see `documents.prefix_ends`; None: no prefixes.
    """

    tokens: Int64Array
    targets: Int64Array
    document_ids: Int32Array
    positions: Int32Array | None = None
    prefix_ends: Int32Array | None = None


@dataclass(frozen=True)
class CorpusShare:
    """One corpus of a run, in figures."""

    name: str
    num_tokens: int
    num_samples: int  # of an epoch
    weight: Fraction  # of the run's samples
    epochs: float  # over the run


class Loader:
    """The samples of a run, out of one corpus or a blend of several. Safe for threads.

    Args:
        streams: The corpora.
        blend: Which of them gives each sample; None for a single one.
        document_mask: Whether attention stays inside documents: then each has a prefix of its own.
        reset_positions: Give `positions` that begin anew with each document.
        prefix_lm: Give `prefix_ends`, and no target inside a prefix.
        seed: Of the prefixes.
    """

    def __init__(
        self,
        streams: Sequence[SampleStream],
        blend: SampleBlend | None = None,
        *,
        document_mask: bool = False,
        reset_positions: bool = False,
        prefix_lm: bool = False,
        seed: int = 0,
    ) -> None:
        self.streams = list(streams)
        self.blend = blend
        self.document_mask = document_mask
        self.reset_positions = reset_positions
        self.prefix_lm = prefix_lm
        self.seed = seed
        self.sequence_length = streams[0].sequence_length
        self.num_tokens = sum(stream.num_tokens for stream in streams)
        self.eod = next(shard.eod for stream in streams for shard in stream.shards)
        for stream in streams:
            if any(shard.eod != self.eod for shard in stream.shards):
                raise UsageError(
                    f"corpus {stream.name or '(the only one)'}: its documents do not all end with token {self.eod}. "
                    "Encode all the text of a run with one tokenizer."
                )

    @classmethod
    def of(cls, streams: Sequence[SampleStream], blend: SampleBlend | None, config: RunConfig, seed: int) -> Loader:
        """The loader of a run."""
        return cls(
            streams,
            blend,
            document_mask=config.model.document_mask,
            reset_positions=config.data.reset_positions,
            prefix_lm=config.data.prefix_lm,
            seed=seed,
        )

    @property
    def num_samples_per_epoch(self) -> int:
        """Of the only corpus."""
        (stream,) = self.streams
        return stream.num_samples

    def batch(self, start: int, count: int) -> Batch:
        """The samples [start, start + count) of the run, epoch after epoch without end.

        A rank that trains on a part of the global batch asks for its own sub-range.
        """
        window_tokens, is_counted, is_pack = self._rows(start, count)
        tokens, targets = window_tokens[:, :-1], window_tokens[:, 1:]
        if is_pack.any():
            targets = np.where(is_counted[:, 1:], targets, IGNORED_TARGET)
        ids = document_ids(tokens, self.eod)
        ends = None
        if self.prefix_lm:
            segments = ids if self.document_mask else np.zeros_like(ids)
            ends = prefix_ends(segments, np.arange(start, start + count), self.seed)
            if is_pack.any():
                ends[is_pack] = answer_prefixes(ids[is_pack], is_counted[is_pack])
            is_seen = np.arange(1, self.sequence_length + 1) < ends  # place of the target, end of its token's prefix
            targets = np.where(is_seen, IGNORED_TARGET, targets)
        return Batch(tokens, targets, ids, positions(ids) if self.reset_positions else None, ends)

    def _rows(self, start: int, count: int) -> tuple[Int64Array, BoolArray, BoolArray]:
        """The T + 1 tokens of samples, which of them count, and which samples are packs of examples."""
        tokens = np.empty((count, self.sequence_length + 1), dtype=np.int64)
        is_counted, is_pack = np.ones(tokens.shape, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        for row, (number, spans) in enumerate(self.origins(start, count)):
            stream = self.streams[number]
            if isinstance(stream, Packs):
                is_pack[row], tokens[row] = True, self.eod
                stream.fill(spans, tokens[row], is_counted[row])
                continue
            filled = 0
            for shard, first, stop in spans:
                tokens[row, filled : filled + stop - first] = stream.shards[shard].tokens(first, stop)
                filled += stop - first
            assert filled == tokens.shape[1], "a window is T + 1 tokens"
        return tokens, is_counted, is_pack

    def origins(self, start: int, count: int) -> list[tuple[int, list[Span]]]:
        """Of each of the samples [start, start + count): its corpus, and where its T + 1 tokens lie. Reads nothing."""
        if self.blend is None:
            return [(0, spans) for spans in self.streams[0].spans(start, count)]
        corpora, indices = self.blend.origins(start, count)
        found: list[tuple[int, list[Span]]] = [(0, [])] * count
        for corpus in np.unique(corpora).tolist():
            rows = np.flatnonzero(corpora == corpus).tolist()
            spans = self.streams[corpus].spans(int(indices[rows[0]]), len(rows))
            for row, place in zip(rows, spans, strict=True):
                found[row] = corpus, place
        return found

    def samples(self, stream: int, shard: int, start: int, stop: int, limit: int) -> list[int]:
        """The samples of the run below `limit` that hold one of the tokens [start, stop) of a corpus' shard,
        ascending."""
        if self.blend is None:
            return self.streams[stream].samples(shard, start, stop, limit)
        # No rule of blending gives a corpus more than its share and a few: one of short epochs has not had `limit`.
        share = ceil(self.blend.weights[stream] * limit) + len(self.streams) + 1
        indices = self.streams[stream].samples(shard, start, stop, min(limit, share))
        found = self.blend.samples(stream, np.array(indices, dtype=np.int64))
        return [sample for sample in found.tolist() if sample < limit]

    def describe(self, num_samples: int) -> list[CorpusShare]:
        """What a run of `num_samples` samples reads of each corpus."""
        weights = [Fraction(1)] if self.blend is None else self.blend.weights
        return [
            CorpusShare(
                stream.name,
                stream.num_tokens,
                stream.num_samples,
                weight,
                float(weight * num_samples / stream.num_samples),
            )
            for stream, weight in zip(self.streams, weights, strict=True)
        ]


def data_digest(shards: Sequence[TokenShard]) -> str:
    """What a split is known by in checkpoints: a digest of the checksums of its tokens, in order."""
    return digest([shard.meta.block_sha256 for shard in shards])

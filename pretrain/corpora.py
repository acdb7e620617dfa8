"""The text of a run: one corpus or several, how much is read of each, and the loader that reads them.

A run names one folder (`--data`), or its configuration lists corpora. How much of the run's samples each gives:

- none has a weight or epochs: by its number of samples, so that all are read equally often;
- `epochs`: as many samples as reading it that often takes;
- `weight`: what the epochs leave, in proportion to the weights.

Weights are exact (`weight = 0.3` is three tenths); `data.Blend` says where it rounds. Where all have epochs, these must
add up to the run within one batch, and are scaled by that difference to fill it. A run that goes on with other shares
counts the samples of each corpus as if these had held from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

from corpus.engine.durable import digest
from corpus.engine.errors import UsageError
from pretrain.batch_size import BatchSizes
from pretrain.config import CorpusConfig, DataConfig, RunConfig
from pretrain.data import (
    Blend,
    CorpusShare,
    Loader,
    SampleBlend,
    SampleStream,
    ShardReader,
    Stream,
    data_digest,
)
from pretrain.data.examples import Packs, Record, open_packs, read_record
from pretrain.data.megatron import open_megatron
from pretrain.training.state import Order, Share
from tokenizer.shards import TokenShard, open_split


@dataclass(frozen=True)
class Corpus:
    """One corpus, of text or of examples: its name in this run, and the token shards of its training split."""

    name: str
    folder: Path
    shards: list[TokenShard]
    examples: Record | None = None  # where it is one of examples, whose answers alone count


def open_corpora(config: DataConfig, places: Mapping[str, str | Path]) -> list[Corpus]:
    """The corpora at `places`, in that order.

    Raises:
        WenhaiError: one has no training text or is damaged, or they are of different tokenizers.
    """
    corpora = [
        Corpus(name, Path(folder), open_split(folder, config.train_split), read_record(Path(folder)))
        for name, folder in places.items()
    ]
    for corpus in corpora:
        if not corpus.shards:
            raise UsageError(f"{corpus.folder}: corpus {corpus.name} has no {config.train_split} documents.")
        if corpus.shards[0].identity != corpora[0].shards[0].identity:
            raise UsageError(
                f"{corpus.folder}: made by another tokenizer than {corpora[0].folder}. Encode all corpora of a run "
                "with one."
            )
    firsts = [corpus.shards[0].prefix.resolve() for corpus in corpora]
    for corpus, first in zip(corpora, firsts, strict=True):
        if firsts.count(first) > 1:
            raise UsageError(f"{corpus.folder}: is two corpora of the run. Give it one name and all of its weight.")
    return corpora


def corpora_digest(corpora: Sequence[Corpus]) -> str:
    """What the text of a run is known by: the tokens of its only corpus, or of each by name."""
    digests = {corpus.name: _corpus_digest(corpus) for corpus in corpora}
    return digests[corpora[0].name] if len(corpora) == 1 else digest(digests)


def _corpus_digest(corpus: Corpus) -> str:
    """The tokens, and of examples also which of them count."""
    tokens = data_digest(corpus.shards)
    return tokens if corpus.examples is None else digest([tokens, corpus.examples.counted])


def order_from(config: RunConfig, step: int = 0, num_samples: int = 0, corpora: Sequence[Corpus] = ()) -> Order:
    """The order in which a run goes on after `step` steps that took `num_samples` samples.

    Raises:
        UsageError: weights and epochs do not fit the run; or a corpus is shorter than one sample.
    """
    training = config.training
    batch_sizes = BatchSizes(training.global_batch_size, training.rampup, step, num_samples)
    shares = []
    if len(corpora) > 1:
        length = config.model.sequence_length
        sizes = [stream_of(corpus, length, training.seed, is_named=True).num_samples for corpus in corpora]
        shares = sample_shares(config.data.corpora, sizes, batch_sizes, training.num_steps)
    return Order(
        step=step,
        num_samples=num_samples,
        global_batch_size=training.global_batch_size,
        seed=training.seed,
        rampup=training.rampup,
        kind=config.data.order,
        run_samples=batch_sizes.num_samples(training.num_steps) if config.data.order == "megatron" else None,
        shares=tuple(Share(corpus=c.name, weight=str(share)) for c, share in zip(corpora, shares, strict=False)),
    )


def new_loader(corpora: Sequence[Corpus], order: Order, config: RunConfig, verify: bool = False) -> Loader:
    """The loader that takes samples of `corpora` in an order; `verify` checks tokens when they are first read."""
    named = {corpus.name: corpus for corpus in corpora}
    chosen = [(named[share.corpus], Fraction(share.weight)) for share in order.shares] or [(corpora[0], Fraction(1))]
    length = config.model.sequence_length
    streams: Sequence[SampleStream]
    blend: SampleBlend | None
    if order.kind == "megatron":
        assert order.run_samples is not None
        if any(corpus.examples is not None for corpus in corpora):
            raise UsageError(
                'data.order = "megatron": examples are packed, and Megatron has no such order. Leave it out.'
            )
        listed = [(corpus.name, corpus.folder, float(share)) for corpus, share in chosen]
        streams, blend = open_megatron(
            listed, config.data.train_split, length, order.run_samples, order.seed, verify=verify
        )
    else:
        is_blend = len(chosen) > 1
        streams = [stream_of(corpus, length, order.seed, is_blend, verify) for corpus, _ in chosen]
        blend = Blend([share for _, share in chosen], [corpus.name for corpus, _ in chosen]) if is_blend else None
    return Loader.of(streams, blend, config, order.seed)


def corpus_shares(loader: Loader, num_samples: int) -> list[CorpusShare]:
    """What a run of `num_samples` samples reads of each corpus, also where each of its shards is a stream."""
    streams: dict[str, list[CorpusShare]] = {}
    for share in loader.describe(num_samples):
        streams.setdefault(share.name.partition("/")[0], []).append(share)
    found = []
    for name, parts in streams.items():
        samples, weight = sum(part.num_samples for part in parts), sum((part.weight for part in parts), Fraction(0))
        tokens, epochs = sum(part.num_tokens for part in parts), float(weight * num_samples / samples)
        found.append(CorpusShare(name, tokens, samples, weight, epochs))
    return found


def stream_of(
    corpus: Corpus, sequence_length: int, seed: int, is_named: bool = False, verify: bool = False
) -> Stream | Packs:
    """The samples of one corpus; the name of one among several is part of the key of its order.

    Raises:
        UsageError: it is shorter than one sample, or an example is longer.
    """
    name = corpus.name if is_named else ""
    try:
        if corpus.examples is not None:
            return open_packs(corpus.shards, corpus.examples, sequence_length, seed, name, verify)
        return Stream([ShardReader(shard, verify) for shard in corpus.shards], sequence_length, seed, name)
    except UsageError as error:
        raise UsageError(f"{corpus.folder}: {error}") from error


def sample_shares(
    corpora: Sequence[CorpusConfig], num_samples: Sequence[int], batch_sizes: BatchSizes, num_steps: int
) -> list[Fraction]:
    """Of each corpus the share of the run's samples, relative to the others': weights alone stay as they are.

    Args:
        corpora: Either none of them, or each, has a weight or epochs.
        num_samples: Of an epoch of each.
        batch_sizes: Of the run.
        num_steps: Of the run.

    Raises:
        UsageError: the epochs take more samples than the run has, or all have epochs and do not fill it.
    """
    weights = [Fraction(str(corpus.weight or 0)) for corpus in corpora]
    epochs = [Fraction(str(corpus.epochs or 0)) for corpus in corpora]
    if not any(epochs):
        return weights if any(weights) else [Fraction(size) for size in num_samples]
    wanted = [number * size for number, size in zip(epochs, num_samples, strict=True)]
    total, run_samples = sum(wanted, Fraction(0)), batch_sizes.num_samples(num_steps)
    what = f"data.corpora: their epochs take {ceil(total):,} samples of the run's {run_samples:,}"
    if any(weights):
        if total >= run_samples:
            enough = batch_sizes.steps_beyond(int(total))
            raise UsageError(f"{what}, and leave none to the corpora with weights. {_advice(batch_sizes, enough)}")
        rest = (run_samples - total) / sum(weights)
        return [own + rest * weight for own, weight in zip(wanted, weights, strict=True)]
    last_step = max(num_steps - 1, batch_sizes.phases[0].step)
    if abs(total - run_samples) >= batch_sizes.of_step(last_step)[1]:
        enough = batch_sizes.steps_beyond(ceil(total) - 1)
        raise UsageError(f"{what}, and no corpus has a weight to fill the rest. {_advice(batch_sizes, enough)}")
    return wanted


def _advice(batch_sizes: BatchSizes, num_steps: int) -> str:
    taken = batch_sizes.num_samples(num_steps)
    return f"Change them, or the length of the run: training.num_steps={num_steps} takes {taken:,}."

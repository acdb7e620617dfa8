"""What a run reads: its corpora, their tokenizer, what is held out, and what a checkpoint knows them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from corpus.engine.errors import UsageError
from pretrain.checkpoint import Identity
from pretrain.config import RunConfig, corpus_folders
from pretrain.corpora import Corpus, corpora_digest, corpus_shares, new_loader, open_corpora, order_from
from pretrain.data import Loader
from pretrain.evaluation.answers import HeldOutAnswers, open_held_out
from pretrain.evaluation.held_out import HeldOut, read_held_out
from pretrain.evaluation.kneser_ney import MAX_BASELINE_TOKENS
from pretrain.training.state import Order
from tokenizer.model import Tokenizer
from tokenizer.shards import open_split


@dataclass(frozen=True)
class Corpora:
    """What a run reads, and what it is known by."""

    loader: Loader
    order: Order  # of the steps to come
    tokenizer: Tokenizer
    held_out: dict[str, HeldOut | HeldOutAnswers]  # by corpus
    identity: Identity
    tokens_per_character: float  # of the training text as it is blended
    train_texts: Callable[[], list[str]]  # for the character baselines; read when they are wanted


def open_datasets(
    config: RunConfig,
    data: str | Path | None,
    tokenizer_path: Path | None,
    step: int = 0,
    num_samples: int = 0,
    places: Mapping[str, Path] | None = None,
) -> Corpora:
    """The token shards of a run and the tokenizer that made them.

    Args:
        config: Its `data.corpora` are read where `data` is None.
        data: The only corpus.
        tokenizer_path: Where the first corpus' folder does not hold its tokenizer.
        step: Steps that the run has done, perhaps with other settings;
        num_samples: and the samples they took.
        places: Where the corpora lie on this machine, by name, if these folders are elsewhere (see `pretrain.staging`).

    Raises:
        WenhaiError: shards are missing or damaged, the tokenizer is another one, or the corpora do not fit the run.
    """
    corpora = open_corpora(config.data, places or corpus_folders(config.data, data))
    tokenizer = Tokenizer(tokenizer_path or corpora[0].folder)
    if tokenizer.sha256 != corpora[0].shards[0].tokenizer_sha256:
        raise UsageError(
            f"{tokenizer.path}: is not the tokenizer of {corpora[0].folder}. Name that one with --tokenizer."
        )
    order = order_from(config, step, num_samples, corpora)
    loader = new_loader(corpora, order, config, verify=True)
    split = config.data.validation_split
    # the one whose error says what is wrong, where no corpus has any
    held_out = [corpus for corpus in corpora if open_split(corpus.folder, split)] or corpora[:1]
    max_tokens = config.evaluation.max_tokens // len(held_out)
    return Corpora(
        loader,
        order,
        tokenizer,
        {corpus.name: open_held_out(corpus.folder, split, config, tokenizer, max_tokens) for corpus in held_out},
        Identity(
            data=corpora_digest(corpora),
            tokenizer=tokenizer.path,
            tokenizer_sha256=tokenizer.sha256,
        ),
        _tokens_per_character(corpora, loader, order, config.data.train_split),
        lambda: [
            text
            for corpus in corpora
            if corpus.examples is None
            for text in read_held_out(
                corpus.folder, config.data.train_split, tokenizer, MAX_BASELINE_TOKENS // len(corpora)
            ).texts
        ],
    )


def _tokens_per_character(corpora: Sequence[Corpus], loader: Loader, order: Order, split: str) -> float:
    """Of the blend: the inverse of the mean characters of a token; of examples, of the answers'."""
    shares = {share.name: share.weight for share in corpus_shares(loader, 1)}
    characters = Fraction(0)
    for corpus in corpora:
        metas = [shard.meta for shard in corpus.shards]
        total, num_tokens = sum(meta.num_characters for meta in metas), sum(meta.num_tokens for meta in metas)
        if corpus.examples is not None:
            answers = corpus.examples.splits[split]
            total, num_tokens = answers.counted_characters, answers.counted_tokens
        weight = shares[corpus.name] if order.shares else 1
        characters += weight * Fraction(max(1, total), num_tokens)
    return float(1 / characters)

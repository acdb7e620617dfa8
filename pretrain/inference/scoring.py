"""What a model thinks of the ways in which a text may go on: log-likelihoods of continuations, on any mesh.

One forward scores all continuations of a context: the context is the trunk, each continuation a branch, which sees the
trunk and itself, at the positions that it would have alone. A context of 300 tokens with 100 labels of 3 tokens takes a
row of 600 tokens instead of 100 rows of 303.

    trunk       <eod> 这 是 一 条
    branch 1                     关 于 体        targets: 于 体 育
    branch 2                     关 于 财        targets: 于 财 经

The last token of a context is the first of each branch (its keys and values would be the same), so that it has a target
in each. A prefix LM reads the context both ways, and cannot have several of that token: there each continuation has a
row of its own.

A model has room for `sequence_length` tokens. A context that is too long loses its beginning, the end-of-document token
first, so that its longest continuation fits: all of its continuations are compared after the same context.

Rows of similar length share a batch, and the longest come first: what memory cannot hold fails at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from corpus.engine.errors import UsageError
from pretrain.data import IGNORED_TARGET, document_ids, positions
from pretrain.inference.batcher import EvaluationBatcher, TokenLosses
from pretrain.model.micro_batch import MicroBatch
from pretrain.parallel.base.mesh import World

MAX_TOKENS = 16_384  # of a batch, padding included
MAX_PAIRS = 1 << 23  # of a batch, rows x length^2: a mask has an entry for each, and so may the scores of each head
MAX_TARGETS = 4_096  # of a batch: each has the logits of the whole vocabulary
ROW_TOKENS = 1_024  # of a row with several branches, which do not see each other; or as many as twice its trunk


class Continuation(NamedTuple):
    """Tokens that may follow a context."""

    tokens: Sequence[int]
    first_scored: int = 0  # what lies before is given, and costs nothing


class Request(NamedTuple):
    """A context, which begins a document, and what may follow it."""

    context: Sequence[int]
    continuations: Sequence[Continuation]


class Score(NamedTuple):
    """Of one continuation."""

    log_likelihood: float  # natural logarithm, summed over the tokens that are scored
    num_tokens: int  # that are scored


class Row(NamedTuple):
    """Some continuations of a request that one row of a batch scores: its trunk, and a branch for each of them."""

    request: int
    first: int  # of the continuations
    stop: int
    trunk: int  # tokens
    num_tokens: int  # with those of the branches
    num_targets: int


def score(
    model: TokenLosses,
    requests: Sequence[Request],
    batcher: EvaluationBatcher,
    device: torch.device | str,
    world: World | None = None,
    max_tokens: int = MAX_TOKENS,
) -> Iterator[tuple[int, list[Score]]]:
    """The number of each request and the scores of its continuations, as they are done; not in the order of `requests`.

    In a `world` all ranks call it with the same requests, and each goes through all results: data-parallel ranks share
    the batches, and ask the model equally often.

    Args:
        max_tokens: of a batch, padding included; a row that is longer is a batch.

    Raises:
        UsageError: a continuation is longer than the model has room for, or has no token that is scored. Before the
            first forward.
    """
    for number, request in enumerate(requests):
        _check(request, number, batcher)
    rows = [row for number, request in enumerate(requests) for row in _rows(request, number, batcher, max_tokens)]
    batches = _batches(rows, max_tokens, 1 if world is None else world.tp_size)
    return _scores(model, requests, batches, batcher, device, world)


@torch.no_grad()
def _scores(
    model: TokenLosses,
    requests: Sequence[Request],
    batches: Sequence[Sequence[Row]],
    batcher: EvaluationBatcher,
    device: torch.device | str,
    world: World | None,
) -> Iterator[tuple[int, list[Score]]]:
    """Ask the model batch after batch, and give each request once its last row is done."""
    rank, num_ranks, token_ranks = (world.dp_rank, world.dp_size, world.tp_size) if world else (0, 1, 1)
    pending: dict[int, dict[int, Score]] = {}
    for first in range(0, len(batches), num_ranks):
        rows = batches[first + rank] if first + rank < len(batches) else []
        losses_BT = model.token_losses(_micro_batch(rows, requests, batcher, token_ranks, device))
        found = _read(rows, requests, losses_BT)
        if world is not None and num_ranks > 1:
            found = {place: value for part in world.gather(found) for place, value in part.items()}
        for (number, continuation), value in found.items():
            pending.setdefault(number, {})[continuation] = value
        for number in dict.fromkeys(number for number, _ in found):
            if len(pending[number]) == len(requests[number].continuations):
                scores = pending.pop(number)
                yield number, [scores[continuation] for continuation in range(len(scores))]


def _rows(request: Request, number: int, batcher: EvaluationBatcher, max_tokens: int) -> Iterator[Row]:
    """The rows of a request: as many continuations in each as it has room for; of a prefix LM one."""
    trunk = _num_seen(request, batcher) - 1
    room = 0 if batcher.prefix_lm else min(max(ROW_TOKENS, 2 * trunk), max_tokens)
    row = Row(number, 0, 0, trunk, trunk, 0)
    for index, (tokens, first_scored) in enumerate(request.continuations):
        if row.num_tokens + len(tokens) > room and index > 0:
            yield row
            row = Row(number, index, index, trunk, trunk, 0)
        num_targets = row.num_targets + len(tokens) - first_scored
        row = row._replace(stop=index + 1, num_tokens=row.num_tokens + len(tokens), num_targets=num_targets)
    yield row


def _check(request: Request, number: int, batcher: EvaluationBatcher) -> None:
    if not request.continuations:
        raise UsageError(f"request {number}: nothing follows its context. Give it a continuation.")
    for index, (tokens, first_scored) in enumerate(request.continuations):
        where = f"request {number}, continuation {index}"
        if not 0 <= first_scored < len(tokens):
            raise UsageError(
                f"{where}: of {len(tokens):,} tokens none is scored (from {first_scored} on). Give it one."
            )
        if len(tokens) > batcher.sequence_length:
            raise UsageError(
                f"{where}: has {len(tokens):,} tokens, and the model room for {batcher.sequence_length:,}. Shorten it."
            )


def _num_seen(request: Request, batcher: EvaluationBatcher) -> int:
    """How many tokens before its continuations the model sees, 1 or more: the last of a document's end and the
    context."""
    longest = max(len(tokens) for tokens, _ in request.continuations)
    return min(1 + len(request.context), batcher.sequence_length + 1 - longest)  # the last token is a target alone


def _batches(rows: Sequence[Row], max_tokens: int, token_ranks: int) -> list[list[Row]]:
    """Rows of similar length together, within the limits of a batch; the longest first."""
    batches: list[list[Row]] = []
    length = num_targets = 0
    for row in sorted(rows, key=lambda row: (-row.num_tokens, row.request, row.first)):
        num_rows = len(batches[-1]) + 1 if batches else 1
        fits = num_rows * length <= max_tokens and num_rows * length**2 <= MAX_PAIRS
        if not batches or not fits or num_targets + row.num_targets > MAX_TARGETS:
            batches.append([])
            length, num_targets = _padded(row.num_tokens, token_ranks), 0
        batches[-1].append(row)
        num_targets += row.num_targets
    return batches


def _padded(num_tokens: int, token_ranks: int) -> int:
    """The next length that the ranks can share evenly."""
    return -(-num_tokens // token_ranks) * token_ranks


def _micro_batch(
    rows: Sequence[Row],
    requests: Sequence[Request],
    batcher: EvaluationBatcher,
    token_ranks: int,
    device: torch.device | str,
) -> MicroBatch:
    """The rows, padded at their ends; without any, next to nothing, and no target."""
    length = _padded(max((row.num_tokens for row in rows), default=1), token_ranks)
    padding = np.array([batcher.eod, IGNORED_TARGET, 0, 0, 0])  # which no token sees that comes before it
    marks = np.broadcast_to(padding[:, None, None], (len(padding), max(1, len(rows)), length)).copy()
    for place, row in enumerate(rows):
        marks[:, place, : row.num_tokens] = _laid_out(row, requests[row.request], batcher)
    ends = np.repeat([[row.trunk + 1] for row in rows] or [[0]], length, axis=1)
    tokens, targets, ids, positions, branches, ends = torch.from_numpy(np.concatenate((marks, ends[None])))
    has_branches = any(row.stop - row.first > 1 for row in rows)  # a row of one is plainly causal
    return MicroBatch(
        tokens.to(device),
        targets.to(device),
        ids if batcher.document_mask else None,
        ends if batcher.prefix_lm else None,
        positions.to(device),
        sum(row.num_targets for row in rows),
        branches if has_branches else None,
    )


def _laid_out(row: Row, request: Request, batcher: EvaluationBatcher) -> NDArray[np.int64]:
    """Tokens, targets, document ids, positions and branches [5, tokens] of a row, all but the branches as if each were
    alone."""
    continuations = request.continuations[row.first : row.stop]
    lengths = np.array([len(tokens) for tokens, _ in continuations])
    alone_CT = np.full((len(continuations), row.trunk + 1 + lengths.max()), batcher.eod, dtype=np.int64)
    targets_CT = np.full(alone_CT.shape, IGNORED_TARGET, dtype=np.int64)
    alone_CT[:, : row.trunk + 1] = [batcher.eod, *request.context][-row.trunk - 1 :]
    for place, (tokens, first_scored) in enumerate(continuations):
        alone_CT[place, row.trunk + 1 : row.trunk + 1 + len(tokens)] = tokens
        targets_CT[place, row.trunk + first_scored : row.trunk + len(tokens)] = tokens[first_scored:]
    ids_CT = document_ids(alone_CT, batcher.eod)
    columns_T, numbers_C1 = np.arange(alone_CT.shape[1]), np.arange(1, len(continuations) + 1)[:, None]
    places_CT = positions(ids_CT) if batcher.reset_positions else np.broadcast_to(columns_T, alone_CT.shape)
    branches_CT = np.where(columns_T < row.trunk, 0, numbers_C1)
    ends_C1 = row.trunk + lengths[:, None]
    taken_CT = (columns_T < ends_C1) & ((branches_CT > 0) | (numbers_C1 == 1))  # the trunk once, with the first
    laid_out: NDArray[np.int64] = np.stack((alone_CT, targets_CT, ids_CT, places_CT, branches_CT))[:, taken_CT]
    return laid_out


def _read(rows: Sequence[Row], requests: Sequence[Request], losses_BT: Tensor) -> dict[tuple[int, int], Score]:
    """The scores of a batch's continuations by their places in the requests."""
    scores = {}
    for row, losses_T in zip(rows, losses_BT.cpu().double().numpy(), strict=False):  # a batch without rows has losses
        start = row.trunk
        for index in range(row.first, row.stop):
            tokens, first_scored = requests[row.request].continuations[index]
            end = start + len(tokens)
            scores[row.request, index] = Score(-float(losses_T[start:end].sum()), len(tokens) - first_scored)
            start = end
    return scores

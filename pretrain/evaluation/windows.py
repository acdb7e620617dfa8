"""How text longer than a model's window is scored: windows that slide, each token once, and batches of windows.

A text of N tokens stands behind an end-of-document token, so that its first token has a context, too. A window takes
`length` tokens and is asked for what follows each; of these targets the last `stride` are new, and the others, which
an earlier window has scored, are context. With stride = length windows do not overlap: the cheapest, where on average a
target has half a window of context. A smaller stride costs length / stride as much, and leaves every target but those
of the first window length - stride tokens of context at least, and the one before it.

The last window ends with the text, so that it is full, too (but for a text shorter than a window). With stride = length
these are the rolling windows of lm-evaluation-harness (`utils.get_rolling_token_windows`, context_len = 1).

>>> list(windows(10, length=4, stride=2))
[Window(start=0, first=0, stop=4), Window(start=2, first=4, stop=6), Window(start=4, first=6, stop=8), Window(start=6, first=8, stop=10)]
>>> list(windows(10, length=4, stride=4))
[Window(start=0, first=0, stop=4), Window(start=4, first=4, stop=8), Window(start=6, first=8, stop=10)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pretrain.data import IGNORED_TARGET

ROUNDED_TO = 8  # tokens: windows of nearly the same length share a batch
BATCHES_AHEAD = 64  # whose windows are put in the order of their lengths

Integers = NDArray[np.int64]


class Window(NamedTuple):
    """The targets [first, stop) of a text, by number, and [start, first) before them as context."""

    start: int
    first: int
    stop: int


class Row(NamedTuple):
    """A window of a text, or of a batch: arrays [T], in a batch [B, T]."""

    tokens: Integers
    targets: Integers  # what follows each token; IGNORED_TARGET where it costs nothing
    groups: Integers  # to which each target's cost goes


def windows(num_targets: int, length: int, stride: int) -> Iterator[Window]:
    """The windows of a text, each target in [first, stop) of one.

    Raises:
        ValueError: the stride is not from 1 to `length`.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"stride {stride}: it must be from 1 to the window's {length} tokens")
    done = 0
    while done < num_targets:
        stop = min(done + (stride if done else length), num_targets)
        yield Window(max(0, stop - length), done, stop)
        done = stop


def rows(tokens: NDArray[Any], groups: NDArray[Any] | int, eod: int, length: int, stride: int) -> Iterator[Row]:
    """The windows of one text; `groups` has one for each of its tokens, or one for all."""
    before = np.insert(tokens, 0, eod)
    groups = np.broadcast_to(groups, tokens.shape)
    for start, first, stop in windows(len(tokens), length, stride):
        targets = tokens[start:stop].astype(np.int64)
        targets[: first - start] = IGNORED_TARGET
        yield Row(before[start:stop].astype(np.int64), targets, groups[start:stop].astype(np.int64))


def batches(
    found: Iterable[Row], length: int, batch_size: int, eod: int, rank: int = 0, num_ranks: int = 1, shared_by: int = 1
) -> Iterator[Row]:
    """One of `num_ranks` ranks' share of the windows in batches, every rank the same number of them.

    A batch has `batch_size` windows of `length` tokens, or more of shorter ones, of about the same length: the windows
    of BATCHES_AHEAD batches are put in that order. Padding has no target.

    Args:
        found: Windows of at most `length` tokens.
        shared_by: How many ranks share the tokens of a window, of whose number its length is a multiple.
    """
    nothing = Row(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    share: Row | None = None
    number = 0
    for number, members in enumerate(_alike(found, batch_size * length, length, ROUNDED_TO * shared_by), start=1):
        if (number - 1) % num_ranks == rank:
            share = _batch(members, length, eod, ROUNDED_TO * shared_by)
        if number % num_ranks == 0:
            assert share is not None
            yield share
            share = None
    if number % num_ranks:
        yield share or _batch([nothing], length, eod, ROUNDED_TO * shared_by)


def _alike(found: Iterable[Row], batch_tokens: int, length: int, multiple: int) -> Iterator[list[Row]]:
    """Windows of about the same length, together of at most `batch_tokens` tokens with their padding."""
    for block in _blocks(found, BATCHES_AHEAD * batch_tokens):
        block.sort(key=lambda row: -len(row.tokens))  # stable: equal ones stay in their order
        while block:
            most = max(1, batch_tokens // _padded(len(block[0].tokens), length, multiple))
            yield block[:most]
            del block[:most]


def _blocks(found: Iterable[Row], most_tokens: int) -> Iterator[list[Row]]:
    block: list[Row] = []
    held = 0
    for row in found:
        block.append(row)
        held += len(row.tokens)
        if held >= most_tokens:
            yield block
            block, held = [], 0
    if block:
        yield block


def _padded(num_tokens: int, length: int, multiple: int) -> int:
    """Up to a multiple, but not beyond a window, which has a length that its ranks can share."""
    return min(length, max(1, -(-num_tokens // multiple)) * multiple)


def _batch(members: list[Row], length: int, eod: int, multiple: int) -> Row:
    shape = len(members), _padded(max(len(row.tokens) for row in members), length, multiple)
    batch = Row(np.full(shape, eod), np.full(shape, IGNORED_TARGET), np.zeros(shape, dtype=np.int64))
    for number, row in enumerate(members):
        for whole, part in zip(batch, row, strict=True):
            whole[number, : len(part)] = part
    return batch

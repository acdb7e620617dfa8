"""What a model thinks of the ways in which a text may go on: log-likelihoods of continuations, on any mesh.

One forward scores all continuations of a context: the context is the trunk, each continuation a branch, which sees the trunk
and itself, at the positions that it would have alone. A context of 300 tokens with 100 labels of 3 tokens takes a row of
700 tokens instead of 100 rows of 303.

    trunk       <eod> 这 是 一 条
    branch 1                     关 于 体        targets: 于 体 育
    branch 2                     关 于 财        targets: 于 财 经

The last token of a context is the first of each branch (its keys and values would be the same), so that it has a target in
each. A prefix LM reads the context both ways, and cannot have several of that token: there each continuation has a row of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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

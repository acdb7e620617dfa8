"""Who sees whom in a window, and which of its places are asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.data import IGNORED_TARGET


def attention_mask(
    q: Tensor, k: Tensor, same_document: Tensor | None, prefix_end: Tensor | None, same_branch: Tensor | None = None
) -> Tensor:
    """Whether place `q` of a window sees place `k`: the one definition of the attention mask, for every back-end.

    Causal, or both ways inside the prefix that ends before `prefix_end`, which is that of `q` (prefix LM; Raffel et al.
    2020, section 3.2.1); never across documents where `same_document` is given, nor into another branch than the trunk
    where `same_branch` is: whether `k` is in the branch of `q` or in the trunk.

    >>> q, k = torch.arange(3)[:, None], torch.arange(3)[None]
    >>> attention_mask(q, k, None, torch.tensor(2)).int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    sees = k <= q
    if prefix_end is not None:
        sees = sees | (k < prefix_end)
    for same in (same_document, same_branch):
        sees = sees if same is None else sees & same
    return sees


@dataclass(frozen=True)
class Visibility:
    """Who sees whom in B windows of T places: integers [B, T], on the host or the device; None of all: causal.

    Args:
        document_ids_BT: a place sees its own document only.
        prefix_ends_BT: it also sees what lies before its prefix's end.
        branches_BT: it sees its own branch and the trunk, branch 0.
    """

    document_ids_BT: Tensor | None = None
    prefix_ends_BT: Tensor | None = None
    branches_BT: Tensor | None = None

    @property
    def marks(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """All three."""
        return self.document_ids_BT, self.prefix_ends_BT, self.branches_BT

    @property
    def shape(self) -> tuple[int, int] | None:
        """Windows and places; None without a mark."""
        return next(((mark.shape[0], mark.shape[1]) for mark in self.marks if mark is not None), None)

    def to(self, device: torch.device | str) -> Visibility:
        """The same with its marks on a device."""
        ahead = torch.device(device).type != "cpu"  # what comes to the host is read at once
        return Visibility(*(None if mark is None else mark.to(device, non_blocking=ahead) for mark in self.marks))

    def sees(self, b: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """`attention_mask` of the places `q` and `k` of window `b`: indices that broadcast, on the device of the
        marks."""
        ids, ends, branches = self.marks
        same_branch: Tensor | None = None
        if branches is not None:
            of_k = branches[b, k]
            same_branch = (of_k == 0) | (of_k == branches[b, q])
        same_document = None if ids is None else ids[b, q] == ids[b, k]
        return attention_mask(q, k, same_document, None if ends is None else ends[b, q], same_branch)

    def mask(self, windows: range, rows: range, keys: range) -> Tensor:
        """`sees` as bool [windows, rows, keys], for places that have marks."""
        device = next(mark.device for mark in self.marks if mark is not None)
        b, q, k = (torch.arange(places.start, places.stop, device=device) for places in (windows, rows, keys))
        return self.sees(b[:, None, None], q[:, None], k)


def target_rows(targets_BT: Tensor) -> Tensor:
    """Which of the B x T places have a target, numbered sample after sample; the first where none has."""
    rows_N = (targets_BT.flatten() != IGNORED_TARGET).nonzero()[:, 0]
    return rows_N if len(rows_N) else torch.zeros(1, dtype=torch.int64, device=targets_BT.device)

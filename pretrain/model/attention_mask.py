"""Who sees whom in a window, and which of its places are asked for."""

from __future__ import annotations

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


def dense_attention_mask(
    places_T: Tensor,
    document_ids_BT: Tensor | None,
    prefix_ends_BT: Tensor | None,
    branches_BT: Tensor | None = None,
) -> Tensor | None:
    """`attention_mask` as bool [B or 1, T, T]; None means plainly causal, which back-ends know without a mask."""
    if document_ids_BT is None and prefix_ends_BT is None and branches_BT is None:
        return None
    same_BTT = None if document_ids_BT is None else document_ids_BT[:, :, None] == document_ids_BT[:, None, :]
    ends_BT1 = None if prefix_ends_BT is None else prefix_ends_BT[:, :, None]
    branch_BTT: Tensor | None = None
    if branches_BT is not None:
        of_k_B1T = branches_BT[:, None, :]
        branch_BTT = (of_k_B1T == 0) | (of_k_B1T == branches_BT[:, :, None])
    return attention_mask(places_T[None, :, None], places_T[None, None, :], same_BTT, ends_BT1, branch_BTT)


def target_rows(targets_BT: Tensor) -> Tensor:
    """Which of the B x T places have a target, numbered sample after sample; the first where none has."""
    rows_N = (targets_BT.flatten() != IGNORED_TARGET).nonzero()[:, 0]
    return rows_N if len(rows_N) else torch.zeros(1, dtype=torch.int64, device=targets_BT.device)

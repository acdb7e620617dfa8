"""The back-ends of attention: what a forward makes of a `Visibility` once, for all of its layers.

Each takes queries [B, H, T, K] and keys and values [B, G, P, K] and returns [B, H, T, K], computes what
`attention_mask` defines, and is chosen by `pretrain.attention_backend`, whose docstring has a table with figures. Above
2,048 tokens none holds a number for each pair of a window's places, but `Blocks` in a backward: there the masks of its
blocks stay, half a number a pair; no loader makes the marks that bring it there.

What depends on values of the marks (where documents begin) is worked out on the host, where the loader leaves them: a
GPU is not waited for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import varlen
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from pretrain.attention_backend import choose_backend
from pretrain.data.documents import segment_starts
from pretrain.model.attention_mask import Visibility

BLOCK_ROWS = 512  # of queries that `Blocks` makes one mask for
BLOCK = 128  # of queries, and of keys, that flex_attention skips or not
_takes_groups = "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters  # torch 2.13 does, 2.11 does not


class Attend(Protocol):
    """softmax(q k' / sqrt(K)) v of the pairs that see each other."""

    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        """[B, H, T, K]; H query heads over G of keys and values (Ainslie et al. 2023)."""
        ...


def _sdpa(q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    group_size = q_BHTK.shape[1] // k_BGPK.shape[1]
    grouped = group_size > 1
    if grouped and q_BHTK.is_cuda and (mask is not None or q_BHTK.dtype.itemsize > 2):
        # the one fused kernel that takes a mask, or fp32, takes no groups: SDPA would hold all scores
        k_BGPK, v_BGPK = (x.repeat_interleave(group_size, dim=1) for x in (k_BGPK, v_BGPK))
        grouped = False
    return F.scaled_dot_product_attention(q_BHTK, k_BGPK, v_BGPK, mask, is_causal=causal, enable_gqa=grouped)


def _tokens(x_BHTK: Tensor) -> Tensor:
    """[B x T, H, K], a view of what was transposed from [B, T, H, K]."""
    return x_BHTK.transpose(1, 2).flatten(0, 1)


def _windows(y_NHK: Tensor, num_samples: int) -> Tensor:
    """[B, H, T, K] again."""
    return y_NHK.view(num_samples, -1, *y_NHK.shape[1:]).transpose(1, 2)


@dataclass(frozen=True)
class Causal:
    """Each of T tokens sees itself and those before it."""

    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        return _sdpa(q_BHTK, k_BGPK, v_BGPK, causal=True)


@dataclass(frozen=True)
class Dense:
    """A mask, bool [B or 1, T, P]; None: every token sees all P."""

    mask_BTP: Tensor | None

    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        return _sdpa(q_BHTK, k_BGPK, v_BGPK, None if self.mask_BTP is None else self.mask_BTP[:, None])


@dataclass(frozen=True)
class Varlen:
    """Causal documents by one flash kernel (`torch.nn.attention.varlen`): fp16 or bf16 on a GPU."""

    cu_seqlens: Tensor  # int32 [documents + 1]: where each begins in the B x T tokens, and their number
    longest: int  # tokens of a document

    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        num_samples, num_heads = q_BHTK.shape[:2]
        q_NHK, k_NGK, v_NGK = (_tokens(x) for x in (q_BHTK, k_BGPK, v_BGPK))
        options: dict[str, Any] = {"window_size": (-1, 0)}  # causal
        group_size = num_heads // k_NGK.shape[1]
        if group_size > 1 and _takes_groups:
            options["enable_gqa"] = True
        elif group_size > 1:
            k_NGK, v_NGK = (x.repeat_interleave(group_size, dim=1) for x in (k_NGK, v_NGK))
        cuts, longest = self.cu_seqlens, self.longest
        y_NHK = varlen.varlen_attn(q_NHK, k_NGK, v_NGK, cuts, cuts, longest, longest, **options)
        assert isinstance(y_NHK, Tensor)
        return _windows(y_NHK, num_samples)


@dataclass(frozen=True)
class Flex:
    """Any mask by flex_attention (Dong et al. 2024, 2412.05496), whose kernel skips blocks in which nobody sees."""

    block_mask: BlockMask

    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        kernel: Callable[..., Tensor] = flex_attention
        if q_BHTK.is_cuda and not torch.compiler.is_compiling():
            kernel = _compiled_flex()
        grouped = q_BHTK.shape[1] > k_BGPK.shape[1]
        return kernel(q_BHTK, k_BGPK, v_BGPK, block_mask=self.block_mask, enable_gqa=grouped)


class Run(NamedTuple):
    """Tokens of a window in a row that see each other and nobody else."""

    length: int
    prefix: int  # the first of them, which see each other both ways


@dataclass(frozen=True)
class Parts:
    """Runs one by one, in the order of the B x T tokens: a causal kernel, and one without a mask for the prefix."""

    runs: tuple[Run, ...]

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # other lengths in each batch: a graph each otherwise
    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        lengths = [run.length for run in self.runs]
        split = [torch.split(_tokens(x), lengths) for x in (q_BHTK, k_BGPK, v_BGPK)]
        found: list[Tensor] = []
        for run, parts in zip(self.runs, zip(*split, strict=True), strict=True):
            q_1HNK, k_1GNK, v_1GNK = (x_NHK.transpose(0, 1)[None] for x_NHK in parts)
            prefix = run.prefix if run.prefix > 1 else 0
            if prefix < run.length:
                found.append(_sdpa(q_1HNK, k_1GNK, v_1GNK, causal=True)[0].transpose(0, 1))
            if prefix:
                both_ways = _sdpa(*(x[:, :, :prefix] for x in (q_1HNK, k_1GNK, v_1GNK)))[0].transpose(0, 1)
                rest = torch.split(found.pop(), [prefix, run.length - prefix])[1:] if prefix < run.length else ()
                found += [both_ways, *rest]
        return _windows(torch.cat(found), len(q_BHTK))


class Block(NamedTuple):
    """Rows of a window, and the keys among which are all that they see."""

    rows: range
    keys: range


@dataclass(frozen=True)
class Blocks:
    """Any mask, a block of rows after the other, each with its own small mask."""

    visibility: Visibility
    blocks: tuple[tuple[Block, ...], ...]  # of each window

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, q_BHTK: Tensor, k_BGPK: Tensor, v_BGPK: Tensor) -> Tensor:
        found = []
        for b, blocks in enumerate(self.blocks):
            queries = torch.split(q_BHTK[b], [len(block.rows) for block in blocks], dim=1)
            for q_HRK, (rows, keys) in zip(queries, blocks, strict=True):
                k_1GCK, v_1GCK = (x[b : b + 1, :, keys.start : keys.stop] for x in (k_BGPK, v_BGPK))
                mask = self.visibility.mask(range(b, b + 1), rows, keys)[:, None]
                found.append(_sdpa(q_HRK[None], k_1GCK, v_1GCK, mask)[0].transpose(0, 1))
        return _windows(torch.cat(found), len(q_BHTK))


def attention_for(visibility: Visibility, x_BTD: Tensor, head_size: int, is_compiled: bool) -> Attend:
    """The back-end for layers on `x_BTD`'s device and in its type, compiled or not."""
    device, shape = x_BTD.device, visibility.shape
    if shape is None:
        return Causal()
    num_samples, num_tokens = shape
    host = visibility.to("cpu")
    runs = runs_of(host)
    is_plain = runs is not None and visibility.prefix_ends_BT is None
    backend, _ = choose_backend(
        "documents" if is_plain else "other",
        device.type,
        x_BTD.dtype.itemsize,
        num_tokens,
        head_size,
        has_flash=device.type == "cuda" and _has_flash(device),
        is_training=torch.is_grad_enabled(),
        is_compiled=is_compiled and torch.is_grad_enabled(),
    )
    if backend == "dense":
        return Dense(visibility.to(device).mask(range(num_samples), range(num_tokens), range(num_tokens)))
    if backend == "flex":
        return Flex(block_mask_of(visibility.to(device)))
    if runs is None:
        return Blocks(visibility.to(device), blocks_of(host))
    return varlen_of(runs, device) if backend == "varlen" else Parts(tuple(runs))


def runs_of(visibility: Visibility) -> list[Run] | None:
    """The runs of all windows, one after the other, from marks on the host.

    None where there are no such runs: branches, a document in several pieces, or prefixes that differ inside one.
    """
    shape = visibility.shape
    assert shape is not None
    if visibility.branches_BT is not None:
        return None
    ids_BT = np.zeros(shape, np.int32) if visibility.document_ids_BT is None else visibility.document_ids_BT.numpy()
    starts = segment_starts(ids_BT)
    lengths = np.diff(starts, append=ids_BT.size)
    names = zip((starts // shape[1]).tolist(), ids_BT.reshape(-1)[starts].tolist(), strict=True)
    if len(set(names)) < len(starts):
        return None
    prefixes = np.zeros_like(lengths)
    if visibility.prefix_ends_BT is not None:
        places, begun = np.arange(ids_BT.size), np.repeat(starts, lengths)
        ends = visibility.prefix_ends_BT.numpy().reshape(-1) - begun % shape[1]
        ends = np.clip(ends, 0, np.repeat(lengths, lengths))
        prefixes = ends[starts]
        prefix, place = np.repeat(prefixes, lengths), places - begun
        if not np.where(place < prefix, ends == prefix, ends <= place + 1).all():
            return None
    return [Run(*pair) for pair in zip(lengths.tolist(), prefixes.tolist(), strict=True)]


def varlen_of(runs: list[Run], device: torch.device) -> Varlen:
    """Causal documents, from the runs of all windows."""
    lengths = [run.length for run in runs]
    cu_seqlens = torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int32))
    if device.type == "cuda":
        cu_seqlens = cu_seqlens.pin_memory().to(device, non_blocking=True)
    return Varlen(cu_seqlens, max(lengths))


def blocks_of(visibility: Visibility) -> tuple[tuple[Block, ...], ...]:
    """Of each window its blocks of rows, from marks on the host."""
    shape = visibility.shape
    assert shape is not None
    num_samples, num_tokens = shape
    places, found = np.arange(num_tokens), []
    ids, ends = (None if mark is None else mark.numpy() for mark in visibility.marks[:2])
    for b in range(num_samples):
        first, last, end = np.zeros_like(places), np.full_like(places, num_tokens), places + 1
        if ids is not None:
            _, number = np.unique(ids[b], return_inverse=True)
            firsts, lasts = np.full_like(places, num_tokens), np.zeros_like(places)
            np.minimum.at(firsts, number, places)
            np.maximum.at(lasts, number, places + 1)
            first, last = firsts[number], lasts[number]
        if ends is not None:
            end = np.maximum(end, ends[b])
        stop = np.minimum(end, last)
        rows = [range(row, min(row + BLOCK_ROWS, num_tokens)) for row in range(0, num_tokens, BLOCK_ROWS)]
        found.append(tuple(Block(r, range(int(first[r].min()), int(stop[r].max()))) for r in rows))
    return tuple(found)


def block_mask_of(visibility: Visibility) -> BlockMask:
    """The mask of flex_attention, from marks on its device: which blocks are seen whole, in part and not at all.

    Blocks are counted some rows at a time; `create_block_mask` would make a mask of all pairs to begin with.
    """
    shape = visibility.shape
    assert shape is not None
    num_samples, num_tokens = shape
    num_blocks = -(-num_tokens // BLOCK)
    counts = []
    for row in range(0, num_blocks * BLOCK, 8 * BLOCK):
        rows = range(row, min(row + 8 * BLOCK, num_tokens))
        mask = visibility.mask(range(num_samples), rows, range(num_tokens))
        mask = F.pad(mask, (0, -num_tokens % BLOCK, 0, -len(rows) % BLOCK))
        counts.append(mask.view(num_samples, -1, BLOCK, num_blocks, BLOCK).sum((2, 4)))
    seen_BQK = torch.cat(counts, dim=1)[:, None]
    partly, wholly = _ordered((seen_BQK > 0) & (seen_BQK < BLOCK**2)), _ordered(seen_BQK == BLOCK**2)
    ids, ends, branches = visibility.marks

    def mask_mod(b: Tensor, _h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return Visibility(ids, ends, branches).sees(b, q, k)

    lengths = (num_tokens, num_tokens)
    found: BlockMask = BlockMask.from_kv_blocks(*partly, *wholly, BLOCK, mask_mod, lengths)
    return found


def _ordered(is_block_BHQK: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, int32 [B, H, Q], and which: those first, [B, H, Q, K]."""
    numbers = is_block_BHQK.int()
    order = numbers.argsort(dim=-1, descending=True, stable=True)
    return numbers.sum(-1, dtype=torch.int32), order.int().contiguous()


@lru_cache(maxsize=1)
def _compiled_flex() -> Callable[..., Tensor]:
    """For forwards outside of a compiled block: uncompiled it would hold all scores."""
    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=False)
    return compiled


def _has_flash(device: torch.device) -> bool:
    """Whether this GPU has PyTorch's flash kernel (compute capability 8.0 or later), and it is allowed."""
    is_allowed: bool = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
    return is_allowed and torch.cuda.get_device_capability(device) >= (8, 0)

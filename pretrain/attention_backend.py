"""Which back-end computes attention: one rule for the model, for what a run says at its start, and for the planner.

| back-end | what it computes | what it saves besides q, k, v and the result |
|---|---|---|
| causal | one SDPA call, nothing hidden but what comes later | log-sum-exps |
| varlen | one flash kernel over the documents of all windows | the same; k, v for each query head with torch < 2.13 |
| flex | one compiled kernel, block by block of the mask | the same |
| parts | one SDPA call a document, two with a prefix; else blocks of rows with a small mask each | the parts' results |
| dense | one SDPA call with a mask of every pair, as biases | B x T x T numbers in each layer |

Milliseconds forward and backward on one H100 with torch 2.11, bf16, one window:

| T, heads, head size, documents | dense | flex | varlen | plain causal |
|---|---|---|---|---|
| 2,048, 24, 96, 6 | 0.92 | 1.08 | 1.45 | 0.56 |
| 4,096, 32 / 8 groups, 128, 9 | 3.35 | 1.74 | 1.46 | 1.17 |
| 8,192, 32, 128, 20 | 12.6 | 2.43 | 2.03 | 3.82 |

On a CPU core parts are as fast as dense at 128 tokens (two documents), 2 times at 256, 7 times at 2,048 in documents of
256: a CPU takes a dense mask only inside compiled blocks, whose graph parts would break.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pretrain.config import RunConfig

Backend = Literal["causal", "varlen", "flex", "parts", "dense"]
Marks = Literal["none", "documents", "other"]  # documents: causal ones; other: prefixes, branches

DENSE_TOKENS = 2048  # the longest window that a dense mask is made of


class Choice(NamedTuple):
    """A back-end, and why."""

    backend: Backend
    reason: str


def choose_backend(
    marks: Marks,
    device: str,
    item: int,
    num_tokens: int,
    head_size: int,
    has_flash: bool = True,
    is_training: bool = True,
    is_compiled: bool = False,
) -> Choice:
    """The back-end for windows of `num_tokens`.

    Args:
        device: "cpu" or "cuda".
        item: bytes of a number.
        has_flash: whether fused kernels are allowed, and the device has them.
        is_training: whether a backward follows; the shapes of batches change where none does.
        is_compiled: whether it is part of a graph of `torch.compile`, which parts would break.
    """
    if marks == "none":
        return Choice("causal", "nothing is hidden but what comes later")
    what = "documents" if marks == "documents" else "prefixes or branches"
    if num_tokens <= DENSE_TOKENS and (device == "cuda" or is_compiled):
        return Choice("dense", f"{what}, in windows of {DENSE_TOKENS:,} tokens or fewer")
    if device != "cuda":
        return Choice("parts", f"{what}, on a CPU")
    if not has_flash:
        return Choice("parts", f"{what}, without fused kernels: training.fused_kernels is off, or the GPU has none")
    if marks == "documents":
        if item == 2 and head_size % 8 == 0 and head_size <= 256:
            return Choice("varlen", f"causal documents, in windows of more than {DENSE_TOKENS:,} tokens")
        return Choice("parts", "documents, in fp32 or fp64 or heads that the flash kernel does not take")
    if is_training and item <= 4 and head_size >= 16:
        return Choice("flex", f"{what}, in windows of more than {DENSE_TOKENS:,} tokens")
    return Choice("parts", f"{what}, in fp64, in heads of fewer than 16 numbers, or without a backward")


def backend_of(config: RunConfig, device: str, item: int) -> Choice:
    """That of a run's training, in numbers of `item` bytes."""
    model, training = config.model, config.training
    marks: Marks = "other" if config.data.prefix_lm else "documents" if model.document_mask else "none"
    return choose_backend(
        marks,
        device,
        item,
        model.sequence_length,
        model.head_size,
        has_flash=training.fused_kernels,
        is_compiled=config.compiles_blocks(device == "cuda"),
    )

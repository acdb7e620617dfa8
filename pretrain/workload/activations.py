"""What the forward of a micro-batch leaves in memory for its backward, in bytes, by what this model's operations save.

The count is that of Korthikanti et al. 2022 ("Reducing activation recomputation in large transformer models", section
4) with the operations that are here instead of theirs: a fused attention writes no scores (their 5 a s² b term is not
there), there is no dropout (no masks), the gated MLP has three wide products, rotary positions make new queries and
keys beside the product they came from, which stays because the values are a view of it. Bytes a token of a block, where
e is the size of a number, h the hidden size, a and k the widths of the queries and of keys or values, f that of the MLP
(a, k and f are a rank's share of tensor parallelism), and s the ranks that share the tokens between products:

| what | bytes | saved for |
|---|---|---|
| norm's input and output, twice | 4 e h / s | the norm, the product after it |
| qkv | e (a + 2 k) | attention (values are a view of it) |
| rotated queries and keys | e (a + k) | attention |
| attention's result and log-sum-exps | e a + 4 heads | attention, the product after it |
| gate, up, silu(gate), their product | 4 e f | SwiGLU and the product after it; with GELU 2 e f |
| a dense mask in e bytes a pair, T of them a token | e T | attention, in each layer, with document masks or prefixes |

On a CPU RMSNorm is no fused operation and saves its input and its normalised input in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from pretrain.config import ModelConfig, ParallelConfig, Recompute

INT64 = 8


@dataclass(frozen=True)
class Activations:
    """Bytes a token (of one sample) of a model on one rank of its tensor-parallel group."""

    model: ModelConfig
    parallel: ParallelConfig
    item: int  # bytes of a number of the forward
    has_mask: bool  # whether attention is given one, document masks or prefixes
    on_cpu: bool = False

    @property
    def wide(self) -> int:
        """Bytes of a number where the forward takes fp32 at least."""
        return max(self.item, 4)

    @cached_property
    def first_block(self) -> int:
        """What a layer keeps that is computed again, where any are."""
        return self.block(0)

    def block(self, index: int) -> int:
        """What a layer keeps under the configured recompute."""
        if self.parallel.recompute == "none" or (
            self.parallel.recompute == "full" and index % self.parallel.recompute_every
        ):
            return self.whole_block
        inputs = self._token
        if self.parallel.recompute == "full":
            return inputs
        products = self._qkv + self._queries + self._mlp_products
        return 2 * inputs + self.item * products + self._log_sum_exps

    @cached_property
    def whole_block(self) -> int:
        """What a layer keeps without recompute."""
        return 2 * self._norm + self._attention + self._mlp

    @cached_property
    def block_in_backward(self) -> int:
        """The most that the backward of a layer holds beyond what was kept: what it computes again, and gradients."""
        again = 0
        if self.parallel.recompute != "none":
            again = self.whole_block - min(self.first_block, self.whole_block)
        mlp = 2 * self._mlp_products  # of the products, and of what lies between them and the last one
        attention = 2 * self._qkv + self._queries
        return again + self.item * (max(mlp, attention) + 2 * self.model.hidden_size)

    @cached_property
    def block_deferred(self) -> int:
        """What a layer keeps between the two halves of a backward: each product's input and the gradient of its
        output."""
        hidden = self.model.hidden_size
        mlp = self._mlp_products // self._num_wide
        wide = self._qkv + self._queries + self._mlp_products + mlp + 2 * hidden
        return self.item * wide + 2 * self._token

    @cached_property
    def of_stage(self) -> int:
        """What a stage keeps besides its layers: rotary angles, and a mask that is needed again."""
        angles = self.wide * self.model.head_size if self.model.positions == "rope" else 0
        mask = self.model.sequence_length if self.has_mask and self.parallel.recompute != "none" else 0
        return angles + mask

    @cached_property
    def head(self) -> int:
        """The final norm, and per target three numbers of the loss."""
        return self._norm + 2 * self.wide + INT64

    @cached_property
    def logits(self) -> int:
        """The softmax of this rank's logits, which the loss keeps."""
        return self.wide * self._vocabulary

    @cached_property
    def logits_in_passing(self) -> int:
        """The logits, before the softmax replaces them, or their gradient."""
        return self.item * self._vocabulary

    @cached_property
    def head_deferred(self) -> int:
        """Between the two halves of a backward: the head's input and the gradient of the logits."""
        return self._token + self.logits_in_passing

    @cached_property
    def message(self) -> int:
        """What travels between two stages."""
        return self._token

    @property
    def _token_ranks(self) -> int:
        return self.parallel.tp if self.parallel.sequence_parallel else 1

    @property
    def _token(self) -> int:
        """x between products."""
        return self.item * self.model.hidden_size // self._token_ranks

    @property
    def _norm(self) -> int:
        hidden = self.model.hidden_size
        if self.model.norm == "layernorm":
            numbers = 2 * self.item * hidden + 2 * self.wide
        elif self.on_cpu:
            numbers = (2 * self.wide + self.item) * hidden + self.wide
        else:
            numbers = 2 * self.item * hidden + self.wide
        return numbers // self._token_ranks

    @property
    def _attention(self) -> int:
        rotated = self._keys + self._queries if self.model.positions == "rope" else 0
        if self.model.positions == "learned" and self.model.num_heads > self.model.kv_heads > self.parallel.tp:
            rotated = self._queries  # those of several groups are no view of the product
        mask = self.model.sequence_length if self.has_mask else 0
        return self.item * (self._qkv + rotated + self._queries + mask) + self._log_sum_exps

    @property
    def _mlp(self) -> int:
        num_kept = 4 if self.model.activation == "swiglu" else 2
        return num_kept * self.item * self.model.ffn_size // self.parallel.tp

    @property
    def _num_wide(self) -> int:
        return 2 if self.model.activation == "swiglu" else 1

    @property
    def _mlp_products(self) -> int:
        return self._num_wide * self.model.ffn_size // self.parallel.tp

    @property
    def _queries(self) -> int:
        return self.model.num_heads * self.model.head_size // self.parallel.tp

    @property
    def _keys(self) -> int:
        return self.model.kv_heads * self.model.head_size // self.parallel.tp

    @property
    def _qkv(self) -> int:
        return self._queries + 2 * self._keys

    @property
    def _log_sum_exps(self) -> int:
        return self.wide * self.model.num_heads // self.parallel.tp

    @property
    def _vocabulary(self) -> int:
        return self.model.padded_vocab_size // self.parallel.tp


@lru_cache(maxsize=4096)
def activations_of(
    model: ModelConfig,
    tp: int,
    sequence_parallel: bool,
    recompute: Recompute,
    every: int,
    item: int,
    has_mask: bool,
    on_cpu: bool,
) -> Activations:
    """Once for many layouts, with all that was asked of it."""
    parallel = ParallelConfig(tp=tp, sequence_parallel=sequence_parallel, recompute=recompute, recompute_every=every)
    return Activations(model, parallel, item, has_mask, on_cpu)

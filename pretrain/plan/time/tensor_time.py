"""What tensor-parallel ranks send each other around the products of a micro-batch, and what of it products hide.

Of our own executor (`parallel.base.tensor`, `parallel.base.products`; with sequence parallelism s, without it w):

| where | s | w | beside |
|---|---|---|---|
| forward of a layer | 2 gathers, 2 scatters | 2 all-reduces | nothing |
| backward, of what products gave | 2 gathers | | nothing |
| backward, of what they took | 2 scatters | 2 all-reduces | the gradients of their weights |
| backward, tokens again | 2 gathers | | the gradients of their inputs |
| recompute full | 2 gathers, 1 scatter | 1 all-reduce | nothing |
| recompute selective | 2 gathers | | nothing |
| embedding | scatter; gather in the backward | all-reduce | nothing |
| head | gather; backward as a layer's products | backward as a layer's | |

What is recomputed keeps the gathered tokens until its backward. A zero-bubble schedule gathers them for its W, and
hides nothing. On a CPU nothing is hidden: ranks compute on the cores that would send. Of published software see
`workload.software`.
"""

from __future__ import annotations

from typing import NamedTuple

from pretrain.plan.machines.collectives import Group
from pretrain.plan.prediction import Traffic
from pretrain.plan.time.machine import Machine
from pretrain.workload.operations import WIDE, Operation, Shape, Work

NOTHING = Traffic()


class Exchanges(NamedTuple):
    """Of the three parts of a micro-batch in a layer, and of what its backward computes again."""

    forward: Traffic = NOTHING
    inputs: Traffic = NOTHING
    weights: Traffic = NOTHING
    again: Traffic = NOTHING


class TensorTime:
    """Of one shape on one cluster."""

    def __init__(self, shape: Shape, machine: Machine, is_split: bool) -> None:
        self.shape, self.machine, self.software, self.is_split = shape, machine, machine.software, is_split
        self.is_sequence_parallel = shape.token_ranks > 1
        group = Group(shape.tensor, 1)
        whole = shape.item * shape.tokens * shape.model.hidden_size
        if self.is_sequence_parallel:
            self.gather, self.scatter = (
                machine.line("all_gather", group).of(whole),
                machine.line("reduce_scatter", group).of(whole),
            )
        else:
            self.reduce = machine.line("all_reduce", group).of(whole)
        self.of_loss = machine.line("all_gather", group).of(shape.tensor * shape.tokens * 2 * WIDE)

    def layer(self, work: Work, recompute: str) -> Exchanges:
        """Around a layer's products; `recompute` is this layer's own."""
        if self.shape.tensor == 1:
            return Exchanges()
        if self.software.operations != "ours":
            return self._published(work, recompute)
        pairs = [
            (self._of(work.inputs, ("qkv",)), self._of(work.weights, ("qkv",))),
            (self._of(work.inputs, ("gate", "up")), self._of(work.weights, ("gate", "up"))),
        ]
        if not self.is_sequence_parallel:
            inputs = sum((self._beside(self.reduce, of_weights) for _, of_weights in pairs), NOTHING)
            again = Traffic(exposed=self.reduce) if recompute == "full" else NOTHING
            return Exchanges(Traffic(exposed=2 * self.reduce), inputs, NOTHING, again)
        forward = Traffic(exposed=2 * (self.gather + self.scatter))
        inputs, weights, again = Traffic(exposed=2 * self.gather), NOTHING, NOTHING
        for of_inputs, of_weights in pairs:
            inputs += self._beside(self.scatter, of_weights)
            if self.is_split:
                weights += Traffic(exposed=self.gather)
            elif recompute == "none":
                inputs += self._beside(self.gather, of_inputs)
        if recompute != "none":
            again = Traffic(exposed=2 * self.gather + (self.scatter if recompute == "full" else 0.0))
        return Exchanges(forward, inputs, weights, again)

    def head(self, work: Work) -> Exchanges:
        """Around the product with the vocabulary, and two numbers a token of each rank's part of the loss."""
        if self.shape.tensor == 1 or self.software.operations != "ours":
            return Exchanges()
        of_inputs, of_weights = self._of(work.inputs, ("logits",)), self._of(work.weights, ("logits",))
        if not self.is_sequence_parallel:
            return Exchanges(Traffic(exposed=self.of_loss), self._beside(self.reduce, of_weights))
        forward = Traffic(exposed=self.gather + self.of_loss)
        inputs = self._beside(self.scatter, of_weights)
        if self.is_split:
            return Exchanges(forward, inputs, Traffic(exposed=self.gather))
        return Exchanges(forward, inputs + self._beside(self.gather, of_inputs))

    def embedding(self) -> Exchanges:
        """Each rank looks up the tokens that its rows have."""
        if self.shape.tensor == 1 or self.software.operations != "ours":
            return Exchanges()
        if not self.is_sequence_parallel:
            return Exchanges(Traffic(exposed=self.reduce))
        return Exchanges(Traffic(exposed=self.scatter), Traffic(exposed=self.gather))

    def _of(self, operations: tuple[Operation, ...], names: tuple[str, ...]) -> float:
        """Seconds of the products of these matrices."""
        return sum(self.machine.seconds(one) for one in operations if one.flops and one.name.split(" ")[0] in names)

    def _beside(self, exchange: float, products: float) -> Traffic:
        """An exchange that begins with some products and is waited for at their end."""
        hidden = min(exchange, products) if self.machine.overlaps and not self.is_split else 0.0
        return Traffic(hidden, exchange - hidden)

    def _published(self, work: Work, recompute: str) -> Exchanges:
        hiding = self.machine.spent(work.weights)
        beside_products = hiding.busy + hiding.launches
        if not self.is_sequence_parallel:
            both = 2 * self.reduce
            hidden = min(both * self.software.tensor_overlap, beside_products)
            once = Traffic(exposed=both)
            return Exchanges(once, Traffic(hidden, both - hidden), NOTHING, once if recompute == "full" else NOTHING)
        gathers, scatters = 2 * self.gather, 2 * self.scatter
        # what a product needs again comes beside another one
        hidden = min(gathers + scatters * self.software.tensor_overlap, beside_products)
        once = Traffic(exposed=gathers + scatters)
        inputs = Traffic(hidden, 2 * gathers + scatters - hidden)
        return Exchanges(once, inputs, NOTHING, once if recompute == "full" else NOTHING)

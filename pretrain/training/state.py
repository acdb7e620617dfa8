"""Where a run stands: counters, and the orders its samples were taken in. It means the same on any number of ranks."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from pydantic import Field

from corpus.engine.config import Strict
from pretrain.batch_size import BatchSizes
from pretrain.config import RampupConfig


class Share(Strict):
    """How much of a run's samples one of several corpora gives: a fraction, relative to the others'."""

    corpus: str
    weight: Annotated[str, Field(pattern=r"^[0-9]{1,2000}(/[1-9][0-9]{0,2000})?$")]


class Order(Strict):
    """From which step and sample on a run takes its samples in one order and in batches of one plan.

    With the shards it is all that `pretrain.corpora.new_loader` and `pretrain.batch_size` need to say what a step read.
    """

    step: Annotated[int, Field(ge=0)]
    num_samples: Annotated[int, Field(ge=0)]
    global_batch_size: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)]
    rampup: RampupConfig | None = None
    kind: Literal["permuted", "megatron"] = "permuted"
    run_samples: Annotated[int, Field(ge=1)] | None = None  # of the whole run, where the kind's order depends on it
    shares: Annotated[tuple[Share, ...], Field(strict=False)] = ()  # none: one corpus

    @property
    def batch_sizes(self) -> BatchSizes:
        """The batches of the steps from `step` on."""
        return BatchSizes(self.global_batch_size, self.rampup, self.step, self.num_samples)


@dataclasses.dataclass
class State:
    """Where a run stands: counters only, so that it means the same on any number of ranks."""

    step: int = 0  # steps done; the next batch starts at sample `num_samples`
    num_samples: int = 0
    num_tokens: int = 0  # targets trained on
    num_bad_steps: int = 0  # steps whose loss or gradient was not finite and that changed no weight
    num_bad_in_a_row: int = 0
    loss_scale: float = 0.0  # fp16: what the loss is multiplied by; 0 before the first step
    steps_at_scale: int = 0  # since it last changed
    orders: list[Order] = dataclasses.field(default_factory=list)

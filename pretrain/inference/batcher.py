"""How a model reads tokens when it is asked rather than trained: with the masks and positions of its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.config import RunConfig
from pretrain.data import IGNORED_TARGET, document_ids, positions
from pretrain.model.micro_batch import MicroBatch


class TokenLosses(Protocol):
    """A model that can be asked what text costs it: a whole `GPT`, or a `ParallelModel`, which all its ranks ask
    alike."""

    def token_losses(self, batch: MicroBatch) -> Tensor:
        """-ln p(target) [B, T] in fp32 at least, 0 where there is no target."""
        ...


@dataclass(frozen=True)
class EvaluationBatcher:
    """What tokens a model takes at a time, and which of them see each other."""

    sequence_length: int
    eod: int
    document_mask: bool = False
    reset_positions: bool = False
    prefix_lm: bool = False

    @classmethod
    def of(cls, config: RunConfig, eod: int) -> EvaluationBatcher:
        """That of a run whose tokenizer ends documents with `eod`."""
        model, data = config.model, config.data
        return cls(model.sequence_length, eod, model.document_mask, data.reset_positions, data.prefix_lm)

    def micro_batch(
        self,
        tokens_BT: NDArray[Any],
        targets_BT: NDArray[Any],
        device: torch.device | str = "cpu",
        prefix_lengths_B: NDArray[Any] | None = None,
    ) -> MicroBatch:
        """Windows of tokens with their targets (IGNORED_TARGET where none is asked for), as tensors on the device; who
        sees whom on the host.

        A prefix LM sees the first `prefix_lengths_B` tokens of a window both ways; without them it has no prefix.
        """
        ids_BT = document_ids(tokens_BT, self.eod)
        ends_BT = None
        if self.prefix_lm and prefix_lengths_B is not None:
            ends_BT = np.broadcast_to(prefix_lengths_B[:, None], tokens_BT.shape)

        def tensor(array: NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.array(array))

        return MicroBatch(
            tensor(tokens_BT.astype(np.int64)).to(device),
            tensor(targets_BT.astype(np.int64)).to(device),
            tensor(ids_BT) if self.document_mask else None,
            None if ends_BT is None else tensor(ends_BT),
            tensor(positions(ids_BT)).to(device) if self.reset_positions else None,
            int((targets_BT != IGNORED_TARGET).sum()),
        )

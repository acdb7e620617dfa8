"""Dynamic loss scaling for fp16, as counters of the run's state.

Gradients of activations below 2^-24 are zero in fp16. The loss, and by the chain rule every gradient, is therefore
multiplied by a scale (Micikevicius et al. 2018, section 3.2), and the clip coefficient divides by it again
(`optim.clip_grad_norm`). A gradient that overflows shows in the norm that all ranks have in common: the step is done
again at once with half the scale (`step`), so that no batch is lost. The scale is a power of two where its first value
is: then scaling rounds nothing.
"""

from __future__ import annotations

from pretrain.config import TrainingConfig
from pretrain.training.state import State

SMALLEST = 1.0  # a gradient that overflows at this overflows by itself
LARGEST = 2.0**32


def current(state: State, training: TrainingConfig) -> float:
    """What the next step's loss is multiplied by; 1 in all precisions but fp16."""
    if training.precision != "fp16":
        return 1.0
    return state.loss_scale or training.loss_scale.initial


def halve(scale: float) -> float:
    """The scale after an overflow."""
    return max(SMALLEST, scale / 2)


def advance(state: State, training: TrainingConfig, scale: float, num_overflows: int) -> None:
    """Take note of a step that was applied with `scale`, after so many overflows; double it if it is time.

    A step that was not applied has no part in this: it was not finite at any scale, which says nothing about this one.
    """
    if training.precision != "fp16":
        return
    state.loss_scale = scale
    state.steps_at_scale = 1 if num_overflows else state.steps_at_scale + 1
    if state.steps_at_scale >= training.loss_scale.growth_steps and scale < LARGEST:
        state.loss_scale, state.steps_at_scale = min(LARGEST, 2 * scale), 0

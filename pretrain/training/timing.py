"""How long steps take."""

from __future__ import annotations

import time

import torch

from pretrain.training.step import Run, train_step


def timed_steps(run: Run, warm_up: int, steps: int) -> list[float]:
    """Of each of `steps` steps after `warm_up` others, the slowest rank's seconds; all ranks call it."""
    world, seconds = run.world, []
    for step in range(warm_up + steps):
        world.any_of(False)  # all begin together
        start = time.perf_counter()
        train_step(run)  # ends with a number on the host: a GPU has done its work
        if world.device.type == "cuda":
            torch.cuda.synchronize()  # but for the optimizer's
        if step >= warm_up:
            seconds.append(time.perf_counter() - start)
    return [max(of_step) for of_step in zip(*world.gather(seconds), strict=True)]

"""Saves while training goes on: at the step a copy in host memory, and a thread of every rank that makes files of it.

Training stands still for the copy, and where a save begins before the last one has ended, for the rest of that: saves
never overlap. The threads talk over a process group of their own, on the CPU: collectives of two threads in one group
would mix. They touch no GPU. A thread is a daemon: a process that ends at once does not wait for it, and leaves a save
that died. For the files of the slowest rank the others wait as long as for anything else, `training.timeout_minutes`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from corpus.engine.errors import WenhaiError
from pretrain.checkpoint.places import Place
from pretrain.checkpoint.records import Identity
from pretrain.checkpoint.saving import Contents, Written, write
from pretrain.checkpoint.shards import HostCopies, make_plan, parts_of, tensors_of
from pretrain.config import RunConfig
from pretrain.errors import FailedRank
from pretrain.parallel.base.mesh import World
from pretrain.parallel.engine.compose import ParallelModel
from pretrain.phases import Phases
from pretrain.training.state import State

LOST_SECONDS = 3.0  # that a run which ends with an error gives its thread, which meets the same error


@dataclass
class Save:
    """One save and what became of it: `written`, or an `error` that all ranks have."""

    step: int
    stall_seconds: float = 0.0  # in which training stood still
    seconds: float = 0.0  # of writing; where training waits for it, of that
    in_background: bool = False
    written: Written | None = None
    error: WenhaiError | None = None
    other_error: BaseException | None = None  # a lost rank, a bug here or on another
    thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.thread is None or not self.thread.is_alive()


class Saver:
    """The saves of a run. All ranks make it, and call `save` and `wait` at the same steps."""

    def __init__(
        self,
        place: Place,
        model: ParallelModel,
        optimizer: torch.optim.Optimizer,
        config: RunConfig,
        identity: Identity,
        world: World,
    ) -> None:
        self.place, self.config, self.identity = place, config, identity
        self._model, self._optimizer = model, optimizer
        group = dist.new_group(backend="gloo", timeout=world.timeout)
        self._world = replace(world, group=group, phases=Phases())
        self._plan = make_plan(self._tensors(), self._world)
        self._copies = HostCopies()
        self._last: Save | None = None
        self._untold: list[Save] = []

    def save(self, state: State, must: bool = False) -> None:
        """Begin to save `state.step`, or with `must` save it and return when it stands.

        A save of the same step that is under way, or stands, is not made again.

        Raises:
            WenhaiError: with `must`, disk or store refused. Otherwise `ended` tells.
        """
        began = time.perf_counter()
        self.wait()
        if self._last is not None and self._last.step == state.step and self._last.written is not None:
            return
        in_background = self.config.checkpoint.async_save and not must
        parts = parts_of(self._plan, self._tensors())
        if in_background:
            parts = self._copies.copy(parts)
        contents = Contents(copy.deepcopy(state), parts, self._plan, self.config, self.identity)
        self._last = last = Save(state.step, in_background=in_background)
        self._untold.append(last)
        if in_background:
            last.thread = threading.Thread(target=self._write, args=(contents, last), name="save", daemon=True)
            last.thread.start()
        else:
            self._write(contents, last)
        last.stall_seconds = time.perf_counter() - began
        if not in_background:
            self._check(last)
        if must and last.error is not None:
            self._untold.remove(last)
            raise type(last.error)(f"{last.error} What was saved before stands: the same command goes on from there.")

    def wait(self) -> None:
        """Wait until no save is under way; how it went, `ended` tells."""
        if self._last is not None:
            if self._last.thread is not None:
                self._last.thread.join()
            self._check(self._last)

    def ended(self) -> Iterator[Save]:
        """The saves that have ended since the last call; each rank may ask when it likes."""
        while self._untold and self._untold[0].is_over:
            self._check(self._untold[0])
            yield self._untold.pop(0)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """At the end of the block no save is under way; where a rank was lost, that is not waited for long."""
        try:
            yield
            self.wait()
        except BaseException as error:
            all_have_it = isinstance(error, WenhaiError) and not isinstance(error, FailedRank)
            if all_have_it:  # and none of their threads
                self.wait()
            elif self._last is not None and self._last.thread is not None:
                self._last.thread.join(LOST_SECONDS)
                if isinstance(error, RuntimeError) and isinstance(self._last.other_error, FailedRank):
                    raise self._last.other_error from error  # why that rank is gone
            raise

    def _write(self, contents: Contents, save: Save) -> None:
        began = time.perf_counter()
        try:
            save.written = write(self.place, contents, self._world)
        except FailedRank as error:
            save.other_error = error
        except WenhaiError as error:
            save.error = error
        except BaseException as error:
            save.other_error = error
        save.seconds = time.perf_counter() - began

    def _check(self, save: Save) -> None:
        if save.other_error is not None:
            raise save.other_error

    def _tensors(self) -> dict[str, Any]:
        return tensors_of(self._model.parameters, self._optimizer)

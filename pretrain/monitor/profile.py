"""Traces of torch's profiler, of steps that the configuration names or that somebody asks for while the run goes on.

`metrics.profile_step` names the first of `metrics.profile_steps` steps. A file OUT/profile.now (`touch` it) asks for as
many steps after the next report; rank 0 looks for it there, and takes it away. Each rank, or those of
`metrics.profile_ranks`, writes OUT/profile/step-00000100-rank-00000.json.gz, which https://ui.perfetto.dev opens. The
phases of the time split are in it, as spans around the operators. A profiled step is slower: its speed is no measure.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from pretrain.config import MetricsConfig
from pretrain.console import log_message
from pretrain.phases import Phases

REQUEST = "profile.now"
FOLDER = "profile"


class Profiler:
    """The traces of one rank."""

    def __init__(self, out: Path, config: MetricsConfig, rank: int, phases: Phases, device: torch.device) -> None:
        self._out, self._config, self._rank, self._phases = out, config, rank, phases
        self._takes_part = config.profile_ranks is None or rank in config.profile_ranks
        self._activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profile: Any = None  # under way
        self._is_requested = False
        self._first = self._num_done = 0

    def finds_request(self) -> bool:
        """Whether the file that asks for a trace is there; it is gone afterwards. For rank 0, which tells the
        others."""
        try:
            (self._out / REQUEST).unlink()
        except OSError:
            return False
        return True

    def request(self) -> None:
        """Trace the next steps."""
        self._is_requested = True

    def before(self, step: int) -> None:
        """Begin a trace with this step (from 1), if it is asked for and none is under way."""
        if self._takes_part and self._profile is None and (self._is_requested or step == self._config.profile_step):
            self._is_requested = False
            self._profile = profile(activities=self._activities, record_shapes=True, with_stack=False)
            self._profile.start()
            self._phases.are_traced = True
            self._first, self._num_done = step, 0

    def after(self) -> None:
        """A step is done; write the trace after the last of its steps."""
        if self._profile is None:
            return
        self._num_done += 1
        if self._num_done == self._config.profile_steps:
            self.close()
        else:
            self._profile.step()

    def close(self) -> None:
        """Write what there is of a trace under way. Where the disk refuses, that is said, and training goes on."""
        if self._profile is None:
            return
        done, self._profile = self._profile, None
        self._phases.are_traced = False
        done.stop()
        path = self._out / FOLDER / f"step-{self._first:08d}-rank-{self._rank:05d}.json.gz"
        unfinished = path.with_name("." + path.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            done.export_chrome_trace(str(unfinished))
            os.replace(unfinished, path)
        except (OSError, RuntimeError) as error:
            log_message(f"WARNING: {path}: the trace cannot be written ({error}). Training goes on.")
            return
        if self._rank == min(self._config.profile_ranks or (0,)):
            log_message(
                f"profiled {self._num_done} steps from step {self._first}: {path}; open it at https://ui.perfetto.dev"
            )

"""How long a save keeps training waiting: ours in the background, ours waited for, and torch's own `async_save`, in one
run.

Two gloo ranks train a model on random tokens; after every few steps one of the contenders saves to the same disk, and
the run waits for the end of that before the next takes its turn. "Stall" is the time until training can go on: the
slowest rank's, the median of the turns after the first, which makes buffers. "All" is until the checkpoint stands: with
us hashed and committed, which torch's is not. "Steps meanwhile" is how much slower a step is while the background
writes. Memory is what a rank holds beyond the state before its first save of that kind, at most.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import async_save

from pretrain import checkpoint
from pretrain.checkpoint.shards import tensors_of
from pretrain.parallel.base import mesh
from pretrain.parallel.base.params import num_parameters
from pretrain.training.step import Run, train_step
from tools.bench.pretrain.random_run import configuration, on_ranks, random_run, random_tokens
from tools.bench.timing import status, timed

RANKS, TURNS = 2, 3
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {
        "num_layers": 10,
        "hidden_size": 640,
        "num_heads": 10,
        "sequence_length": 32,
        "vocab_size": 8000,
        "padded_vocab_size": 8192,
    },
    "training": {"global_batch_size": 2, "micro_batch_size": 1},
}
Begin = Callable[[Run, Path], Callable[[], object]]  # begins a save; what it returns waits for the end of it


def run(arguments: Namespace) -> None:
    """Print the table."""
    config = configuration(SECTIONS)
    measured = on_ranks(contenders, RANKS, arguments.data or Path(tempfile.gettempdir()))
    parameters = num_parameters(config.model)
    print(f"{parameters / 1e6:.0f} M parameters on {RANKS} ranks, {12 * parameters / 1e9:.2f} GB a checkpoint")
    print(f"{'':<34}{'stall s':>9}{'to ours':>9}{'all s':>8}{'step alone s':>14}{'meanwhile s':>13}{'MB a rank':>11}")
    ours = max(result["in the background"]["stall"] for result in measured)
    for name in measured[0]:
        worst = {key: max(result[name][key] for result in measured) for key in measured[0][name]}
        ratio, steps = f"x {worst['stall'] / ours:.1f}", f"{worst['alone']:>14.2f}{worst['meanwhile']:>13.2f}"
        print(f"{name:<34}{worst['stall']:>9.3f}{ratio:>9}{worst['all']:>8.2f}{steps}{worst['bytes'] / 1e6:>11,.0f}")


def contenders(data: Path) -> dict[str, dict[str, float]]:
    """What each way of saving costs this rank."""
    config = configuration(SECTIONS)
    folder = Path(tempfile.mkdtemp(dir=data)) if dist.get_rank() == 0 else None
    shared: list[Any] = [folder]
    dist.broadcast_object_list(shared)
    with mesh.start(config.parallel, "cpu", timeout_minutes=2.0) as world:
        trained = random_run(config, world, random_tokens(config))
        for _ in range(2):
            train_step(trained)
        group = dist.new_group(backend="gloo")
        ways: dict[str, Begin] = {
            "in the background": ours(trained, shared[0] / "background", in_background=True),
            "waited for": ours(trained, shared[0] / "waiting", in_background=False),
            "torch's async_save": torchs(group),
        }
        try:
            return {
                name: time_saves(trained, begin, shared[0] / str(number))
                for number, (name, begin) in enumerate(ways.items())
            }
        finally:
            world.gather(None)
            if world.rank == 0:
                shutil.rmtree(shared[0])


def time_saves(run: Run, begin: Begin, folder: Path) -> dict[str, float]:
    """The medians of several turns."""
    turns: list[dict[str, float]] = []
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    for turn in range(TURNS + 1):
        alone, _ = timed(partial(train_step, run), time.perf_counter)
        run.world.gather(None)
        started = time.perf_counter()
        wait = begin(run, folder / str(turn))
        stalled = time.perf_counter()
        train_step(run)
        stepped = time.perf_counter()
        wait()
        times = {"stall": stalled - started, "meanwhile": stepped - stalled, "alone": alone}
        turns.append(times | {"all": time.perf_counter() - started})
        run.world.gather(None)
        if run.world.rank == 0:
            shutil.rmtree(folder / str(turn), ignore_errors=True)
    medians = {key: statistics.median(turn[key] for turn in turns[1:]) for key in turns[0]}
    return medians | {"bytes": status("VmHWM") - before}


def ours(run: Run, out: Path, in_background: bool) -> Begin:
    """As a run saves."""
    options = run.config.checkpoint.model_copy(update={"async_save": in_background, "keep_last": 1})
    config = run.config.model_copy(update={"checkpoint": options})
    identity = checkpoint.Identity("0" * 64, Path(__file__), "0" * 64)
    place = checkpoint.place_of(out, options)
    saver = checkpoint.Saver(place, run.model, run.optimizer, config, identity, run.world)

    def begin(run: Run, folder: Path) -> Callable[[], object]:
        saver.save(run.state)
        return saver.wait

    return begin


def torchs(group: Any) -> Begin:
    """torch's, on a group of its own and with the files that we read."""

    def begin(run: Run, folder: Path) -> Callable[[], object]:
        tensors = tensors_of(run.model.parameters, run.optimizer)
        writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
        saving: Any = async_save(tensors, storage_writer=writer, process_group=group)
        return lambda: saving.result()

    return begin

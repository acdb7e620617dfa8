"""The ranks of a run: who they are, the mesh they form, and the few things they say to each other outside the model.

One mesh of four axes (pp, dp_replicate, dp_shard, tp), whatever is used of it: the ranks of one tensor-parallel group
are neighbours, which talk most. A run of one process forms a group of one, so that nothing else asks whether there are
others. The backend is `cpu:gloo,cuda:nccl`: flags and checkpoints travel over gloo and never need a GPU. A rank that
dies or hangs makes the others fail within the timeout, with its name (`hang_report`).
"""

from __future__ import annotations

import ctypes
import datetime
import faulthandler
import math
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _set_pg_timeout

from corpus.engine.errors import UsageError, WenhaiError
from pretrain.config import ParallelConfig
from pretrain.errors import FailedRank, LostPeer, LostRank
from pretrain.parallel.base.hang_report import HangReport
from pretrain.phases import Phases

AXES = ("pp", "dp_replicate", "dp_shard", "tp")
DATA_AXES = ("dp_replicate", "dp_shard")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among its peers. Data-parallel rank r of n trains on the r-th of n equal parts of each batch."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    timeout: datetime.timedelta  # for a rank that waits for another
    phases: Phases = field(default_factory=Phases)  # what this process is doing, and how long each took
    group: dist.ProcessGroup | None = (
        None  # over which `any_of`, `gather` and `propagate_errors` talk; None: the world's own
    )

    @property
    def dp_size(self) -> int:
        """Number of data-parallel ranks."""
        return self._size("dp_replicate") * self._size("dp_shard")

    @property
    def dp_rank(self) -> int:
        """This process's place among them."""
        return self.mesh.get_local_rank("dp_replicate") * self._size("dp_shard") + self.mesh.get_local_rank("dp_shard")

    @property
    def pp_size(self) -> int:
        """Number of ranks of its pipeline."""
        return self._size("pp")

    @property
    def pp_rank(self) -> int:
        """This process's place in it."""
        return self.mesh.get_local_rank("pp")

    @property
    def tp_size(self) -> int:
        """Number of ranks that share each matrix."""
        return self._size("tp")

    @property
    def tp_rank(self) -> int:
        """This process's place among them."""
        return self.mesh.get_local_rank("tp")

    def sum_over(self, axes: Sequence[str], *values: float | torch.Tensor) -> list[float]:
        """Sums over the ranks along some axes, in double precision; all of them get the same numbers."""
        total = torch.tensor([float(value) for value in values], dtype=torch.float64)
        with self.phases("communication"):
            for axis in axes:
                if self._size(axis) > 1:
                    dist.all_reduce(total, group=self.mesh.get_group(axis))
        return total.tolist()

    def any_of(self, *flags: bool) -> list[bool]:
        """For each flag whether it is raised on any rank of the world."""
        raised = torch.tensor(flags, dtype=torch.int32)
        if self.size > 1:
            with self.phases("communication"):
                dist.all_reduce(raised, op=dist.ReduceOp.MAX, group=self.group)
        return [bool(flag) for flag in raised.tolist()]

    def own_group(self, groups: Sequence[Sequence[int]], backend: str | None = None) -> dist.ProcessGroup | None:
        """Of new groups of ranks of the world, the one that this rank is in; every rank gives the same, in the same
        order."""
        own: dist.ProcessGroup | None = None
        for ranks in groups:
            group = dist.new_group(list(ranks), timeout=self.timeout, backend=backend)
            if self.rank in ranks:
                own = group
        return own

    def gather(self, value: T) -> list[T]:
        """A small object of every rank, by rank, on every rank."""
        values: list[Any] = [None] * self.size
        with self.phases("communication"):
            dist.all_gather_object(values, value, group=self.group)
        return values

    @contextmanager
    def propagate_errors(self) -> Iterator[None]:
        """Run a block on every rank; if it fails on one, all raise that rank's error instead of waiting for it.

        The kind of a `WenhaiError` is kept, so that all ranks end with the same exit code; an `OSError` becomes one. Of
        anything else (a bug, no memory, a device) the rank raises it as it was, and the others `FailedRank`.
        The block must hold no collective that a failing rank would leave its peers waiting in.
        """
        error: Exception | None = None
        try:
            yield
        except OSError as caught:
            error = WenhaiError(str(caught))
        except Exception as caught:
            if isinstance(caught, RuntimeError) and _is_of_peers(caught):
                raise  # there may be nobody to tell
            error = caught
        is_ours = error is None or isinstance(error, WenhaiError)
        world = self if is_ours else replace(self, phases=Phases())  # the clock of a GPU that failed would fail, too
        (failed,) = world.any_of(error is not None)
        if not failed:
            return
        reports = world.gather(None if error is None else _report(error))
        found = {rank: report for rank, report in enumerate(reports) if report is not None}
        # a refusal that a rank could go on from does not hide that another one ends
        first = min(found, key=lambda rank: (found[rank][0] is not FailedRank, rank != self.rank, rank))
        if error is not None and first == self.rank:
            raise error
        kind, message = found[first]
        raise kind(f"rank {first}: {message}")

    def _size(self, axis: str) -> int:
        return self.mesh.size(AXES.index(axis))


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of giving them back to the kernel and faulting them in again.

    Logits are tens of megabytes a micro-batch; on two CPU ranks, 6,600 tokens a second became 8,000.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@cache
def use_one_gloo_worker() -> None:
    """Give each gloo group that is created from now on one worker thread instead of two.

    A worker writes the name of the collective it has finished into one string of its group, and takes no lock
    (ProcessGroupGloo::runLoop of torch 2.13). A name of more than 15 characters lies on the heap: two workers that
    write ALLGATHER_COALESCED at once, which every functional all-gather is called there, free one block twice
    ("malloc(): unaligned tcache chunk detected", a segmentation fault). `init_process_group` takes no options for gloo;
    interfaces are chosen as it does.
    """
    gloo: Any = dist.ProcessGroupGloo
    create = gloo.__init__

    def create_with_one_worker(self: Any, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> None:
        options = gloo._Options()
        options._threads, options._timeout = 1, timeout
        names = filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(","))
        options._devices = [gloo.create_device(interface=name) for name in names] or [gloo.create_default_device()]
        create(self, store, rank, size, options)

    gloo.__init__ = create_with_one_worker


def use_expandable_segments() -> None:
    """Let blocks of the GPU's memory grow where they lie, so that sizes that change leave no holes; to be called before
    CUDA is initialised. What the environment says stands."""
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the older name, which torch reads first
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


@contextmanager
def start(parallel: ParallelConfig, device: str, timeout_minutes: float, stacks: Path | None = None) -> Iterator[World]:
    """Join the run that torchrun or `--nproc` started (or a run of one), and leave it at the end.

    If a rank gets lost, the others write their stacks to a folder, `stacks`.

    Raises:
        UsageError: the ranks do not fit the layout, or have different ones, there is no such device, or torchrun's
            restarts cannot work.
        LostRank: another rank is gone, or silent for longer than the timeout.
    """
    with suppress(OSError, RuntimeError):  # where standard error is no file, as in a notebook
        faulthandler.enable()
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    shape = layout(parallel, size)
    where = choose_device(device)
    if where.type == "cpu":
        keep_freed_memory()
    timeout = datetime.timedelta(minutes=timeout_minutes)
    if not dist.is_initialized():
        _meet("cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo", timeout)
    hang_report: HangReport | None = None
    try:
        _check_equal(shape, size)
        mesh = init_device_mesh(where.type, shape, mesh_dim_names=AXES)
        for group in (
            None,
            *map(mesh.get_group, AXES),
        ):  # those of axes would wait half an hour, whatever the world's timeout
            _set_pg_timeout(timeout, group)
        world = World(rank, size, where, mesh, timeout, Phases(where))
        if size > 1:
            patience = timeout.total_seconds() if where.type == "cuda" else None
            hang_report = HangReport(rank, world.phases, world.gather, stacks, patience)
        yield world
    except RuntimeError as error:
        if not _is_of_peers(error):
            raise
        reason = re.sub(r"\[/\S+\] ", "", str(error).partition(". ")[0])  # gloo adds advice, and its sources' lines
        missing = f"rank {rank} waited for another rank" if hang_report is None else hang_report.report(error)
        advice = "" if stacks is None else f" Stacks: {stacks}."
        raise LostRank(
            f"{missing} ({reason}).{advice} See what that rank said last, and start the run again: it resumes."
        ) from error
    finally:
        if hang_report is not None:
            hang_report.close()
        if size == 1 or _is_agreed(sys.exception()):
            dist.destroy_process_group()  # else this process ends, and NCCL would wait for the lost rank first


def _meet(backend: str, timeout: datetime.timedelta) -> None:
    """Form the group of all ranks where the environment says they meet; without an environment, a group of one.

    It is bound to no device (`device_id`): torch would split the mesh's groups off from it, their gloo ones with two
    workers each (`use_one_gloo_worker`), and one GPU alone would hold a communicator for each axis.
    """
    use_one_gloo_worker()
    if "RANK" not in os.environ:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1, timeout=timeout)
        return
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            _check_agent_store(timeout)
        dist.init_process_group(backend, timeout=timeout)
    except RuntimeError as error:
        if not _is_of_peers(error):
            raise
        raise LostRank(
            f"rank {os.environ['RANK']}: the {os.environ.get('WORLD_SIZE')} ranks did not meet at {place} within "
            f"{timeout.total_seconds():g} s ({str(error).splitlines()[0]}). See whether all were started, and "
            "what the others say."
        ) from error


def _check_equal(shape: tuple[int, ...], size: int) -> None:
    """Refuse ranks of different layouts, which would wait for each other in groups that others do not form."""
    shapes: list[Any] = [shape] * size
    if size > 1:
        dist.all_gather_object(shapes, shape)
    other = next((other for other in range(size) if shapes[other] != shapes[0]), None)
    if other is not None:
        ours, theirs = (" x ".join(f"{a} {n}" for a, n in zip(AXES, shapes[r], strict=True)) for r in (0, other))
        raise UsageError(
            f"parallel: rank 0 has {ours}, and rank {other} has {theirs}. Start all ranks with one configuration; "
            "if that is auto, on devices of one kind, or name parallel.cluster."
        )


def _check_agent_store(timeout: datetime.timedelta) -> None:
    """Refuse a restart in which torchrun's agent hands out the store of an earlier attempt: ranks would look for dead
    ones."""
    rank, host, port = os.environ["RANK"], os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, timeout=timeout, wait_for_workers=False)  # type: ignore[attr-defined]
    if store.add(f"wenhai/started/{rank}", 1) > 1:
        raise UsageError(
            f"rank {rank}: torchrun restarted the ranks on the store of an earlier attempt, where they cannot "
            "meet. Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of every torchrun, let them meet by "
            "--standalone or --rdzv-backend c10d, and start the run again: it resumes."
        )


def _report(error: Exception) -> tuple[type[WenhaiError], str]:
    """What the peers of a rank raise, and say, of its error."""
    if isinstance(error, WenhaiError):
        return type(error), str(error)
    cause = ": ".join(filter(None, (type(error).__name__, str(error).partition("\n")[0])))  # CUDA adds advice
    return FailedRank, f"{cause} (on {socket.gethostname()}). What that rank said last has the traceback."


def _is_agreed(error: BaseException | None) -> bool:
    """Whether all ranks leave the run together, in a state to do so."""
    return error is None or (isinstance(error, WenhaiError) and not isinstance(error, LostRank | FailedRank))


def _is_of_peers(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone: gloo's have no type of their own."""
    return (
        isinstance(error, dist.DistError | LostPeer) or "/gloo/" in str(error) or "Gloo connectFullMesh" in str(error)
    )


def layout(parallel: ParallelConfig, size: int) -> tuple[int, int, int, int]:
    """The mesh's shape (pp, dp_replicate, dp_shard, tp) for a number of ranks.

    >>> layout(ParallelConfig(tp=2, dp_replicate=2), 8)
    (1, 2, 2, 2)

    Raises:
        UsageError: they are not the product of the four.
    """
    unit = parallel.pp * parallel.dp_replicate * parallel.tp
    shape = (parallel.pp, parallel.dp_replicate, parallel.dp_shard or max(1, size // unit), parallel.tp)
    if math.prod(shape) != size:
        product = " x ".join(f"{axis} {length}" for axis, length in zip(AXES, shape, strict=True))
        enough = max(1, size // unit) * unit
        fix = f"start a multiple of {unit}, for example {enough} of them"
        if parallel.dp_shard:
            fix = f"{'leave dp_shard out to use all of them, or ' * (enough == size)}start {math.prod(shape)} of them"
        raise UsageError(f"parallel: {product} is not the number of ranks, {size}: {fix}.")
    return shape


def choose_device(name: str) -> torch.device:
    """The device of this process: the GPU of its local rank where there is one ("auto"), or the CPU.

    Where one GPU is to be seen it is this process's own: Slurm's `--gpus-per-task=1` shows each its own, as number 0.

    Raises:
        UsageError: there is no GPU, or there are several, but too few for the ranks of this machine.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("training.device is cuda, but torch sees no GPU here. Use --set training.device=cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    use_expandable_segments()
    number, local_rank = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    local_size = max(local_rank + 1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))  # so that all of them say so
    if 1 < number < local_size:
        raise UsageError(
            f"{local_size} ranks on {socket.gethostname()}, where torch sees {number} GPUs: start one rank for "
            "each GPU, or show each rank only its own (CUDA_VISIBLE_DEVICES, or --gpus-per-task=1 of Slurm)."
        )
    device = torch.device("cuda", 0 if number == 1 else local_rank)
    torch.cuda.set_device(device)
    return device

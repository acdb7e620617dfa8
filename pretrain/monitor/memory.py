"""Memory of a run: refused before it is allocated where it cannot fit, and watched while the run goes on.

The kernel does not say no: it kills a rank, hours into a run. So the estimate of `workload.memory` is held against what
there is before a model is built, and what the ranks of each node hold against the same limit at every report.

| | |
|---|---|
| the limit | `training.host_memory_gib` of each node; else what its ranks hold and what the node can still give |
| it can still give | MemAvailable, or what the control group of the process leaves where that is less |
| held by a rank | its RssAnon and RssShmem: what cannot be dropped and read again, as file pages can |
| held by a control group | its usage without the page cache that nobody used lately: what its limit kills for |
| of a GPU | the most its allocator ever held, of the memory it has |

At 90 % of a limit a warning is said and recorded, once each time it is crossed. Above the limit of host memory the run
saves and stops as after a signal, with exit code 75: a scheduler starts it again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple, cast

import torch

from corpus.engine.errors import UsageError
from pretrain.batch_size import check_batch_sizes
from pretrain.config import RunConfig
from pretrain.console import log_message
from pretrain.monitor.metrics import Metrics
from pretrain.parallel.base.mesh import World
from pretrain.workload.memory import Device, Estimate, estimate

GIB = 1 << 30
WARN_RATIO = 0.9
CALM_RATIO = 0.85  # below it the next crossing is told again
NO_LIMIT = 1 << 60  # what version 1 of control groups writes for none is about 2^63


class Reading(NamedTuple):
    """Memory in use, of what it may be."""

    used: int
    limit: int

    @property
    def ratio(self) -> float:
        """Above 1 there is too much."""
        return self.used / self.limit


def process_bytes(pid: int | Literal["self"] = "self", root: Path = Path("/")) -> int:
    """What a process holds that is of no file: anonymous and shared memory; 0 if it is gone."""
    try:
        lines = (root / f"proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return _kilobytes(lines, "RssAnon") + _kilobytes(lines, "RssShmem")


def available_bytes(root: Path = Path("/")) -> int:
    """What this process and others may still take before the kernel kills one of them."""
    available = _kilobytes((root / "proc/meminfo").read_text().splitlines(), "MemAvailable")
    group = control_group(root)
    return available if group is None else min(available, max(0, group.limit - group.used))


def control_group(root: Path = Path("/")) -> Reading | None:
    """Of the control groups that this process is in (version 2, or 1), the one that leaves least; None without
    limits."""
    readings: list[Reading] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            base = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if not controllers:
                names = ("memory.max", "memory.current", "inactive_file")
            own = base / path.lstrip("/")
            for folder in (own, *own.parents):  # each limits all below it; in a container the path may not be there
                readings += _reading(folder, *names)
                if folder == base:
                    break
    return min(readings, key=lambda reading: reading.limit - reading.used, default=None)


def _reading(folder: Path, limit_name: str, usage_name: str, cache_name: str) -> Iterable[Reading]:
    with suppress(OSError, ValueError):  # no such group seen from here; "max"
        limit, usage = (int((folder / name).read_text()) for name in (limit_name, usage_name))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        if limit < NO_LIMIT:
            yield Reading(max(0, usage - int(statistics.get(cache_name, 0))), limit)


def _kilobytes(lines: Sequence[str], name: str) -> int:
    """Bytes of a line such as `MemAvailable:   16668068 kB`; 0 where a kernel does not have it."""
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def check(config: RunConfig, world: World) -> None:
    """Refuse a run that cannot fit into the memory of a node, before anything is allocated; all ranks call it.

    What is certain to be needed decides, beside what the ranks hold already; where the whole estimate is above the
    limit too, a warning is said.

    Raises:
        UsageError: with the figures, and what to change.
    """
    check_batch_sizes(config.training, world.dp_size)
    device = cast(Device, world.device.type)
    own = estimate(config, world.size, device)[world.pp_rank]
    node = _node()
    reports = world.gather((node, own.host_bytes, own.host_bytes_at_least, process_bytes()))
    ours = [report[1:] for report in reports if report[0] == node]
    whole, least, held = (sum(column) for column in zip(*ours, strict=True))
    least += held
    limit = _limit(config, held)
    with world.propagate_errors():  # every rank has looked before one begins to allocate
        if least > limit:
            raise UsageError(_refusal(config, own, len(ours), Reading(least, limit)))
    if whole > limit and world.rank == 0:
        log_message(
            f"WARNING: host memory may not suffice: {_gib(whole)} estimated for {_ranks(len(ours))} of a node, and "
            f"there are {_gib(limit)}."
        )
    if device == "cuda":
        total = torch.cuda.get_device_properties(world.device).total_memory
        if own.device_bytes > total:
            log_message(
                f"WARNING: rank {world.rank}: {_gib(own.device_bytes)} of GPU memory estimated, and the GPU has "
                f"{_gib(total)}."
            )


def _limit(config: RunConfig, held: int) -> int:
    """Of this node, whose ranks hold `held` bytes now."""
    stated = config.training.host_memory_gib
    return held + available_bytes() if stated is None else int(stated * GIB)


def _refusal(config: RunConfig, own: Estimate, num_ranks: int, needed: Reading) -> str:
    stated = config.training.host_memory_gib is not None
    whose = "training.host_memory_gib allows" if stated else "there are"
    parts = own.host_rows()
    rows = "".join(f"\n  {name:<12}{size / GIB:>9,.2f} GiB" for name, size in parts if size >= 0.005 * GIB)
    advice = [advice for _, advice in sorted(_savings(config, own), reverse=True)]
    trust = "" if stated else " If you know better, say how much there is: --set training.host_memory_gib=GIB."
    return (
        f"the run needs {_gib(needed.used)} of host memory at least for {_ranks(num_ranks)} of "
        f"{socket.gethostname()}, and {whose} {_gib(needed.limit)}. Estimated for one rank:{rows}\n"
        f"{'; or '.join(advice).capitalize()}.{trust}"
    )


def _savings(config: RunConfig, own: Estimate) -> Iterator[tuple[int, str]]:
    """What can be changed, with about the bytes that a rank's host memory has of what each change lessens."""
    in_step = own.activations + own.logits + own.working if own.device == "cpu" else 0
    resting = own.resting if own.device == "cpu" or own.offload else 0
    yield resting, "start more ranks on more nodes"
    yield resting // 2, "train a smaller model"
    if config.checkpoint.async_save:
        yield own.snapshot, "set checkpoint.async_save=false"
    if own.offload and own.device == "cuda":
        yield own.resting + own.pinning, "set parallel.offload=false"
    if own.device == "cpu" and config.training.micro_batch_size > 1:
        yield in_step, "lower training.micro_batch_size"
    if own.device == "cpu" and config.parallel.recompute != "full":
        yield own.activations, "set parallel.recompute=full"


def _ranks(number: int) -> str:
    return "the one rank" if number == 1 else f"the {number} ranks"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f} GiB"


def _node() -> tuple[str, str]:
    """Ranks with the same value share a memory."""
    with suppress(OSError):
        return socket.gethostname(), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname(), ""


What = Literal["host", "device"]


class Watch:
    """What the ranks of this node hold, looked at by the first of them; the run hears of it through `flags` and
    `tell`."""

    def __init__(self, config: RunConfig, world: World) -> None:
        """Every rank of the world makes its own at the same time."""
        node, reports = _node(), world.gather((_node(), os.getpid()))
        self._pids = [pid for of_node, pid in reports if of_node == node]
        self._is_first = self._pids[0] == os.getpid()
        self._world = world
        self._limit = _limit(config, sum(process_bytes(pid) for pid in self._pids))
        self._is_stated = config.training.host_memory_gib is not None
        self._told: dict[What, bool] = {"host": False, "device": False}  # the same on every rank

    def flags(self) -> tuple[bool, bool, bool]:
        """Whether host and device are near their limits as this rank sees it, and whether the host's is passed."""
        host, device = self.host(), self.device()
        return self._is_near("host", host), self._is_near("device", device), host is not None and host.ratio > 1

    def warn(self, near_host: bool, near_device: bool, step: int, metrics: Metrics | None) -> None:
        """Warn where a limit has come near; with the flags as any rank of the world raised them, the same on all."""
        for what, is_near in (("host", near_host), ("device", near_device)):
            what = cast(What, what)
            crossed = is_near and not self._told[what]
            self._told[what] = is_near
            if crossed:
                reading = self.host() if what == "host" else self.device()
                reports = self._world.gather((reading, socket.gethostname()))
                if metrics is not None:
                    _warn(what, [(one, name) for one, name in reports if one is not None], step, metrics)

    def host(self) -> Reading | None:
        """On the first rank of a node, of its ranks together, or of its control group if that is nearer to its
        limit."""
        if not self._is_first:
            return None
        ranks = Reading(sum(process_bytes(pid) for pid in self._pids), self._limit)
        group = None if self._is_stated else control_group()
        return ranks if group is None else max(ranks, group, key=lambda reading: reading.ratio)

    def device(self) -> Reading | None:
        """Of this rank's GPU."""
        if self._world.device.type != "cuda":
            return None
        total = torch.cuda.get_device_properties(self._world.device).total_memory
        return Reading(torch.cuda.max_memory_allocated(self._world.device), total)

    def _is_near(self, what: What, reading: Reading | None) -> bool:
        return reading is not None and reading.ratio >= (CALM_RATIO if self._told[what] else WARN_RATIO)


def _warn(what: What, reports: Sequence[tuple[Reading, str]], step: int, metrics: Metrics) -> None:
    reading, host = max(reports, key=lambda report: report[0].ratio)
    metrics.record("memory_warning", step, {"what": what, "used_bytes": reading.used, "limit_bytes": reading.limit})
    kind, end = ("host", "Above it the run saves and stops.") if what == "host" else ("GPU", "")
    used = f"{_gib(reading.used)} of {_gib(reading.limit)}"
    log_message(f"WARNING: step {step}: {host}: {used} of {kind} memory in use. {end}".rstrip())

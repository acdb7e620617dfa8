"""`parallel = "auto"`: the layout of a run is the best one that the planner finds for the ranks that there are.

It is a function of the configuration, the number of ranks and the cluster, so all ranks come to the same by themselves.
What a run saves and records is the chosen layout, as if it had been written down. The same run on another number of
ranks is planned again; its checkpoints fit any layout.

The cluster is what `parallel.cluster` names; else the one of the package with this GPU, with as much memory and as many
GPUs a node as there are; on a CPU one of ordinary cores, with the memory of this machine. A file that `plan calibrate`
has measured knows more than either.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
import torch

from corpus.engine import toml
from corpus.engine.config import parse
from corpus.engine.errors import UsageError
from pretrain.batch_size import check_batch_sizes
from pretrain.config import ParallelConfig, RunConfig, to_json
from pretrain.parallel.base.mesh import choose_device, layout
from pretrain.plan.cost import Prediction
from pretrain.plan.machines.cluster import Cluster, load_cluster, named_clusters
from pretrain.plan.naming import layout_name
from pretrain.plan.search.search import Plans, search

# By the name that torch gives a GPU, the first that fits; None: no cluster of the package joins such cards as they are
# joined.
CLUSTERS = (
    ("V100-DGXS", "dgx-station-v100-32"),
    ("V100", "dlperf-v100-16"),
    ("A100.*PCI", "firefly-a100-40"),
    ("A100", "selene-a100-80"),
    ("H[12]00.*(PCI|NVL)|GH200", None),
    ("H100", "h100-80"),
    ("H200", "h200-141"),
    ("MI250X", "frontier-mi250x"),
)
CPU_CLUSTER = "cpu"
CALIBRATE = "`python -m pretrain plan calibrate --out FILE` measures this machine"
GIB = 2**30
MOST_PARTS = 3  # of a step, that are told
MOST_REJECTED = 2  # families, that are told


@dataclass(frozen=True)
class Chosen:
    """A configuration in the layout that was chosen for it."""

    config: RunConfig
    prediction: Prediction
    plans: Plans
    cluster: Cluster
    num_ranks: int

    def lines(self) -> Iterator[str]:
        """What was chosen, why, and what would pin it."""
        best, plans = self.prediction, self.plans
        yield (
            f"layout {layout_name(self.config, self.num_ranks)}, chosen for {self.num_ranks} x "
            f"{self.cluster.device.name} (cluster {self.cluster.name}) from {plans.considered:,} legal layouts"
        )
        parts = best.seconds.named
        largest = sorted(parts, key=lambda name: parts[name], reverse=True)[:MOST_PARTS]
        shares = ", ".join(f"{name} {parts[name] / best.step_seconds:.0%}" for name in largest if parts[name])
        yield (
            f"predicted: {best.step_seconds:.3g} s a step ({shares}), {best.memory_bytes / GIB:.2f} of "
            f"{self.cluster.device.memory_gib:g} GiB"
        )
        other = next((each for each in plans.layouts if each is not best), None)
        if other is not None:
            slower = other.step_seconds / best.step_seconds - 1
            yield f"next best: {layout_name(other.config, self.num_ranks)}, {slower:.1%} slower"
        for rejected in plans.rejected[:MOST_REJECTED]:
            yield f"not {rejected.family}: {rejected.reason}"
        yield "to pin it:"
        yield from (f"  {line}".rstrip() for line in toml_lines(self.config).splitlines())


def resolve(config: RunConfig, num_ranks: int, say: Callable[[str], None], device_name: str | None = None) -> RunConfig:
    """The configuration as it is; or, where `parallel` is "auto", in the layout that is chosen, which `say` is told.

    Args:
        device_name: of a GPU that is not here.

    Raises:
        UsageError: as `choose`.
    """
    if not config.parallel.auto:
        return config
    chosen = choose(config, num_ranks, cluster_for(config, device_name))
    for line in chosen.lines():
        say(line)
    return chosen.config


def choose(config: RunConfig, num_ranks: int, cluster: Cluster | None = None) -> Chosen:
    """The best layout of a configuration, whatever layout it has, on `num_ranks` devices of a cluster (None:
    `cluster_for`).

    Raises:
        UsageError: no layout fits, there are no such clusters or devices, or too few of them.
    """
    cluster = cluster or cluster_for(config)
    config = config.model_copy(update={"parallel": ParallelConfig()})
    plans = search(config, num_ranks, cluster)
    reason = ""
    for prediction in plans.layouts:
        try:
            return Chosen(_checked(prediction.config, num_ranks), prediction, plans, cluster, num_ranks)
        except UsageError as error:  # what training refuses and a step's duration does not depend on
            reason = reason or str(error).rpartition("\n")[2].strip()
    raise UsageError(
        f"parallel: none of {len(plans.layouts)} layouts can train this configuration. The first: {reason}"
    )


def _checked(config: RunConfig, num_ranks: int) -> RunConfig:
    """A layout as one would write it down: nothing that follows from the rest, and all that training asks of it."""
    parallel = config.parallel.model_copy(update={"dp_shard": None})
    usual = parallel.model_copy(update={"stages_per_rank": None})
    if usual.chunks == parallel.chunks:
        parallel = usual
    config = parse(RunConfig, to_json(config.model_copy(update={"parallel": parallel})), "the planner's layout")
    _, replicas, shards, _ = layout(config.parallel, num_ranks)
    check_batch_sizes(config.training, replicas * shards)
    return config


def cluster_for(config: RunConfig, device_name: str | None = None) -> Cluster:
    """What a run of this configuration is planned for: what it names, or the device of that name, or what is here.

    Raises:
        UsageError: no such cluster, or none is known with that GPU.
    """
    if config.parallel.cluster is not None:
        return load_cluster(config.parallel.cluster)
    if device_name is not None:
        return _cluster_with(device_name)
    if config.training.device == "cpu" or not torch.cuda.is_available():
        choose_device(config.training.device)  # says so where it must be a GPU
        return _with_host_memory(load_cluster(CPU_CLUSTER), config)
    memory_gib = torch.cuda.get_device_properties(0).total_memory / GIB
    seen = int(os.environ.get("LOCAL_WORLD_SIZE", "0")) or torch.cuda.device_count()
    cluster = _cluster_with(torch.cuda.get_device_name(0))
    return _with_host_memory(_as_seen(cluster, memory_gib, seen if seen > 1 else cluster.devices_per_node), config)


def toml_lines(config: RunConfig) -> str:
    """The TOML that pins a layout: what differs from what a configuration has where it says nothing, and the
    micro-batch."""
    usual = ParallelConfig()
    parallel: dict[str, Any] = {
        name: value
        for name, value in config.parallel.model_dump(mode="json").items()
        if value is not None and value != getattr(usual, name)
    }
    training = {"micro_batch_size": config.training.micro_batch_size}
    return toml.dump({"parallel": parallel or {"tp": 1}, "training": training}).strip()


def _cluster_with(device_name: str) -> Cluster:
    """The cluster of the package with this GPU on such a board."""
    found = next((name for pattern, name in CLUSTERS if re.search(pattern, device_name, re.IGNORECASE)), None)
    if found is not None:
        return load_cluster(found)
    raise UsageError(
        f"parallel: auto knows no cluster of {device_name}. Name one as parallel.cluster "
        f"({', '.join(named_clusters())}, or a file: {CALIBRATE})"
    )


def _with_host_memory(cluster: Cluster, config: RunConfig) -> Cluster:
    """With as much memory as a run may take of this machine, or as the machine has."""
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    memory_gib = config.training.host_memory_gib or math.floor(here * 10) / 10
    host = cluster.host.model_copy(update={"memory_gib": memory_gib})
    device = cluster.device
    if cluster.cores is not None:  # its devices have no other
        device = device.model_copy(update={"memory_gib": memory_gib / cluster.cores.number})
    return cluster.model_copy(update={"host": host, "device": device})


def _as_seen(cluster: Cluster, memory_gib: float, devices_per_node: int) -> Cluster:
    """A cluster of the package with the memory and the GPUs a node that there are."""
    device = cluster.device.model_copy(update={"memory_gib": math.floor(memory_gib * 10) / 10})
    cluster = cluster.model_copy(update={"device": device})
    if devices_per_node == cluster.devices_per_node:
        return cluster
    networks = [
        network.model_copy(update={"devices": devices_per_node})
        if network.devices == cluster.devices_per_node
        else network
        for network in cluster.networks
    ]
    values = cluster.model_dump() | {
        "devices_per_node": devices_per_node,
        "networks": [network.model_dump() for network in networks],
    }
    try:
        return Cluster.model_validate(values)
    except pydantic.ValidationError:
        raise UsageError(
            f"parallel: cluster {cluster.name} has {cluster.devices_per_node} devices a node, here are "
            f"{devices_per_node}. Name a cluster as parallel.cluster: {CALIBRATE}"
        ) from None

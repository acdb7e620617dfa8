"""Machines as data: what a device computes and holds, which networks join devices, and what the host has.

A cluster is a TOML file, one that comes with the package or one's own; `python -m pretrain plan calibrate` measures
one. `networks` are told from the inside out. Each joins the units that the one before it made: the innermost joins
devices, the next one joins groups of these, and so on. `bandwidth` is what leaves one such unit in one direction,
whatever number of network cards that takes: eight cards of 25 GB/s on a node are 200 GB/s that its devices share.
"""

from __future__ import annotations

import itertools
import math
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from corpus.engine import toml
from corpus.engine.config import Strict, load_toml, parse
from corpus.engine.errors import UsageError
from pretrain.config import Count, NonNegative, Positive, Precision
from pretrain.hardware import find_device

Share = Annotated[float, Field(gt=0, le=1)]


class Device(Strict):
    """One accelerator as torch counts them (of MI250X a die), or a core of a CPU."""

    name: str
    memory_gib: Positive
    memory_bandwidth: Positive  # bytes/s
    peak: dict[Precision, Positive] = {}  # FLOP/s; what is not here is taken from `hardware`, by the name

    def peak_flops(self, precision: Precision) -> float | None:
        """The dense peak in FLOP/s, None where nobody knows it."""
        if precision in self.peak:
            return self.peak[precision]
        known = find_device(self.name)
        return None if known is None else known.peak(precision)


class Network(Strict):
    """What joins units of devices (see above)."""

    name: str
    devices: Count | None = None  # how many it joins, neighbours in rank; None: all there are
    bandwidth: Positive  # bytes/s that leave one unit in one direction
    latency: NonNegative  # seconds until a message of no length has arrived
    efficiency: Share = 1.0  # of the bandwidth, that large all-reduces reach
    crowded: Share = 1.0  # of that, what is left where more than two units, or several groups of a unit, exchange
    half_factor: Annotated[float, Field(ge=1)] = 1.0  # by which a gather or scatter is longer than half an all-reduce
    trees: bool = True  # False: all-reduces are only rings, whose latency grows with the ranks and not their logarithm


class Host(Strict):
    """What the devices of a node share."""

    memory_gib: Positive
    memory_bandwidth: Positive  # bytes/s, of an optimizer that runs there
    link_bandwidth: Positive  # bytes/s between one device and the host, in one direction


class Cores(Strict):
    """Of a machine whose devices are the cores of its CPU, one thread each: all ranks share them."""

    number: Count
    products: Share = 1.0  # of its rate of products when it is alone, that a core reaches while all are busy
    memory: Share = 1.0  # likewise, of its memory bandwidth: they wait for the same memory


class Pace(NamedTuple):
    """How fast a device is beside others, relative to itself alone."""

    products: float
    memory: float
    launches: float  # what it does between: one where it has a core to itself


class Efficiency(Strict):
    """How much of the figures above is reached: fitted to measured steps, or measured by `plan calibrate`."""

    products: Share = 1.0  # of the peak, by large matrix products
    half_depth: NonNegative = 0.0  # length of a product's sums with which it reaches half of that (Hockney's n_1/2)
    memory: Share = 1.0  # of the memory bandwidth, by what only moves numbers
    seconds_per_operation: NonNegative = 0.0  # until it starts: small models wait for it
    held: Positive = 1.0  # device memory that a layout takes, of what is predicted


class HostReduce(Strict):
    """A sum over ranks that is computed on the hosts' CPUs (hfreduce): measured bytes/s by number of devices."""

    devices: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)]
    bandwidth: Annotated[tuple[Positive, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _check(self) -> HostReduce:
        if len(self.devices) != len(self.bandwidth):
            raise ValueError(f"{len(self.devices)} numbers of devices, but {len(self.bandwidth)} bandwidths")
        if list(self.devices) != sorted(set(self.devices)):
            raise ValueError("devices: from few to many, each number once")
        return self

    def bandwidth_over(self, num_devices: int) -> float | None:
        """Bytes/s of a number of devices, by its logarithm between measured ones; None below the first of them."""
        if num_devices < self.devices[0]:
            return None
        for few, many, low, high in zip(
            self.devices, self.devices[1:], self.bandwidth, self.bandwidth[1:], strict=False
        ):
            if num_devices <= many:
                return low + (high - low) * math.log(num_devices / few) / math.log(many / few)
        return self.bandwidth[-1]


class Cluster(Strict):
    """A kind of machine; how many of it is the question's."""

    name: str
    description: str
    devices_per_node: Count
    most_devices: Count | None = None  # None: as many as anybody pays for
    device: Device
    host: Host
    networks: Annotated[tuple[Network, ...], Field(min_length=1, strict=False)]
    efficiency: Efficiency = Efficiency()
    host_reduce: HostReduce | None = None
    cores: Cores | None = None  # None: each device is its own

    def __hash__(self) -> int:
        return hash((self.name, self.networks, self.efficiency))  # peaks are a dict, which has none

    def known_peak(self, precision: Precision) -> float:
        """The dense peak of a device in FLOP/s; raises `UsageError` where nobody knows it."""
        peak = self.device.peak_flops(precision)
        if peak is None:
            raise UsageError(
                f"cluster {self.name}: nobody has said what a {self.device.name} does in {precision}. Give "
                f"[device.peak] {precision} in the cluster's file, or another training.precision"
            )
        return peak

    def as_toml(self) -> str:
        """The file that `--cluster` reads."""
        return toml.dump(self.model_dump(mode="json", exclude_none=True))

    def pace(self, num_devices: int) -> Pace:
        """Of each of `num_devices` ranks that work at the same time; more of them than cores take turns."""
        if self.cores is None or num_devices == 1:
            return Pace(1.0, 1.0, 1.0)
        number = self.cores.number
        turns = max(1.0, num_devices / number)
        busy = min(1.0, (num_devices - 1) / max(1, number - 1))
        products, memory = (1 - busy * (1 - share) for share in (self.cores.products, self.cores.memory))
        return Pace(products / turns, memory / turns, 1 / turns)

    @model_validator(mode="after")
    def _check(self) -> Cluster:
        joined = [network.devices for network in self.networks]
        if None in joined[:-1]:
            raise ValueError("networks: only the last one may join all devices (leave `devices` out there alone)")
        sizes = [size for size in joined if size is not None]
        for inner, outer in itertools.pairwise(sizes):
            if outer <= inner or outer % inner:
                raise ValueError(f"networks: one of {outer} devices cannot be made of units of {inner}")
        return self


def named_clusters() -> list[str]:
    """The names of the clusters that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _clusters().iterdir() if path.name.endswith(".toml"))


def load_cluster(name_or_path: str) -> Cluster:
    """A cluster that comes with the package, by name, or one's own TOML file.

    Raises:
        UsageError: there is no such file, or it has errors; all of them are listed.
    """
    if name_or_path in named_clusters():
        with resources.as_file(_clusters() / f"{name_or_path}.toml") as path:
            return parse(Cluster, load_toml(path), f"cluster {name_or_path}")
    if not Path(name_or_path).is_file():
        raise UsageError(
            f"--cluster {name_or_path}: no such file, and none of {', '.join(named_clusters())}. "
            "`python -m pretrain plan calibrate --out FILE` measures this machine."
        )
    return parse(Cluster, load_toml(Path(name_or_path)), name_or_path)


def _clusters() -> Any:
    return resources.files("pretrain") / "plan" / "machines" / "clusters"

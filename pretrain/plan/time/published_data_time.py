"""What data parallelism adds to a step of published programs (`workload.software`).

| | exchanges of a micro-batch | after the last backward |
|---|---|---|
| Megatron-LM | | all-reduce of gradients |
| DeepSpeed, stage 1 | | all-reduce of gradients, gather of weights |
| stage 2 | reduce-scatter of gradients | gather of weights |
| stage 3 | gather of weights forward, one backward, one more to compute a block again; reduce-scatter of gradients | |

Those of a micro-batch run beside its arithmetic where a program asks ahead for them (`Software.exchanges_ahead`). With
offload a rank's part comes from host memory before each gather, and reduced gradients go there.
"""

from __future__ import annotations

from pretrain.plan.machines.collectives import Group
from pretrain.plan.prediction import Seconds
from pretrain.plan.time.data_time import DataTime, Extra, Numbers
from pretrain.plan.time.stage_time import Micro


def of_micro_batch(data: DataTime, numbers: Numbers, micro: Micro) -> Extra:
    """Of a micro-batch in a stage: as far as it takes longer than what it runs beside."""
    software, zero = data.software, data.zero
    if not software.shards or zero == 1 or (data.num_ranks == 1 and not data.offloads):
        return Extra()
    link = data.machine.cluster.host.link_bandwidth
    gather, reduce = 0.0, data.reduce(numbers.all)
    if zero == 3:
        gather = data.gather(numbers.all)
    if data.offloads:
        gather += data.machine.item * numbers.all / data.shards / link
        reduce += software.gradient_bytes * numbers.all / data.shards / link
    repeats = zero == 3 and software.gathers_to_recompute and data.parallel.recompute == "full"
    backward = (2 if repeats else 1) * gather + reduce
    beside = 1.0 if software.exchanges_ahead else 0.0
    return Extra(
        forward=Seconds(data=max(0.0, gather - beside * micro.forward.total)),
        weights=Seconds(data=max(0.0, backward - beside * micro.backward.total)),
        each=gather + backward,
    )


def of_step(data: DataTime, numbers: float) -> float:
    """After the last backward, of a rank's parameters."""
    machine, software = data.machine, data.software
    if data.num_ranks == 1 or (software.shards and data.zero == 3):
        return 0.0
    reduce = machine.all_reduce(Group(data.num_ranks, data.parallel.tp)).of(numbers * software.gradient_bytes)
    if not software.shards:
        return reduce
    return data.gather(numbers) + (reduce if data.zero == 1 else 0.0)

"""How long a step takes on a machine that need not be there: `predict` one layout, with where its time and memory go.

| part of a step | seconds on the busiest rank | where |
|---|---|---|
| products, memory, launches | of all its micro-batches, forward and backward | `operations`, `machine`, `stage_time` |
| recompute | the forward again | `stage_time` |
| tensor | exchanges between tensor-parallel ranks that nothing hides | `tensor_time` |
| messages, bubble | it waits for what other stages send, and for these stages | `pipeline_time` |
| data | gathering weights, reducing gradients: what of it makes a step longer | `data_time`, `pipeline_time` |
| optimizer, offload | the update; what goes to the host and back | `data_time` |

Collectives are `plan.machines.collectives`, memory is `workload.memory` or, for published programs,
`workload.megatron_memory`. The pipeline is the schedule's own list of actions, run against these durations; with
`exact=False` its closed form, which ranks thousands of layouts in the time of one simulation.
"""

from __future__ import annotations

from pretrain.config import RunConfig
from pretrain.plan.machines.cluster import Cluster
from pretrain.plan.prediction import RESERVED, Prediction, Seconds
from pretrain.plan.time.step_time import StepTime
from pretrain.workload.framework_profiles import OURS, FrameworkProfile

__all__ = ["RESERVED", "Prediction", "Seconds", "predict", "step_seconds"]


def predict(
    config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile = OURS, exact: bool = True
) -> Prediction:
    """The step of a configuration on `devices` devices of a cluster.

    Raises:
        UsageError: the layout does not fit the number of devices, the batch not the layout, or nobody knows the peak.
    """
    step = StepTime(config, devices, cluster, software)
    seconds = step.seconds(exact)
    return Prediction(
        config,
        devices,
        cluster,
        software,
        seconds,
        step.micro_batches,
        step.micro_batch_size,
        step.communication(seconds),
        step,
    )


def step_seconds(
    config: RunConfig, devices: int, cluster: Cluster, software: FrameworkProfile = OURS, exact: bool = True
) -> Seconds:
    """The same without memory; raises as `predict` does."""
    return StepTime(config, devices, cluster, software).seconds(exact)

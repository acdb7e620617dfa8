"""A search, or one layout, as JSON: seconds, bytes, and shares of 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pretrain.config import RunConfig
from pretrain.parallel.base.mesh import layout
from pretrain.plan.naming import layout_name
from pretrain.plan.prediction import Prediction
from pretrain.plan.search.search import Plans
from pretrain.workload import parameters

SHORT = ("step_seconds", "tflops_per_gpu", "mfu", "memory_bytes", "fits")  # figures of a prediction
FIGURES = (
    *("micro_batch_size", "micro_batches", "tokens_per_second", "model_tflops_per_gpu", "hfu", "bubble"),
    *("missing_bytes", "host_bytes_per_node"),
)


def as_json(
    config: RunConfig, tokens: int, layouts: Sequence[tuple[int | None, Prediction]], plans: Plans | None
) -> dict[str, Any]:
    """The answer to a question: `layouts` with their places among all that fit, and what of the search there is."""
    [(_, first), *_] = layouts
    return {
        "num_parameters": parameters.of_model(config.model),
        "cluster": first.cluster.name,
        "device": first.cluster.device.name,
        "devices": first.devices,
        "devices_per_node": first.cluster.devices_per_node,
        "software": first.software.name,
        "precision": config.training.precision,
        "tokens": tokens,
        "tokens_per_step": first.tokens_per_step,
        "considered": plans.considered if plans else 0,
        "fitting": len(plans.layouts) if plans else 0,
        "search_seconds": plans.seconds if plans else 0.0,
        "layouts": [of_layout(prediction, tokens, rank, config) for rank, prediction in layouts],
        "rejected": [asdict(rejected) for rejected in plans.rejected] if plans else [],
    }


def short(prediction: Prediction) -> dict[str, Any]:
    """What a layout costs, in a few numbers."""
    return {name: getattr(prediction, name) for name in SHORT}


def of_layout(
    prediction: Prediction, tokens: int, rank: int | None = None, base: RunConfig | None = None
) -> dict[str, Any]:
    """One layout, what it costs and where that goes."""
    config, parallel, worst = prediction.config, prediction.config.parallel, prediction.worst
    _, replicas, shards, _ = layout(parallel, prediction.devices)
    return {
        "rank": rank,
        "layout": layout_name(config, prediction.devices, base),
        "tensor_parallel": parallel.tp,
        "pipeline_parallel": parallel.pp,
        "data_parallel": replicas * shards,
        "data_parallel_replicate": replicas,
        "data_parallel_shard": shards,
        "global_batch_size": config.training.global_batch_size,
        "schedule": parallel.schedule if parallel.pp > 1 else None,
        "stages_per_rank": parallel.chunks,
        "layers_per_stage": list(parallel.layers_per_stage) if parallel.layers_per_stage else None,
        "sequence_parallel": parallel.sequence_parallel and parallel.tp > 1,
        **{name: getattr(parallel, name) for name in ("zero", "offload", "recompute", "recompute_every")},
        **{name: getattr(prediction, name) for name in (*SHORT, *FIGURES)},
        "days": prediction.days(tokens),
        "seconds": prediction.seconds.named,
        "communication": {axis: asdict(traffic) for axis, traffic in prediction.communication.items()},
        "memory": dict(worst.rows()),
        "memory_pipeline_rank": worst.pp_rank,
    }

"""Memory of a rank under Megatron-LM and Megatron-DeepSpeed of 2020 to 2023, for published tables.

Bytes of a layer and micro-batch (Korthikanti et al. 2022, table 2), h hidden, a heads, t tensor-parallel ranks; they
write 24 and 34 where the feed-forward width is 4 h:

| | |
|---|---|
| tensor parallelism | s b h (10 + 24 / t + 5 a s / (h t)) |
| and sequence parallelism | s b h / t (34 + 5 a s / h) |
| and selective recompute, or fused attention | without the last addend |
| full recompute | 2 s b h, beside one whole layer at a time |

Megatron-LM keeps all of weights, gradients and optimizer on each data-parallel rank; DeepSpeed's stages 1, 2 and 3
share the optimizer, gradients too, weights too (Rajbhandari et al. 2020). Stage 3 gathers two layers at a time, and
what lies outside of them. An un-fused update of a rank's part has temporaries, of `SUB_GROUP` numbers at a time. What
an allocator wastes is not in here.
"""

from __future__ import annotations

from pretrain.batch_size import local_batches
from pretrain.config import RunConfig
from pretrain.parallel.base.mesh import layout
from pretrain.parallel.base.stages import Stage
from pretrain.workload import parameters
from pretrain.workload.framework_profiles import FrameworkProfile
from pretrain.workload.memory import ITEM_BYTES, PROCESS_BYTES, Estimate
from pretrain.workload.pipeline import most_held, own_stages, stages_of

WEIGHT_BYTES = 2
SUB_GROUP = 10**9  # DeepSpeed's default `sub_group_size`


def layer_bytes(config: RunConfig, micro_batch_size: int, fuses_attention: bool = False) -> float:
    """Of one layer and micro-batch, as configured."""
    parallel = config.parallel
    if parallel.recompute == "full":
        x = config.model.sequence_length * micro_batch_size * config.model.hidden_size
        return 2 * x / (parallel.tp if parallel.sequence_parallel else 1)
    return whole_layer_bytes(config, micro_batch_size, parallel.recompute == "none" and not fuses_attention)


def whole_layer_bytes(config: RunConfig, micro_batch_size: int, with_scores: bool = True) -> float:
    """Without recompute, or without that of all but the scores."""
    model, ranks = config.model, config.parallel.tp
    x = model.sequence_length * micro_batch_size * model.hidden_size
    between = 10 / (ranks if config.parallel.sequence_parallel else 1)
    wide = 8 + 4 * model.ffn_size / model.hidden_size
    scores = 5 * model.num_heads * model.sequence_length / model.hidden_size if with_scores else 0.0
    return x * (between + (wide + scores) / ranks)


def estimate(config: RunConfig, world_size: int, software: FrameworkProfile) -> list[Estimate]:
    """What the ranks of each place of the pipeline need.

    Raises:
        UsageError: the layout does not fit the number of ranks, or the batch does not divide over them.
    """
    parallel, training, model = config.parallel, config.training, config.model
    _, replicas, shards, _ = layout(parallel, world_size)
    samples, micro_batch_size = local_batches(training, training.global_batch_size, replicas * shards)
    stages = stages_of(model, parallel.num_stages, parallel.layers_per_stage)
    of_layer = layer_bytes(config, micro_batch_size, software.fuses_attention)
    whole = whole_layer_bytes(config, micro_batch_size, not software.fuses_attention)
    passing = whole - of_layer if parallel.recompute == "full" else 0.0
    found = []
    owners = own_stages(parallel.schedule, parallel.pp, parallel.chunks)
    for rank, own in enumerate([stages[index] for index in indices] for indices in owners):
        sizes = [len(stage.layers) * of_layer for stage in own]
        numbers = sum(parameters.of_stage(model, stage) for stage in own) / parallel.tp
        weights, gradients, optimizer = (
            size * numbers / (shards if software.shards and parallel.zero >= since else 1)
            for size, since in (
                (WEIGHT_BYTES, 3),
                (software.gradient_bytes, 2),
                (software.state_bytes - WEIGHT_BYTES - software.gradient_bytes, 1),
            )
        )
        updated = numbers / (shards if software.shards else 1)
        in_update = 0.0 if parallel.offload else software.update_bytes * min(updated, SUB_GROUP)
        held = most_held(parallel.schedule, parallel.pp, parallel.chunks, samples // micro_batch_size, rank, sizes)
        found.append(
            Estimate(
                pp_rank=rank,
                stages=tuple(stage.index for stage in own),
                device="cuda",
                offload=parallel.offload,
                weights=int(weights),
                gradients=int(gradients),
                optimizer=int(optimizer),
                unreduced=0,
                gathered=int(_gathered(config, own, software)),
                activations=int(held),
                logits=int(_logits_bytes(config, micro_batch_size) if any(stage.is_last for stage in own) else 0),
                working=int(max(passing, in_update)),
                batch=0,
                pinning=0,
                snapshot=0,
                process=PROCESS_BYTES["cuda"],
            )
        )
    return found


def _logits_bytes(config: RunConfig, micro_batch_size: int) -> float:
    """What the last stage keeps of the final norm, the head and the loss (Korthikanti et al. 2022, section 4.3)."""
    model, ranks = config.model, config.parallel.tp
    return 4 * model.sequence_length * micro_batch_size * (model.hidden_size + model.padded_vocab_size) / ranks


def _gathered(config: RunConfig, own: list[Stage], software: FrameworkProfile) -> float:
    """Weights that stage 3 has whole at a time; and, where they lie in host memory, stages 1 and 2 all of them."""
    parallel, model = config.parallel, config.model
    item = ITEM_BYTES[config.training.precision]
    numbers = sum(parameters.of_stage(model, stage) for stage in own)
    if not software.shards or parallel.zero < 3:
        return item * numbers / parallel.tp if parallel.offload else 0.0
    layer = parameters.by_room(model)["layer"]
    outside = numbers - layer * sum(len(stage.layers) for stage in own)
    return item * (outside + 2 * layer) / parallel.tp

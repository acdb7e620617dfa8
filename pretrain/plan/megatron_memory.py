"""Memory of a rank under Megatron-LM of 2021 and 2022, for published tables: Korthikanti et al. 2022, section 4.

Bytes of a layer and micro-batch (their table 2), h hidden, a heads, t tensor-parallel ranks, f feed-forward width:

| | |
|---|---|
| tensor parallelism | s b h (10 + 24 / t + 5 a s / (h t)) |
| and sequence parallelism | s b h / t (34 + 5 a s / h) |
| and selective recompute | without the last addend |
| full recompute | 2 s b h, beside one whole layer at a time |
"""

from __future__ import annotations

from pretrain.batch_size import local_batches
from pretrain.config import RunConfig
from pretrain.parallel.mesh import layout
from pretrain.parallel.schedule import actions, stage_ranks
from pretrain.parallel.simulate import most_held
from pretrain.parallel.stages import Stage, cut
from pretrain.plan import parameters
from pretrain.plan.memory import PROCESS_BYTES, Estimate
from pretrain.plan.software import Software


def layer_bytes(config: RunConfig, micro_batch_size: int) -> float:
    """Of one layer and micro-batch, as configured."""
    parallel = config.parallel
    x = config.model.sequence_length * micro_batch_size * config.model.hidden_size
    if parallel.recompute == "full":
        return 2 * x / (parallel.tp if parallel.sequence_parallel else 1)
    return whole_layer_bytes(config, micro_batch_size, with_scores=parallel.recompute == "none")


def whole_layer_bytes(config: RunConfig, micro_batch_size: int, with_scores: bool = True) -> float:
    """Without recompute, or without that of all but the scores."""
    model, ranks = config.model, config.parallel.tp
    x = model.sequence_length * micro_batch_size * model.hidden_size
    between = 10 / (ranks if config.parallel.sequence_parallel else 1)
    wide = 8 + 4 * model.ffn_size / model.hidden_size
    scores = 5 * model.num_heads * model.sequence_length / model.hidden_size if with_scores else 0.0
    return x * (between + (wide + scores) / ranks)


def estimate(config: RunConfig, world_size: int, software: Software) -> list[Estimate]:
    """What the ranks of each place of the pipeline need."""
    parallel, training, model = config.parallel, config.training, config.model
    _, replicas, shards, _ = layout(parallel, world_size)
    samples, micro_batch_size = local_batches(training, training.global_batch_size, replicas * shards)
    lists = actions(parallel.schedule, parallel.pp, parallel.chunks, samples // micro_batch_size)
    owners = stage_ranks(parallel.schedule, parallel.pp, parallel.chunks)
    stages = cut(model, parallel.num_stages, parallel.layers_per_stage)
    x = model.sequence_length * micro_batch_size * model.hidden_size
    of_layer = layer_bytes(config, micro_batch_size)
    passing = whole_layer_bytes(config, micro_batch_size) - of_layer if parallel.recompute == "full" else 0.0
    result = []
    for rank in range(parallel.pp):
        own = [stage for stage, owner in zip(stages, owners, strict=True) if owner == rank]
        sizes = [len(stage.layers) * of_layer for stage in stages]
        numbers = sum(parameters.of_stage(model, stage) for stage in own) / parallel.tp
        last = any(stage.is_last for stage in own)
        logits = 4 * x * (1 / parallel.tp + model.padded_vocab_size / (model.hidden_size * parallel.tp)) if last else 0
        result.append(
            Estimate(
                pp_rank=rank,
                stages=tuple(stage.index for stage in own),
                device="cuda",
                offload=parallel.offload,
                weights=int(2 * numbers),
                gradients=int(software.gradient_bytes * numbers),
                optimizer=int((software.state_bytes - 2 - software.gradient_bytes) * numbers),
                unreduced=0,
                gathered=0,
                activations=int(most_held(lists[rank], sizes)),
                logits=int(logits),
                working=int(passing),
                batch=0,
                pinning=0,
                snapshot=0,
                process=PROCESS_BYTES["cuda"],
            )
        )
    return result

"""Pretraining: the model, its parallel layouts, the loader over token shards, the training loop and its checkpoints."""

from corpus.engine import register_moved

register_moved(
    {
        "pretrain.train": "pretrain.run.train",
        "pretrain.trace": "pretrain.run.trace",
        "pretrain.step": "pretrain.training.step",
        "pretrain.optim": "pretrain.training.optim",
        "pretrain.evaluation.scoring": "pretrain.inference.scoring",
        "pretrain.plan.demand": "pretrain.workload",
    }
)

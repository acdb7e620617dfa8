"""Pretraining: the model, its parallel layouts, the loader over token shards, the training loop and its checkpoints."""

"""Supervised fine-tuning: conversations and tasks as examples, trained on with the trainer, loader and checkpoints of
any run."""

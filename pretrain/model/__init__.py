"""The GPT, its layers and masks, and the micro-batches that it takes."""

from pretrain.model.gpt import GPT

__all__ = ["GPT"]

"""Compares our evaluation with lm-evaluation-harness: the same strings, one model as a checkpoint and as an exported
folder."""

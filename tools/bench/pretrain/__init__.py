"""Benchmarks of the pretrain package."""

"""Benchmarks of the tokenizer package and of its shards."""

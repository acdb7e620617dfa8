"""Benchmarks of the corpus package."""

"""Helpers around the packages: the demo's input, benchmarks. Not installed, imported by nothing."""

"""Machines as data, measured or told."""

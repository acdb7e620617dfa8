"""Seconds, from operations and bytes on a machine."""

"""Compiled passes over a batch of UTF-8 text, and the character tables they look up; below every room that reads
text."""

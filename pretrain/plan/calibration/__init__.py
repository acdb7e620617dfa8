"""This machine measured, and what was predicted beside it."""

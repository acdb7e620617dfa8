"""Extraction in the child process of corpus.sandbox, but for pages that ask for something else (`evil.act`)."""

from __future__ import annotations

from corpus.extract import child
from tests.faults.evil import act

warm_up = child.warm_up  # what is compiled, or loaded late, is no page's own work


def extract_payload(payload: bytes) -> bytes:
    """Do what the page says, and extract it if that has not ended the process."""
    act(payload)
    return child.extract_payload(payload)

"""What ends a run from one of its ranks."""

from __future__ import annotations

from corpus.engine.errors import WenhaiError


class LostRank(WenhaiError):
    """Another rank is gone, or silent for longer than the timeout. Each rank that sees it says so. Exit code 1."""

"""What ends a run from one of its ranks."""

from __future__ import annotations

from corpus.engine.errors import WenhaiError


class LostPeer(RuntimeError):
    """An exchange failed: the other rank is gone or silent. Only inside a run, which ends with a `LostRank` then.

    No `WenhaiError`: those are errors that all ranks can speak about, and leave together.
    """


class LostRank(WenhaiError):
    """Another rank is gone, or silent for longer than the timeout. Each rank that sees it says so. Exit code 1."""


class FailedRank(WenhaiError):
    """Another rank met what is no `WenhaiError` (a bug, no memory, its device), and told: the run ends. Exit code 1."""

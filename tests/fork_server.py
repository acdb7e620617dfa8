"""Processes forked from a server that has imported what they need.

The server of `multiprocessing` is one for all, and has imported what its first user asked for: after a build's workers
each rank of a training would import torch by itself.
"""

from __future__ import annotations

from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from unittest import mock


class ForkServer:
    """A server of its own, started with its first process; it ends with this one."""

    def __init__(self, *modules: str) -> None:
        self._server = forkserver.ForkServer()
        self._server.set_forkserver_preload(list(modules))

    def start(self, process: ForkServerProcess) -> None:
        """Start a process of the context "forkserver"."""
        with mock.patch.object(forkserver, "connect_to_new_process", self._server.connect_to_new_process):
            process.start()

"""What every test gets: the same hypothesis examples everywhere, no network, one thread, and the optional real texts.

`WENHAI_TEST_DATA` names a folder of real texts that are never committed; tests that use it ask for `test_data` and are
skipped where it is not set.
"""

from __future__ import annotations

import ipaddress
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy or torch is imported: tests share a few cores
os.environ.setdefault("NO_COLOR", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.pretrain.ranks import end_reused_ranks

multiprocessing.set_forkserver_preload(["corpus.build", "tokenizer.build"])  # each worker of a build: 0.7 s of a core

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in what a script starts with `&`: children would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",  # the same examples on every machine and every run: a red test stays red
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("full", parent=settings.get_profile("default"), max_examples=100)  # CI's
settings.register_profile("search", parent=settings.get_profile("default"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("WENHAI_HYPOTHESIS", "default"))

_connect = socket.socket.connect


class NetworkForbidden(OSError):
    """A test tried to reach another machine."""


def _is_local(family: int, address: Any) -> bool:
    if family not in (socket.AF_INET, socket.AF_INET6):
        return True
    host = str(address[0])
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _guarded_connect(self: socket.socket, address: Any) -> None:
    if not _is_local(self.family, address):
        raise NetworkForbidden(f"a test may not connect to {address!r}")
    _connect(self, address)


@pytest.fixture(autouse=True, scope="session")
def _no_network() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _guarded_connect)
        yield


@pytest.fixture(autouse=True, scope="module")
def _reused_ranks_end() -> Iterator[None]:
    yield
    end_reused_ranks()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real texts; the test is skipped where there is none."""
    folder = os.environ.get("WENHAI_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("WENHAI_TEST_DATA is not set")
    return Path(folder)

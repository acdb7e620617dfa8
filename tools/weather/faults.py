"""What goes wrong with which request, and how many were made.

A fault is drawn by the seed, the request and how often this process has made it: the same run has the same faults,
whatever its threads do.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

VARIABLE = "WENHAI_WEATHER"
STAGE = re.compile(r"(?:^|/)([a-z_]+)-[0-9a-f]{12}(?:/|$)")
CHANGES = {"put", "copy", "delete"}
HIT_BY = {"cut": ("get", "range"), "short": ("range",)}  # the others hit any kind
_times: Counter[tuple[str, str]] = Counter()
_lock = threading.Lock()


@dataclass(frozen=True)
class Weather:
    """What a store does, in shares of its requests and in seconds.

    Args:
        root: the folder that holds the objects; the proxy has none.
        log: a folder in which each process counts its requests; none: they are not counted.
        latency, jitter: seconds of each request, and of a uniform addition.
        slow_down, internal_error: shares answered by 503 and 500; nothing is done then.
        reset: share whose connection ends without an answer; a change has been made.
        cut: share of reads whose body ends in the middle.
        short: share of ranges that come without their end and say nothing (of the folder only).
        list_latency: seconds more for a listing.
        late_list: seconds until a listing shows a new object (of the folder only).
        credentials_until: seconds of the epoch.
        credentials_requests: how many of a process they are good for.
        only: a regular expression of the requests that faults hit, as `get bucket/key`.
    """

    seed: int = 0
    root: str = ""
    log: str = ""
    latency: float = 0.0
    jitter: float = 0.0
    slow_down: float = 0.0
    internal_error: float = 0.0
    reset: float = 0.0
    cut: float = 0.0
    short: float = 0.0
    list_latency: float = 0.0
    late_list: float = 0.0
    credentials_until: float = float("inf")
    credentials_requests: int = 1 << 62
    only: str = ""

    def request(self, kind: str, path: str) -> str:
        """Count a request and wait as long as it takes; returns what goes wrong: "", "slow_down", "internal_error",
        "reset", "cut", "short" or "ended"."""
        with _lock:
            _times[kind, path] += 1
            time_of_it, requests = _times[kind, path], _times.total()
        random = int.from_bytes(hashlib.sha256(f"{self.seed} {kind} {path} {time_of_it}".encode()).digest()[:16])
        where, how_long = (random & (1 << 64) - 1) / 2**64, (random >> 64) / 2**64
        time.sleep(self.latency + self.jitter * how_long + self.list_latency * (kind == "list"))
        fault = self._fault(kind, path, where)
        if time.time() > self.credentials_until or requests > self.credentials_requests:
            fault = "ended"
        if self.log:
            _log(self.log, os.getpid(), f"{kind}\t{fault}\t{path}\n")
        return fault

    def _fault(self, kind: str, path: str, where: float) -> str:
        if not re.search(self.only, f"{kind} {path}"):
            return ""
        for fault in ("slow_down", "internal_error", "reset", "cut", "short"):
            share = getattr(self, fault) if kind in HIT_BY.get(fault, (kind,)) else 0.0
            if where < share:
                return fault
            where -= share
        return ""


def weather() -> Weather:
    """The weather of this process, by its environment."""
    return _parse(os.environ.get(VARIABLE, "{}"))


def environment(settings: Weather, folder: Path) -> dict[str, str]:
    """Variables by which child processes have this weather, and know `weather://`.

    fsspec finds file systems of other packages by their metadata: `folder` gets such metadata, and is looked through
    as PYTHONPATH is.
    """
    metadata = folder / "weather-0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: weather\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[fsspec.specs]\nweather = tools.weather.filesystem:WeatherFileSystem\n")
    paths = [str(folder), str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: json.dumps(asdict(settings)), "PYTHONPATH": os.pathsep.join(paths)}


@dataclass(frozen=True)
class Made:
    """A request that was made."""

    process: int
    kind: str  # head, get (whole), range, list, put, copy, delete
    fault: str
    path: str

    @property
    def stage(self) -> str:
        """Of the folder that it was about; empty outside of stages."""
        found = STAGE.search(self.path)
        return found[1] if found else ""


def made(log: str) -> Iterator[Made]:
    """All requests that were counted in a folder, of all processes."""
    for file in sorted(Path(log).glob("*.tsv")):
        for line in file.read_text(encoding="utf-8").splitlines():
            kind, fault, path = line.split("\t", 2)
            yield Made(int(file.stem), kind, fault, path)


@cache
def _parse(text: str) -> Weather:
    return Weather(**json.loads(text))


def _log(folder: str, process: int, line: str) -> None:
    os.write(_log_of(folder, process), line.encode())


@cache
def _log_of(folder: str, process: int) -> int:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return os.open(Path(folder, f"{process}.tsv"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

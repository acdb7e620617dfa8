"""Who is missing, and what was everybody doing: asked once, when a rank has waited for another in vain.

Each rank listens on a port of its own; its thread sleeps until somebody calls, so that a run that goes well pays
nothing. Addresses were exchanged at the start: no rank, store or agent has to be alive for the others to talk. A rank
whose collective failed calls all the others. One that lives says what it is doing and writes its stacks to a file; one
whose process has ended refuses the connection; one that is stopped, whose machine is gone or whose port is closed to
others is silent. The caller tells the result to all, so that those who fail a moment later do not mistake the caller,
which has ended by then, for the first one.

NCCL's watchdog ends a process without an exception when a collective is late. So where there is a GPU the same thread
looks up now and then, and asks all ranks itself shortly before. (Written for CUDA, and not yet run there.)
"""

from __future__ import annotations

import faulthandler
import hmac
import json
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pretrain.phases import Phases

ANSWER_SECONDS = 5.0  # that a living rank is given to answer
TURN_SECONDS, MOST_TURN_SECONDS = 0.02, 2.0  # by which each rank lets the one before it call first
SERVE_SECONDS = 2.0  # for one who has called to say what it wants
MOST_BYTES = 1 << 20  # of a message
MOST_CONNECTIONS = 256  # at a time
MOST_NAMED = 8  # ranks in a sentence
LOOKS = 10  # at a GPU's progress, within its timeout

ENDED, SILENT = "has ended", "does not answer: it is stopped, its machine is gone, or its port cannot be reached"
OF_MANY = {
    ENDED: "have ended",
    SILENT: "do not answer: they are stopped, their machines are gone, or their ports cannot be reached",
}
WAITS = "waits in "  # before the place of a rank that is in an exchange; one that hangs is in none
PHASE_WORDS = {"data": "reading", "evaluate": "evaluation", "communication": "exchange", "optimizer": "optimizer step"}


class Peer(NamedTuple):
    """Where a rank listens, and the word that it answers to."""

    host: str
    address: str
    port: int
    token: str


class HangReport:
    """This rank's part in it, from the start of the run to its end."""

    def __init__(
        self,
        rank: int,
        phases: Phases,
        exchange: Callable[[Peer], list[Peer]],
        stacks: Path | None = None,
        patience: float | None = None,
    ) -> None:
        """`exchange` gives every rank's peer to every rank; `patience`: seconds after which the device's library gives
        up."""
        self.rank = rank
        self.phases = phases
        self.stacks = stacks
        self._patience = patience
        self._failed_in: str | None = None  # set once this rank's own collective has failed
        self._called, self._concluded = threading.Event(), threading.Event()
        self._states: list[str] = []  # of all ranks, once concluded: what each was doing, or ENDED or SILENT
        self._listener = socket.create_server(("", 0), backlog=1024)
        if patience is not None:
            self._listener.settimeout(patience / LOOKS)
        peer = Peer(socket.gethostname(), _own_address(), self._listener.getsockname()[1], secrets.token_hex(16))
        self._peers = exchange(peer)
        self._thread = threading.Thread(target=self._listen, name="hang report", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread; close alone would not
        self._listener.close()
        self._thread.join(SERVE_SECONDS)

    def report(self, error: BaseException) -> str:
        """Who is missing, where this rank waited and what the others did; after at most some seconds, whoever is
        gone."""
        self._failed_in = where(self.phases.step, self.phases.path_of(error))
        self._write_stacks("".join(traceback.format_exception(error)))
        if self._called.wait(min(self.rank * TURN_SECONDS, MOST_TURN_SECONDS)):
            self._concluded.wait((2 + len(self._peers) // MOST_CONNECTIONS) * ANSWER_SECONDS)
        if not self._concluded.is_set():
            states = self._call()
            if self._concluded.is_set():  # by one who was quicker: what ended since has not ended the run
                return self._describe(self._states)
            self._states = states
            self._tell()
        return self._describe(self._states)

    def _describe(self, states: Sequence[str]) -> str:
        missing = {state: [r for r, s in enumerate(states) if s == state] for state in (ENDED, SILENT)}
        gone = [
            f"{self._name(ranks)} {state if len(ranks) == 1 else OF_MANY[state]}"
            for state, ranks in missing.items()
            if ranks
        ]
        busy: dict[str, list[int]] = defaultdict(list)
        others_in: dict[str, list[int]] = defaultdict(list)
        for rank, state in enumerate(states):
            if state not in missing and rank != self.rank:
                is_busy = not gone and not state.startswith(WAITS)
                (busy if is_busy else others_in)[state.removeprefix(WAITS)].append(rank)
        hanging = [
            f"{self._name(ranks)} {'is' if len(ranks) == 1 else 'are'} still in {s}" for s, ranks in busy.items()
        ]
        living = f"every rank answers{', but ' * bool(hanging)}{' and '.join(hanging)}"
        others = "; ".join(f"{self._name(ranks, hosts=len(ranks) == 1)} in {s}" for s, ranks in others_in.items())
        sentence = f"{' and '.join(gone) or living}; rank {self.rank} waited in {self._place()}"
        return f"{sentence}{f', {others}' if others else ''}"

    def _name(self, ranks: Sequence[int], hosts: bool = True) -> str:
        """As in `ranks 2 (node7), 3 (node7) and 14 more`."""
        names = [f"{rank} ({self._peers[rank].host})" if hosts else str(rank) for rank in ranks[:MOST_NAMED]]
        more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(names)}{more}"

    # As the one who calls

    def _call(self) -> list[str]:
        """What each rank is doing, by rank."""

        def state(rank: int) -> str:
            if rank == self.rank:
                return self._doing()
            try:
                return str(json.loads(self._send(rank, {})))
            except (ConnectionError, ValueError):
                return ENDED
            except OSError:  # a timeout, an unreachable machine, a name that nobody knows
                return SILENT

        with ThreadPoolExecutor(MOST_CONNECTIONS) as pool:
            return list(pool.map(state, range(len(self._peers))))

    def _tell(self) -> None:
        """Give the result to those that answered."""

        def tell(rank: int) -> None:
            with suppress(OSError):
                self._send(rank, {"states": self._states})

        living = [rank for rank, state in enumerate(self._states) if state not in (ENDED, SILENT) and rank != self.rank]
        with ThreadPoolExecutor(MOST_CONNECTIONS) as pool:
            pool.map(tell, living)

    def _send(self, rank: int, message: dict[str, Any]) -> bytes:
        """One line to a rank, and its answer, in `ANSWER_SECONDS`."""
        peer, deadline = self._peers[rank], time.monotonic() + ANSWER_SECONDS
        with socket.create_connection((peer.address, peer.port), ANSWER_SECONDS) as connection:
            connection.sendall(f"{peer.token} {json.dumps(message)}\n".encode())
            return _line(connection, deadline)

    # As one who is called

    def _listen(self) -> None:
        watch = _Watch(self.phases, self._patience or 0)
        while True:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                if watch.is_stuck():
                    states = self._call()
                    sys.stderr.write(f"pretrain: rank {self.rank} makes no progress: {self._describe(states)}.\n")
                continue
            except OSError:
                return
            with connection, suppress(OSError, ValueError, TypeError, LookupError):  # what it says may be nonsense
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        token, _, text = _line(connection, time.monotonic() + SERVE_SECONDS).partition(b" ")
        if not hmac.compare_digest(token, self._peers[self.rank].token.encode()):
            return  # a stranger, of whose bytes no more than these were read, and none parsed
        message = json.loads(text)
        is_call = "states" not in message
        if not is_call and not self._concluded.is_set():
            self._states = [str(state) for state in message["states"]]
            self._concluded.set()
        connection.settimeout(SERVE_SECONDS)
        connection.sendall(json.dumps(self._doing()).encode() + b"\n")
        if is_call:
            self._called.set()
            if self._failed_in is None:
                self._write_stacks()

    def _place(self) -> str:
        return self._failed_in or where(self.phases.step, self.phases.path)

    def _doing(self) -> str:
        waits = self._failed_in is not None or self.phases.current == "communication"
        return f"{WAITS if waits else ''}{self._place()}"

    def _write_stacks(self, text: str | None = None) -> None:
        """The stacks of this process's threads, or a text instead, to this rank's file."""
        if self.stacks is None:
            return
        with suppress(OSError):
            self.stacks.mkdir(parents=True, exist_ok=True)
            with open(self.stacks / f"rank-{self.rank:05}.txt", "w", encoding="utf-8") as file:
                file.write(f"rank {self.rank}, process {os.getpid()} on {socket.gethostname()}, in {self._place()}\n")
                file.write(text or "")
                file.flush()
                if text is None:
                    faulthandler.dump_traceback(file)


def _line(connection: socket.socket, deadline: float) -> bytes:
    """What the other side says until a deadline, of `MOST_BYTES` at most: a stranger keeps nobody from being heard."""
    said = bytearray()
    while not said.endswith(b"\n") and len(said) < MOST_BYTES:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        if not (more := connection.recv(1 << 16)) or time.monotonic() > deadline:
            break
        said += more
    return bytes(said)


class _Watch:
    """Whether a process has been in one phase of one step for nearly as long as the device's library has patience."""

    def __init__(self, phases: Phases, patience: float) -> None:
        self._phases, self._patience = phases, patience
        self._last: tuple[Any, ...] = ()
        self._since = time.monotonic()

    def is_stuck(self) -> bool:
        """True once each time."""
        now, current = time.monotonic(), (self._phases.step, self._phases.path)
        if current != self._last:
            self._last, self._since = current, now
        if not self._phases.path or self._phases.current in ("save", "evaluate"):  # which may take as long as they do
            return False
        if now - self._since < self._patience * (1 - 2 / LOOKS):
            return False
        self._since = float("inf")
        return True


def where(step: int, path: Sequence[str]) -> str:
    """Words for a place in the run.

    >>> where(17, ("backward", "communication"))
    'the backward of step 17'
    >>> where(0, ())
    'the start'
    """
    names = [name for name in path if name not in ("communication", "pipeline")] or path
    of_step = f"step {step}" if step else "the start"
    return f"the {PHASE_WORDS.get(names[-1], names[-1])} of {of_step}" if names else of_step


def _own_address() -> str:
    """Where the other ranks reach this machine: its address on the way to the meeting place, which all could reach."""
    meeting = os.environ.get("MASTER_ADDR", "127.0.0.1")
    with suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(meeting, 1, type=socket.SOCK_DGRAM, family=socket.AF_INET)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # of datagrams: sends nothing
            own: str = probe.getsockname()[0]
        if not own.startswith("127."):
            return own
    return meeting  # it is this machine

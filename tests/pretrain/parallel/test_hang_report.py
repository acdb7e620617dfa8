"""The hang report among threads of one process: who lives, who has ended, who is silent; one caller tells all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from pretrain.parallel.base import hang_report
from pretrain.parallel.base.hang_report import HangReport, Peer
from pretrain.phases import Phases

HOST = socket.gethostname()

entered: list[AbstractContextManager[None]] = []  # whose generators would leave their phases if nobody held them


@contextmanager
def calls(num_ranks: int, stacks: Path | None = None, patience: float | None = None) -> Iterator[list[HangReport]]:
    """Ranks that have met, in the backward of steps 0, 1, 2 ..."""
    peers: dict[int, Peer] = {}
    barrier = threading.Barrier(num_ranks)

    def make(rank: int) -> HangReport:
        def exchange(peer: Peer) -> list[Peer]:
            peers[rank] = peer
            barrier.wait(60)
            return [peers[rank] for rank in range(num_ranks)]

        return HangReport(rank, phases_at(rank + 1, "backward", "communication"), exchange, stacks, patience)

    with ThreadPoolExecutor(num_ranks) as pool:
        made = list(pool.map(make, range(num_ranks)))
    try:
        yield made
    finally:
        for one in made:
            one.close()


def phases_at(step: int, *names: str) -> Phases:
    phases = Phases()
    phases.step = step
    for name in names:
        entered.append(phases(name))
        entered[-1].__enter__()
    return phases


def reports(ranks: Sequence[HangReport]) -> list[str]:
    """What ranks whose collectives fail at the same time say."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(lambda rank: rank.report(RuntimeError("lost")), ranks))


def test_a_rank_that_has_ended_is_named_and_the_others_tell_what_they_do(tmp_path: Path) -> None:
    with calls(4, tmp_path / "stacks") as ranks:
        ranks[2].close()
        assert ranks[0].report(RuntimeError("lost")) == (
            f"rank 2 ({HOST}) has ended; rank 0 waited in the backward of step 1, "
            f"rank 1 ({HOST}) in the backward of step 2; rank 3 ({HOST}) in the backward of step 4"
        )
        for rank in (1, 3):
            ranks[rank].close()  # after it has written
    written = {path.name: path.read_text() for path in (tmp_path / "stacks").iterdir()}
    assert sorted(written) == [f"rank-0000{rank}.txt" for rank in (0, 1, 3)]
    assert written["rank-00000.txt"].endswith("RuntimeError: lost\n")
    assert f"on {HOST}, in the backward of step 2\n" in written["rank-00001.txt"]
    assert "_listen" in written["rank-00001.txt"]


def test_a_rank_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_report, "ANSWER_SECONDS", 0.5)
    with calls(3) as ranks, socket.create_server(("127.0.0.1", 0)) as stopped:
        for rank in ranks:
            rank._peers[1] = rank._peers[1]._replace(port=stopped.getsockname()[1])
        told = ranks[0].report(RuntimeError("lost"))
        assert f"rank 1 ({HOST}) does not answer" in told and f"rank 2 ({HOST}) in the backward of step 3" in told


def test_a_port_that_answers_nothing_is_nobody_s() -> None:
    """It was the rank's, whose process has ended, and another program has it now."""
    with calls(2) as ranks, socket.create_server(("127.0.0.1", 0)) as another:
        ranks[0]._peers[1] = ranks[0]._peers[1]._replace(port=another.getsockname()[1])
        closing = threading.Thread(target=lambda: another.accept()[0].close())
        closing.start()
        assert f"rank 1 ({HOST}) has ended" in ranks[0].report(RuntimeError("lost"))
        closing.join()


def test_one_calls_and_the_others_say_the_same_even_when_it_is_gone() -> None:
    with calls(4) as ranks:
        ranks[2].close()
        first = ranks[0].report(RuntimeError("lost"))
        ranks[0].close()
        assert f"rank 2 ({HOST}) has ended; rank 0 waited" in first
        for rank in (1, 3):
            told = ranks[rank].report(RuntimeError("lost"))
            assert f"rank 2 ({HOST}) has ended; rank {rank} waited in the backward of step {rank + 1}, rank" in told
            assert f"rank 0 ({HOST}) in the backward of step 1" in told


def test_all_may_fail_at_once() -> None:
    with calls(6) as ranks:
        ranks[0].close()
        for rank, told in enumerate(reports(ranks[1:]), start=1):
            assert told.startswith(
                f"rank 0 ({HOST}) has ended; rank {rank} waited in the backward of step {rank + 1}, "
            )


def test_where_nobody_is_missing_the_ranks_tell_what_they_do() -> None:
    with calls(3) as ranks:
        ranks[2].phases = ranks[1].phases = phases_at(3, "data")
        assert ranks[0].report(RuntimeError("lost")) == (
            f"every rank answers, but ranks 1 ({HOST}), 2 ({HOST}) are still in the reading of step 3; "
            "rank 0 waited in the backward of step 1"
        )


def test_a_rank_that_hangs_is_told_from_those_that_wait_for_it_in_the_same_phase() -> None:
    with calls(4) as ranks:
        for rank in ranks:
            rank.phases = phases_at(3, "data", "communication")
        ranks[2].phases = phases_at(3, "data")
        assert ranks[0].report(RuntimeError("lost")) == (
            f"every rank answers, but rank 2 ({HOST}) is still in the reading of step 3; "
            "rank 0 waited in the reading of step 3, ranks 1, 3 in the reading of step 3"
        )
        ranks[2].phases = ranks[1].phases
        told = ranks[3].report(RuntimeError("lost"))  # what the first was told
        assert f"but rank 2 ({HOST}) is still in the reading of step 3; rank 3 waited" in told


def test_the_place_of_an_error_is_where_it_came_up() -> None:
    with calls(2) as ranks:
        ranks[1].close()
        phases = ranks[0].phases = phases_at(7)
        with pytest.raises(RuntimeError) as caught, phases("optimizer"), phases("communication"):
            raise RuntimeError("lost")
        assert phases.path == ()
        assert "rank 0 waited in the optimizer step of step 7" in ranks[0].report(caught.value)


def test_who_does_not_know_the_word_gets_no_answer() -> None:
    with calls(2) as ranks:
        peer = ranks[1]._peers[1]
        for line in (
            b"GET / HTTP/1.0\r\n",
            b"[]\n",
            b"[" * 500_000 + b"\n",  # a JSON parser would run out of stack
            b"\xff\x00\n",
            b"x" * len(peer.token) + b' {"states": ["lie", "lie"]}\n',
            peer.token.encode()[:-1] + b' {"states": ["lie", "lie"]}\n',
        ):
            with socket.create_connection(("127.0.0.1", peer.port)) as connection:
                connection.sendall(line)
                assert connection.makefile("rb").read() == b""
        assert "every rank answers" in ranks[0].report(RuntimeError("lost"))


@pytest.mark.parametrize("said", [b"{}", b"[]", b'{"states": 3}', b""])
def test_nonsense_behind_the_word_harms_nobody(said: bytes) -> None:
    with calls(2) as ranks:
        peer = ranks[1]._peers[1]
        with socket.create_connection(("127.0.0.1", peer.port)) as connection:
            connection.sendall(peer.token.encode() + b" " + said + b"\n")
            connection.makefile("rb").read()
        assert "every rank answers" in ranks[0].report(RuntimeError("lost"))


def test_one_who_speaks_for_ever_keeps_nobody_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_report, "SERVE_SECONDS", 0.2)
    with calls(2) as ranks, socket.create_connection(("127.0.0.1", ranks[1]._peers[1].port)) as stranger:
        over = threading.Event()

        def speak() -> None:
            with suppress(OSError):
                while not over.wait(0.02):
                    stranger.sendall(b"x")

        speaking = threading.Thread(target=speak)
        speaking.start()
        try:
            assert "every rank answers" in ranks[0].report(RuntimeError("lost"))
        finally:
            over.set()
            speaking.join()


def test_a_gpu_that_makes_no_progress_is_told_before_its_library_ends_the_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    written: list[str] = []
    monkeypatch.setattr(hang_report.sys.stderr, "write", lambda text: (written.append(text), told.set()))
    with calls(2, patience=0.5) as ranks:
        ranks[1].close()
        assert told.wait(60)
    assert written[0] == (
        f"pretrain: rank 0 makes no progress: rank 1 ({HOST}) has ended; rank 0 waited in the backward of step 1.\n"
    )


def test_a_save_may_take_as_long_as_it_does() -> None:
    watch = hang_report._Watch(phases_at(1, "save"), 0.0)
    assert not watch.is_stuck() and not watch.is_stuck()
    watch = hang_report._Watch(phases_at(1, "forward"), 0.0)
    assert watch.is_stuck() and not watch.is_stuck()

"""torchrun for real: two agents on loopback, a rank that is killed and a restart that resumes, and what an agent's exit
code says."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pretrain.texts import losses, small_corpus

pytestmark = pytest.mark.slow
NUM_STEPS = 8
RUN = {
    "model.num_layers": 1, "model.hidden_size": 32, "model.num_heads": 2, "model.sequence_length": 16,
    "model.padded_vocab_size": 512, "training.num_steps": NUM_STEPS, "training.global_batch_size": 8,
    "training.micro_batch_size": 2, "training.timeout_minutes": 2, "schedule.warmup_steps": 2,
    "checkpoint.every_steps": 4, "metrics.every_steps": 1, "evaluation.every_steps": 100, "evaluation.sample_tokens": 1,
}  # fmt: skip
DEADLINE_SECONDS = 400
FRESH_STORES = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
SIGNALLED_ONCE = r"""
import os, signal, sys
from pretrain.run import train
from pretrain.__main__ import _end, _run

step = train.train_step

def stepping(run):
    result = step(run)
    if run.world.rank == 1 and run.state.step == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), number)
    return result

train.train_step = stepping
number = int(sys.argv.pop(1))
_end(_run())
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of `train`, all but --out."""
    folder = small_corpus(tmp_path_factory.mktemp("data"))
    overrides = [word for key, value in RUN.items() for word in ("--set", f"{key}={value}")]
    folders = ["--data", str(folder / "tokens"), "--tokenizer", str(folder / "tokenizer.model")]
    return ["train", "--config", "demo", *folders, *overrides, "--out"]


def agents(
    num_nodes: int, options: Sequence[str], environment: Mapping[str, str] = FRESH_STORES
) -> list[subprocess.Popen[str]]:
    """torchrun of two ranks: one agent, or two that meet on loopback."""
    if num_nodes == 1:
        meeting = ["--standalone", "--nproc-per-node", "2"]
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        backend = ["--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", place]
        meeting = ["--nnodes", "2", "--nproc-per-node", "1", *backend]
    command = [sys.executable, "-m", "torch.distributed.run", *meeting, *options]
    unset = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *FRESH_STORES)
    clean = {name: value for name, value in os.environ.items() if name not in unset}
    return [
        subprocess.Popen(command, env=clean | {"OMP_NUM_THREADS": "1"} | environment, stderr=subprocess.PIPE, text=True)
        for _ in range(num_nodes)
    ]


def signalled_once(folder: Path, number: signal.Signals, num_restarts: int, arguments: Sequence[str]) -> list[str]:
    """Of torchrun, to train with a rank that sends itself a signal after step 5 of the first attempt."""
    script = folder / "signalled_once.py"
    script.write_text(SIGNALLED_ONCE)
    return ["--max-restarts", str(num_restarts), str(script), str(int(number)), *arguments, str(folder / "out")]


def ended(processes: Sequence[subprocess.Popen[str]]) -> tuple[list[int], str]:
    """Exit codes, and all that was said on stderr."""
    with ExitStack() as stack:
        for process in processes:
            stack.callback(process.kill)
        with ThreadPoolExecutor(len(processes)) as pool:
            said = list(pool.map(lambda process: process.communicate(timeout=DEADLINE_SECONDS)[1], processes))
        return [process.returncode for process in processes], "".join(said)


@pytest.fixture(scope="module")
def undisturbed(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a run that two agents start."""
    out = tmp_path_factory.mktemp("undisturbed")
    codes, said = ended(agents(2, ["-m", "pretrain", *arguments, str(out)]))
    assert codes == [0, 0], said
    assert list(losses(out)) == list(range(1, NUM_STEPS + 1))
    return losses(out)


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_a_killed_rank_is_started_again_and_the_run_ends_as_if_nothing_had_been(
    num_nodes: int, arguments: list[str], undisturbed: dict[int, float], tmp_path: Path
) -> None:
    codes, said = ended(agents(num_nodes, signalled_once(tmp_path, signal.SIGKILL, 1, arguments)))
    assert codes == [0] * num_nodes, said
    assert "resuming from " in said and "(step 4)" in said
    assert losses(tmp_path / "out") == undisturbed


def test_a_restart_that_cannot_work_says_what_to_set(arguments: list[str], tmp_path: Path) -> None:
    codes, said = ended(agents(1, signalled_once(tmp_path, signal.SIGKILL, 1, arguments), environment={}))
    assert codes == [1]
    assert "Set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of every torchrun" in said


@pytest.mark.parametrize("num_restarts", [0, 1])
def test_for_an_agent_ranks_that_saved_and_stopped_have_failed(
    num_restarts: int, arguments: list[str], undisturbed: dict[int, float], tmp_path: Path
) -> None:
    """It ends with 1, not 75; or it starts them again at once, where it may."""
    codes, said = ended(agents(1, signalled_once(tmp_path, signal.SIGUSR1, num_restarts, arguments)))
    assert codes == [1 - num_restarts], said
    assert "stopped after step 5, saved." in said and "exitcode: 75" in said
    expected = undisturbed if num_restarts else {step: undisturbed[step] for step in range(1, 6)}
    assert losses(tmp_path / "out") == expected


def test_a_signal_to_the_agent_saves(arguments: list[str], tmp_path: Path) -> None:
    """The agent passes SIGTERM on; its own exit code is 1, whatever the ranks say."""
    (agent,) = agents(1, ["-m", "pretrain", *arguments, str(tmp_path), "--set", "training.num_steps=100000"])
    assert agent.stderr is not None
    while not agent.stderr.readline().startswith("step "):
        assert agent.poll() is None
    agent.send_signal(signal.SIGTERM)
    codes, said = ended([agent])
    assert codes == [1]
    assert "saved. Run the same command again" in said


def test_two_launchers_started_by_hand_do_the_same(
    arguments: list[str], undisturbed: dict[int, float], tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nodes = ["--nnodes", "2", "--master", f"127.0.0.1:{probe.getsockname()[1]}"]
    command = [sys.executable, "-m", "pretrain", *arguments, str(tmp_path), *nodes, "--node-rank"]
    launchers = [subprocess.Popen([*command, rank], stderr=subprocess.PIPE, text=True) for rank in ("0", "1")]
    codes, said = ended(launchers)
    assert codes == [0, 0], said
    assert losses(tmp_path) == undisturbed

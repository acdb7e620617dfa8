"""Memory refused before a run begins, and watched while it goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from corpus.engine.errors import Stopped, UsageError
from pretrain import checkpoint
from pretrain.config import RunConfig, load_config, named_configs
from pretrain.monitor import memory
from pretrain.monitor.memory import GIB, Reading, Watch, available_bytes, check, control_group, process_bytes
from pretrain.monitor.metrics import Metrics
from pretrain.parallel.base import mesh
from pretrain.run import train
from pretrain.training.step import Run, StepResult, train_step
from pretrain.workload.memory import estimate
from tests.pretrain.ranks import reused_ranks, run_ranks
from tests.pretrain.test_train import run_config, train_here
from tests.pretrain.texts import recorded, small_corpus
from tests.pretrain.tiny import tiny_config


def tree(root: Path, files: dict[str, str]) -> Path:
    """A file system of these files, with a meminfo of 8 GB available."""
    for name, content in {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8000000 kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


V2 = "0::/job/step\n"
V1 = "5:cpu:/job\n4:memory:/job\n0::/\n"


@pytest.mark.parametrize(
    ("files", "group", "available"),
    [
        ({}, None, 8_000_000 * 1024),
        ({"proc/self/cgroup": V2, "sys/fs/cgroup/job/step/memory.max": "max\n"}, None, 8_000_000 * 1024),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{2**63 - 4096}\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "900\n",
                "sys/fs/cgroup/memory/job/memory.stat": "total_inactive_file 200\n",
            },
            None,
            8_000_000 * 1024,
        ),
        (
            {
                "proc/self/cgroup": V2,
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/step/memory.current": "500\n",
                "sys/fs/cgroup/job/step/memory.stat": "anon 1\n",
                "sys/fs/cgroup/job/memory.max": "1000\n",  # limits what is below it
                "sys/fs/cgroup/job/memory.current": "600\n",
                "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 150\n",
            },
            (450, 1000),
            550,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "900\n",
                "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",  # none
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
                "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 0\n",
            },
            (700, 1000),
            300,
        ),
        (
            {
                "proc/self/cgroup": "0::/seen/from/outside\n",  # a container sees its own group as the root
                "sys/fs/cgroup/memory.max": "2000\n",
                "sys/fs/cgroup/memory.current": "2500\n",
                "sys/fs/cgroup/memory.stat": "inactive_file 100\n",
            },
            (2400, 2000),
            0,
        ),
    ],
)
def test_what_a_node_can_still_give(
    files: dict[str, str], group: tuple[int, int] | None, available: int, tmp_path: Path
) -> None:
    root = tree(tmp_path, files)
    assert control_group(root) == group
    assert available_bytes(root) == available


def test_files_are_not_counted_as_held(tmp_path: Path) -> None:
    status = "Name: x\nVmRSS:   90 kB\nRssAnon:  10 kB\nRssFile:  70 kB\nRssShmem:  5 kB\n"
    root = tree(tmp_path, {"proc/self/status": status})
    assert process_bytes(root=root) == 15 * 1024
    assert process_bytes(1 << 22, root) == 0  # of a rank that has ended


def bytes_of_a_tensor() -> int:
    before = process_bytes()
    held = torch.ones(1 << 24)
    return process_bytes() - before + 0 * len(held)


def test_this_process_is_measured() -> None:
    """In a process of its own: here earlier tests have left freed memory, which is given out first."""
    (grown,) = run_ranks(bytes_of_a_tensor, 1)
    assert 60e6 < grown < 80e6
    assert available_bytes() > 0


def checked(config: RunConfig, available: int | None = None) -> tuple[str, list[str]]:
    """What the check of this rank raises, and what it says."""
    said: list[str] = []
    patched: dict[str, Any] = {"log_message": said.append}
    if available is not None:
        patched |= {"available_bytes": lambda: available, "process_bytes": lambda: 0}
    with (
        mock.patch.multiple(memory, **patched),
        mesh.start(config.parallel, "cpu", config.training.timeout_minutes) as world,
    ):
        try:
            check(config, world)
        except UsageError as error:
            return str(error), said
    return "", said


def test_a_model_that_cannot_fit_is_refused_with_its_figures() -> None:
    """Nothing is allocated: llama-3-8b would take 240 GiB here."""
    ((message, _),) = reused_ranks(checked, 1, load_config("llama-3-8b"), 20 * GIB)
    assert message.startswith("the run needs 212.")
    assert "of host memory at least for the one rank of " in message
    assert "  weights         29.92 GiB\n  gradients       29.92 GiB\n  optimizer       59.83 GiB\n" in message
    assert "set checkpoint.async_save=false" in message
    assert "--set training.host_memory_gib=GIB" in message


def test_the_ranks_of_a_node_are_counted_together() -> None:
    """Of two that would fit one at a time; all ranks end alike."""
    config = load_config("demo")
    (found,) = estimate(config, 2, "cpu")
    messages = [message for message, _ in reused_ranks(checked, 2, config, 3 * found.host_bytes_at_least // 2)]
    assert messages[0].startswith("the run needs ") and "for the 2 ranks of " in messages[0]
    assert messages[1] in (messages[0], f"rank 0: {messages[0]}")
    assert [message for message, _ in reused_ranks(checked, 2, config, 2 * found.host_bytes)] == ["", ""]


@pytest.mark.parametrize(("gib", "refused"), [(0.05, True), (0.52, False), (4.0, False)])
def test_a_stated_budget_decides_alone(gib: float, refused: bool) -> None:
    config = load_config("demo", [f"training.host_memory_gib={gib}"])
    ((message, _),) = reused_ranks(checked, 1, config, 1 << 20)
    assert ("training.host_memory_gib allows" in message) == refused
    assert (message == "") != refused


def test_an_allowance_refuses_nothing() -> None:
    """What a process takes before it has a model is not known: it is in the estimate, and what it holds by now
    decides."""
    config = load_config("demo")
    (found,) = estimate(config, 1, "cpu")
    ((message, said),) = reused_ranks(checked, 1, config, found.host_bytes_at_least)
    assert message == "" and said[0].startswith("WARNING: host memory may not suffice: ")
    ((message, _),) = reused_ranks(checked, 1, config, found.host_bytes_at_least - 1)
    assert message.startswith("the run needs ")


@pytest.mark.parametrize(
    ("name", "sets", "first", "absent"),
    [
        ("gpt2-124m", [], "Lower training.micro_batch_size; or ", "offload"),  # logits and activations
        ("gpt2-124m", ["training.micro_batch_size=1"], "Start more ranks on more nodes; or ", "micro_batch_size"),
        ("gpt2-124m", ["parallel.recompute=full"], "Lower training.micro_batch_size; or ", "recompute"),
    ],
)
def test_the_advice_that_saves_most_comes_first(name: str, sets: list[str], first: str, absent: str) -> None:
    ((message, _),) = reused_ranks(checked, 1, load_config(name, sets), GIB)
    advice = message.splitlines()[-1]
    assert advice.startswith(first)
    assert absent not in advice


def watched(config: RunConfig, out: Path, held: list[int]) -> tuple[list[Any], list[str]]:
    """The flags of this rank over looks at which the ranks of the node hold so many GiB, and what is said."""
    said: list[str] = []
    found = []
    sizes = iter(held)
    with mesh.start(config.parallel, "cpu", 1.0) as world:
        with mock.patch.object(memory, "process_bytes", lambda pid="self": 0):
            watch = Watch(config, world)
        metrics = a_metrics(config, out) if world.rank == 0 else None
        for step, size in enumerate(sizes, 1):
            share = size * GIB // world.size

            def holds(pid: Any = "self", share: int = share) -> int:
                return share

            with mock.patch.multiple(memory, process_bytes=holds, log_message=said.append):
                flags = watch.flags()
                found.append(flags)
                near_host, near_device, _ = world.any_of(*flags)
                watch.warn(near_host, near_device, step, metrics)
        if metrics is not None:
            metrics.__exit__(None, None, None)
    return found, said


def a_metrics(config: RunConfig, out: Path) -> Any:
    """Records lines of metrics.jsonl."""
    metrics = mock.create_autospec(Metrics, instance=True)
    lines = out / "lines.jsonl"

    def record(kind: str, step: int, values: dict[str, Any]) -> None:
        with open(lines, "a") as file:
            file.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")

    metrics.record.side_effect = record
    return metrics


def test_a_limit_that_comes_near_is_told_once_each_time(tmp_path: Path) -> None:
    """90 % and up; only below 85 % it is over. Beyond the limit the third flag is raised, by the first rank of the
    node."""
    config = tiny_config(training={"host_memory_gib": 100.0})
    held = [10, 90, 88, 96, 84, 92, 102]
    (first, said), (second, silent) = reused_ranks(watched, 2, config, tmp_path, held)
    assert [flags[0] for flags in first] == [False, True, True, True, False, True, True]
    assert [flags[2] for flags in first] == [False] * 6 + [True]
    assert second == [(False, False, False)] * 7 and silent == []
    assert len(said) == 2
    assert said[0].startswith("WARNING: step 2: ")
    assert said[0].endswith("90.00 GiB of 100.00 GiB of host memory in use. Above it the run saves and stops.")
    records = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records] == [2, 6]
    assert records[0] == {"kind": "memory_warning", "step": 2, "what": "host",
                          "used_bytes": 90 * GIB, "limit_bytes": 100 * GIB}  # fmt: skip


def unstated(config: RunConfig) -> list[tuple[Reading | None, float]]:
    """Readings of this node without a stated budget: of its ranks, and with a control group that is nearer to its
    limit."""
    found = []
    with mesh.start(config.parallel, "cpu", 1.0) as world:
        watch = Watch(config, world)
        for group in (None, Reading(95, 100)):
            with mock.patch.object(memory, "control_group", lambda group=group: group):
                found.append(watch.host())
    return [(reading, 0.0 if reading is None else reading.ratio) for reading in found]


def test_without_a_budget_the_limit_is_what_there_is() -> None:
    ((ranks, ratio), (group, _)), others = reused_ranks(unstated, 2, tiny_config())
    assert ranks is not None and ranks.limit > ranks.used > 100e6
    assert ratio < 0.9
    assert group == Reading(95, 100)
    assert others == [(None, 0.0)] * 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_corpus(tmp_path_factory.mktemp("data"))


def too_much_at_step(config: RunConfig, data: Path, out: Path, rank: int) -> str:
    """One rank alone grows beyond the budget after its second step."""

    def held(pid: int | str = "self") -> int:
        return 100 * GIB if len(steps) >= 2 and pid == pids[rank] else GIB

    def stepping(run: Run) -> StepResult:
        steps.append(run.state.step)
        pids[:] = pids or run.world.gather(os.getpid())
        return train_step(run)

    steps: list[int] = []
    pids: list[int] = []
    try:
        with mock.patch.object(train, "train_step", stepping), mock.patch.object(memory, "process_bytes", held):
            train_here(config, data, out)
    except Stopped as stopped:
        assert stopped.exit_code == 75
        return str(stopped)
    return "went on"


def test_above_the_budget_a_run_saves_and_stops(data: Path, tmp_path: Path) -> None:
    """On all ranks after the same step, and it can go on from there; the end is that of a signal, with another
    reason."""
    config = run_config(training={"num_steps": 6, "host_memory_gib": 50.0})
    messages = reused_ranks(too_much_at_step, 2, config, data, tmp_path, 1)
    assert len(set(messages)) == 1
    assert messages[0].startswith(
        "stopped after step 2, saved: the ranks of a node hold more host memory than they may."
    )
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == ["step-00000002"]
    assert recorded(tmp_path, "memory_warning")[2]["used_bytes"] == 101 * GIB
    assert recorded(tmp_path, "stop")[2]["reason"] == "memory"


def test_shipped_configurations_are_estimated() -> None:
    """Each on as many ranks as its layout needs, so that the check never fails by itself."""
    for name in named_configs():
        config = load_config(name)
        unit = config.parallel.pp * config.parallel.tp * config.parallel.dp_replicate * (config.parallel.dp_shard or 1)
        estimates = estimate(config, unit, "cpu")
        assert all(one.host_bytes >= one.host_bytes_at_least > 0 for one in estimates)

"""On a cluster the same promises hold: a death costs one attempt of its task, and the bytes are those of a local run.

The cluster is three machines simulated on this one (`ray_cluster.py`), in processes of its own, as the drivers are.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus.engine import durable, ray_executor
from corpus.engine.config import Resources
from corpus.engine.errors import UsageError
from corpus.engine.executor import Call, attempt
from corpus.engine.ray_executor import RayExecutor, Witness, code_digest
from corpus.engine.storage import File
from tests.corpus.engine.test_run import wait_for
from tests.corpus.engine.toy import text_files, tree, undisturbed
from tests.corpus.texts import write_shards

pytestmark = pytest.mark.timeout(900)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path.cwd()), "RAY_USAGE_STATS_ENABLED": "0"}
DRIVER = """
import sys
from corpus.engine import storage
from corpus.engine.config import Resources
from corpus.engine.errors import WenhaiError
from corpus.engine.inputs import list_inputs
from corpus.engine.run import run_stages
from tests.corpus.engine.toy import Joined, Lines
if __name__ == "__main__":
    inputs, out, address, fault, memory_gb = sys.argv[1:]
    resources = {"lines": Resources(memory_gb=float(memory_gb))}
    try:
        files = tuple(list_inputs([inputs]))
        run_stages([Lines(files, fault=fault), Joined()], out, address=address, resources=resources)
    except WenhaiError as error:
        print(error)
        sys.exit(error.exit_code)
"""


# ------------------------------------------------------------------------------------------- without a cluster


def test_a_machine_with_another_disk_or_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with durable.RunLock(tmp_path):
        witness = Witness.of(str(tmp_path))
        assert witness.missing() == ""
        assert "does not see" in replace(witness, lock=str(tmp_path / "elsewhere" / ".lock")).missing()
        assert "does not see" in replace(witness, lock_bytes=b"process 1 on another").missing()
        assert "other code" in replace(witness, code="0").missing()
        outcome = ray_executor._work(Call("a", attempt, ()), replace(witness, code="0"))
        assert (outcome.kind, outcome.name) == ("setup", "a")
    assert Witness.of("s3://bucket/out") == Witness(code_digest())


def test_a_ray_client_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ray job submit"):
        RayExecutor("ray://head:10001", "out").__enter__()


# ---------------------------------------------------------------------------------------------- on three machines


class SimulatedCluster:
    """The other end of `ray_cluster.py`."""

    def __init__(self) -> None:
        pytest.importorskip("ray")
        script = str(Path(__file__).with_name("ray_cluster.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, script], env=ENVIRONMENT, text=True, **pipes)
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the simulated cluster did not come up"

    def kill_node(self, number: int) -> None:
        self._process.stdin.write(f"node {number}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "killed\n"

    def end(self) -> None:
        self._process.communicate("end\n", timeout=300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster()
    yield cluster
    cluster.end()


@pytest.fixture
def files(tmp_path: Path) -> tuple[File, ...]:
    lines = [[f"第{index}卷第{line}行" if line % 3 else "短" for line in range(200)] for index in range(8)]
    return text_files(tmp_path / "in", map("\n".join, lines))


@pytest.fixture
def reference(files: tuple[File, ...], tmp_path: Path) -> dict[str, str]:
    return undisturbed(files, tmp_path)


def start(tmp_path: Path, cluster: SimulatedCluster, fault: str = "", memory_gb: float = 0) -> subprocess.Popen[str]:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    words = [str(tmp_path / "in"), str(tmp_path / "out"), cluster.address, fault, str(memory_gb)]
    command = [sys.executable, str(script), *words]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def finish(driver: subprocess.Popen[str]) -> str:
    output, _ = driver.communicate(timeout=300)
    return output


def begun(flag: Path, tasks: int) -> list[tuple[str, int]]:
    """Wait until so many tasks are held at a time; returns them with their workers' process numbers."""
    log = flag.with_name(flag.name + ".log")
    wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= tasks)
    return [(name, int(number)) for name, number in (line.split() for line in log.read_text().splitlines())]


@pytest.mark.slow
def test_a_killed_worker_costs_one_attempt(
    cluster: SimulatedCluster, files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    driver = start(tmp_path, cluster, f"*:hold@{flag}", memory_gb=0.1)
    task, process = begun(flag, 3)[1]
    os.kill(process, signal.SIGKILL)
    flag.unlink()
    assert "failed" not in finish(driver) and driver.returncode == 0
    assert tree(tmp_path / "out") == reference
    attempts = Counter(name for name, _ in begun(flag, 9))
    assert attempts == {f"{index:05d}": 1 for index in range(8)} | {task: 2}


@pytest.mark.slow
def test_what_fails_is_told_and_the_rest_is_kept(
    cluster: SimulatedCluster, files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    driver = start(tmp_path, cluster, "00002:error")
    output = finish(driver)
    assert driver.returncode == 1
    assert "1 of 8 tasks failed\n  00002  error: ValueError: a bad shard (on machine " in output
    driver = start(tmp_path, cluster, "00002:kill")
    output = finish(driver)
    assert "1 of 8 tasks failed\n  00002  killed: its worker or its machine died [2.txt]" in output
    assert json.loads(next((tmp_path / "out").glob("lines-*/failed/00002.json")).read_text())["kind"] == "killed"
    driver = start(tmp_path, cluster, memory_gb=500)
    assert "lines/00002: asks for 1 CPUs and 500.0 GB; the largest of 3 machines has 1 and 1.1 GB" in finish(driver)
    assert driver.returncode == UsageError.exit_code
    finish(start(tmp_path, cluster))
    assert tree(tmp_path / "out") == reference


@pytest.mark.slow
def test_what_a_store_refuses_twice_is_tried_on_another_machine(
    cluster: SimulatedCluster, files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    flag = tmp_path / "machines"
    flag.touch()
    output = finish(start(tmp_path, cluster, f"00002:transient@{flag}"))
    assert "1 of 8 tasks failed\n  00002  transient: memory://x: put failed 9 times (on machine " in output
    _, second, third = flag.read_text().split()
    assert second != third
    finish(start(tmp_path, cluster))
    assert tree(tmp_path / "out") == reference


@pytest.mark.slow
def test_a_lost_driver_is_started_again(
    cluster: SimulatedCluster, files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    driver = start(tmp_path, cluster, f"*:hold@{flag}")
    begun(flag, 3)
    driver.kill()
    driver.communicate()
    flag.unlink()
    driver = start(tmp_path, cluster)
    assert "failed" not in finish(driver) and driver.returncode == 0
    assert tree(tmp_path / "out") == reference
    flag.touch()
    (tmp_path / "in" / "0.txt").write_text("换了一卷之文")
    driver = start(tmp_path, cluster, f"*:hold@{flag}")
    begun(flag, 4)
    driver.send_signal(signal.SIGTERM)
    assert "Run the same command again" in finish(driver) and driver.returncode == 75


@pytest.mark.slow
def test_a_corpus_build_is_the_same_on_a_cluster(cluster: SimulatedCluster, tmp_path: Path) -> None:
    write_shards(tmp_path / "in", [range(start, start + 30) for start in range(0, 60, 20)], num_texts=40)
    trees = []
    for name, options in (("local", ["--workers", "1"]), ("ray", ["--executor", "ray", "--address", cluster.address])):
        files = ["--input", str(tmp_path / "in"), "--out", str(tmp_path / name), "--set", "input.task_bytes=1000"]
        command = [sys.executable, "-m", "corpus", "run", "--recipe", "web_zh", *files, "--quiet", *options]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found = tree(tmp_path / name)
        trees.append({file: digest for file, digest in found.items() if "/" in file or file == "run.json"})
    assert trees[0] == trees[1]
    assert len(trees[0]) > 40


@pytest.mark.slow
def test_a_machine_that_is_lost_in_the_middle_of_a_stage_costs_what_it_held(
    cluster: SimulatedCluster, files: tuple[File, ...], reference: dict[str, str], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    driver = start(tmp_path, cluster, f"*:hold@{flag}")
    held = begun(flag, 3)
    cluster.kill_node(1)
    wait_for(lambda: any(not Path(f"/proc/{process}").exists() for _, process in held))
    flag.unlink()
    assert "failed" not in finish(driver) and driver.returncode == 0
    assert tree(tmp_path / "out") == reference
    attempts = Counter(name for name, _ in begun(flag, 9))
    assert sorted(attempts.values()) == [1] * 7 + [2]


def test_resources_of_an_unknown_stage_are_an_error() -> None:
    from corpus.build import check_recipe_resources
    from corpus.recipe import load_recipe

    recipe = load_recipe("web_zh").model_copy(update={"resources": {"tokens": Resources(), "filtr": Resources()}})
    with pytest.raises(UsageError, match=r"my\.toml: resources\.filtr: no such stage; did you mean filter\?"):
        check_recipe_resources(recipe, "my.toml")

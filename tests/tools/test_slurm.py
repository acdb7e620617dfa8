"""`make pretrain CLUSTER=slurm` and its batch script under a real Slurm of one node, and under stand-ins for its
commands.

The log of the run that is preempted: `.venv/bin/python -m pytest -q -m slow tests/tools/test_slurm.py -k preempted -s`
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretrain import checkpoint
from tests.contracts.test_makefile import make
from tests.pretrain.texts import small_tokenizer, text_folder
from tests.tokenizer.texts import documents
from tests.tools.slurm import Slurm, missing, private_slurm

NUM_STEPS = 800
CONFIG = f"""
[model]
num_layers = 1
hidden_size = 32
num_heads = 2
sequence_length = 64
padded_vocab_size = 512
[optimizer]
learning_rate = 1e-3
[training]
num_steps = {NUM_STEPS}
global_batch_size = 4
micro_batch_size = 2
device = "cpu"
[checkpoint]
every_steps = 100000
[metrics]
every_steps = 1
tensorboard = false
[evaluation]
every_steps = 100000
sample_tokens = 4
"""

# --------------------------------------------------------------------------------------- stand-ins for Slurm's commands
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
for rank in 0 1 2 3; do SLURM_PROCID=$rank SLURM_LOCALID=$((rank % 2)) "$@" || code=$?; done
exit ${code:-0}
"""
STAND_INS = {
    "srun": SRUN,
    "scontrol": '#!/bin/sh\n[ "$1" = show ] && printf "node3\\nnode4\\n" || echo "asked to $*"\n',
    "squeue": "#!/bin/sh\necho ${JOB_STATE:-RUNNING}\n",
    "python": '#!/bin/sh\necho "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT '
    '$OMP_NUM_THREADS:$(printf " <%s>" "$@")"\n'
    "exit ${CODE:-0}\n",
    "sbatch": '#!/bin/sh\necho "$*" > sbatch.called\necho "17;cluster"\n',
}
JOB = {
    "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NODELIST": "node[3-4]", "SLURM_JOB_ID": "40007",
    "SLURM_CPUS_PER_TASK": "6", "WENHAI_PYTHON": "python",
}  # fmt: skip


@pytest.fixture
def stand_ins(tmp_path: Path) -> dict[str, str]:
    """The environment of a job whose commands are stand-ins."""
    (tmp_path / "bin").mkdir()
    for name, text in STAND_INS.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return JOB | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(tmp_path)}


def batch(repository: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(repository / "tools/slurm/train.sbatch"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


def test_each_rank_gets_its_number_and_the_words_as_they_are(repository: Path, stand_ins: dict[str, str]) -> None:
    done = batch(repository, stand_ins, "--config", "yuan-13b", "--out", "my run", "--set", "a.b=[1, 2]")
    ranks = [line for line in done.stdout.splitlines() if not line.startswith("==")]
    words = "<-m> <pretrain> <train> <--config> <yuan-13b> <--out> <my run> <--set> <a.b=[1, 2]>"
    assert ranks == [f"{rank} {rank % 2} 4 2 node3 20007 6: {words}" for rank in range(4)]
    assert done.returncode == 0 and "exit code 0" in done.stdout and "asked to" not in done.stdout


@pytest.mark.parametrize(
    ("code", "state", "again"),
    [
        (75, "RUNNING", True),  # saved: at the time limit, or when a job of higher priority came
        (143, "RUNNING", True),  # told to stop while it imported torch
        (138, "RUNNING", True),
        (1, "RUNNING", True),
        (137, "RUNNING", True),
        (0, "RUNNING", False),
        (2, "RUNNING", False),  # would say the same again
        (3, "RUNNING", False),
        (75, "COMPLETING", False),  # cancelled: it is to stay so
        (1, "PENDING", False),  # Slurm has put it back itself
    ],
)
def test_what_is_started_again(
    repository: Path, stand_ins: dict[str, str], tmp_path: Path, code: int, state: str, again: bool
) -> None:
    done = batch(repository, stand_ins | {"CODE": str(code), "JOB_STATE": state}, "--out", str(tmp_path / "out"))
    assert done.returncode == code
    assert ("asked to requeue 40007" in done.stdout) is again
    assert (
        f"attempt 1: exit code {code}, job is {state}, back into the queue: {'yes' if again else 'no'}," in done.stdout
    )


def test_crashes_without_a_new_checkpoint_come_to_an_end(
    repository: Path, stand_ins: dict[str, str], tmp_path: Path
) -> None:
    def crash(number: int, code: int = 1) -> bool:
        environment = stand_ins | {"CODE": str(code), "SLURM_RESTART_COUNT": str(number)}
        return "asked to requeue" in batch(repository, environment, f"--out={tmp_path}/out").stdout

    assert [crash(number) for number in range(4)] == [True, True, True, False]
    (tmp_path / "out/checkpoints/step-00000010").mkdir(parents=True)
    assert [crash(number) for number in range(4, 8)] == [True, True, True, False]
    line = {"kind": "save", "step": 20, "at": 1.5, "folder": "s3://bucket/step-00000020", "seconds": 1.0}
    (tmp_path / "out/metrics.jsonl").write_text(json.dumps(line) + "\n")  # of a run that saves in object storage
    assert [crash(number) for number in range(4)] == [True, True, True, False]
    assert [crash(number, code) for number, code in enumerate((75, 138, 143), 8)] == [True, True, True]  # no crashes
    batch(repository, stand_ins, "--out", str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob(".crashes*"))  # the end forgets them


def test_without_a_folder_the_usage_is_told(repository: Path) -> None:
    done = batch(repository, {}, "--config", "demo")
    assert done.returncode == 2 and "--out OUT" in done.stderr


def test_the_script_asks_for_what_its_end_needs(repository: Path) -> None:
    """Without these a preempted job is cancelled, its log begins anew, or nobody tells the ranks before the time
    limit."""
    options = set(re.findall(r"^#SBATCH (\S+)", (repository / "tools/slurm/train.sbatch").read_text(), re.MULTILINE))
    assert {"--requeue", "--open-mode=append", "--signal=TERM@300", "--output=slurm-%j.log"} <= options


def test_make_submits_and_says_what(
    repository: Path, stand_ins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for name in ("venv/bin/python", "venv/.pretrain-stamp", "data/run.json"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", stand_ins["PATH"])
    (tmp_path / "bin/sbatch").write_text(STAND_INS["sbatch"].replace("sbatch.called", f"{tmp_path}/called"))
    variables = [f"VENV={tmp_path}/venv", f"DATA={tmp_path}/data", "CLUSTER=slurm", "NODES=4", "CONFIG=yuan-13b"]
    done = make(repository, "pretrain", *variables, "PARTITION=gpu", "TIME=2:00:00", "SET=a.b=1 c.d=2")
    assert done.returncode == 0, done.stderr
    out = f"{tmp_path}/data/pretrain"
    assert f"log:    {out}/slurm-17.log" in done.stdout and "scancel 17" in done.stdout
    called = (tmp_path / "called").read_text()
    for option in ("--nodes=4", "--ntasks-per-node=8", "--gpus-per-node=8", "--partition=gpu", "--time=2:00:00"):
        assert option in called.split()
    assert f"train.sbatch --config yuan-13b --data {tmp_path}/data --out {out} --set a.b=1 --set c.d=2\n" in called
    make(repository, "pretrain", *variables, "GPUS=0", "NPROC=3")
    assert "--ntasks-per-node=3 --gpus-per-node=0" in (tmp_path / "called").read_text()


@pytest.mark.parametrize(("cluster", "told"), [("slurm", "no sbatch here"), ("k8s", "only slurm is known")])
def test_make_says_why_it_cannot_submit(repository: Path, tmp_path: Path, cluster: str, told: str) -> None:
    environment = {"PATH": "/nowhere", "CLUSTER": cluster}
    command = ["/bin/sh", str(repository / "tools/slurm/submit.sh"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and told in done.stderr
    assert not (tmp_path / "out").exists()


# --------------------------------------------------------------------------------------------------------- a real Slurm


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    if absent := missing():
        pytest.skip(f"no {', '.join(absent)}: apt-get install slurm-wlm munge")
    with private_slurm() as slurm:
        yield slurm


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tokenizer = small_tokenizer(folder / "tokenizer.model")
    shards = {"00000-00-train": documents(150), "00000-00-validation": documents(160)[150:]}
    text_folder(folder / "tokens", tokenizer, shards)
    (folder / "config.toml").write_text(CONFIG)
    return folder


class Job:
    """A training job of two ranks that was submitted as `make` does it."""

    def __init__(self, slurm: Slurm, repository: Path, data: Path, out: Path, *settings: str, **more: str) -> None:
        self.slurm, self.out = slurm, out
        words = ["--config", data / "config.toml", "--data", data / "tokens", "--tokenizer", data / "tokenizer.model"]
        words += ["--out", out, *(word for setting in settings for word in ("--set", setting))]
        variables = {"CLUSTER": "slurm", "GPUS": "0", "NPROC": "2", "CPUS": "1", "PARTITION": "low", "TIME": "30",
                     "WENHAI_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"} | more  # fmt: skip
        submit = ["sh", str(repository / "tools/slurm/submit.sh"), *map(str, words)]
        told = slurm.run("env", "--chdir", str(repository), *submit, **variables)
        self.number = re.findall(r"^job (\d+):", told, re.MULTILINE)[0]

    def wait(self, *states: str) -> None:
        """Until it is in one of these states."""
        self.slurm.wait(
            lambda: self.slurm.state(self.number) in states, f"{states} of job {self.number}:\n{self.log()}"
        )

    def wait_for_step(self, step: int) -> None:
        """Until its metrics say that it has done a step."""
        self.slurm.wait(lambda: max(self.losses(), default=0) >= step, f"step {step}:\n{self.log()}")

    def losses(self) -> dict[int, float]:
        """By step; the last line of a step counts."""
        path = self.out / "metrics.jsonl"
        whole = path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
        lines = [json.loads(line) for line in whole]
        return {line["step"]: line["loss"] for line in lines if line["kind"] == "train"}

    def saved(self) -> list[int]:
        """The steps after which the attempts were stopped."""
        return [int(step) for step in re.findall(r"stopped after step (\d+), saved", self.log())]

    def log(self) -> str:
        """What the job and its ranks have printed, in all attempts; of the steps every hundredth."""
        path = self.out / f"slurm-{self.number}.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return "\n".join(line for line in lines if not re.match(r"step +\d*[^0]\d?/|step +\d*[1-9]0/", line))


@pytest.fixture(scope="module")
def undisturbed(slurm: Slurm, repository: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(slurm, repository, data, tmp_path_factory.mktemp("undisturbed"))
    job.wait("COMPLETED", "FAILED")
    return job


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_runs_to_the_end(undisturbed: Job) -> None:
    assert undisturbed.slurm.state(undisturbed.number) == "COMPLETED", undisturbed.log()
    assert list(undisturbed.losses()) == list(range(1, NUM_STEPS + 1))
    assert json.loads((undisturbed.out / "summary.json").read_bytes())["steps"] == NUM_STEPS
    assert undisturbed.slurm.restarts(undisturbed.number) == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_job_that_is_preempted_goes_on_where_it_was(
    slurm: Slurm, repository: Path, data: Path, undisturbed: Job, tmp_path: Path
) -> None:
    job = Job(slurm, repository, data, tmp_path / "out")
    job.wait_for_step(5)
    slurm.run("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=true")
    job.wait("COMPLETED", "FAILED")
    log = job.log()
    print(log)
    assert slurm.state(job.number) == "COMPLETED" and slurm.restarts(job.number) == 1, log
    [saved] = job.saved()
    assert 5 <= saved < NUM_STEPS
    told = [
        rf"^== job {job.number}, attempt 1: 2 ranks",
        rf"^== job {job.number}, attempt 1: exit code 75, job is RUNNING, back into the queue: yes",
        rf"^== job {job.number}, attempt 2: 2 ranks",
        rf"^resuming from \S+step-{saved:08d} ",
        rf"^== job {job.number}, attempt 2: exit code 0",
    ]
    places = [re.search(pattern, log, re.MULTILINE) for pattern in told]
    assert all(places), log
    assert job.losses() == undisturbed.losses()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_job_at_its_time_limit_goes_on_in_a_new_one(
    slurm: Slurm, repository: Path, data: Path, tmp_path: Path
) -> None:
    """Slurm looks at limits twice a minute, so nobody can say at which step the signal comes."""
    job = Job(slurm, repository, data, tmp_path / "out", "training.num_steps=100000", TIME="2", SBATCH_SIGNAL="TERM@60")
    slurm.wait(lambda: job.saved() != [] and "resuming from" in job.log(), "an attempt that was stopped and resumed")
    [saved] = job.saved()
    job.wait_for_step(saved + 1)
    slurm.run("scancel", job.number)  # it would never end
    job.wait("CANCELLED")
    log = job.log()
    print(log)
    assert len(job.saved()) == 2 and job.saved()[1] > saved
    assert "exit code 75, job is RUNNING, back into the queue: yes" in log
    assert re.search(r"exit code 75, job is [^R]\w+, back into the queue: no", log.splitlines()[-1]), log
    newest = checkpoint.newest(job.out)
    assert newest is not None and newest.name == f"step-{job.saved()[1]:08d}"

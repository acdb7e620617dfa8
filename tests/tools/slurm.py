"""A Slurm cluster of one node on this machine: a folder, three daemons, free ports; all of it gone at the end.

It is the Slurm of Debian's packages slurmctld, slurmd, slurm-client and munge, run by whoever runs the tests: no system
configuration is read or changed, and a Slurm that runs here already is not touched. Two partitions share the node: a
job of `high` takes it from a job of `low`, which is told so with SIGTERM and has `GRACE_SECONDS`.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel", "srun")
PLACES = f"{os.environ['PATH']}:/usr/sbin:/sbin"  # of daemons, which are not on everyone's path
DEADLINE_SECONDS = 600.0  # for whatever is waited for; the machine may be busy
GRACE_SECONDS = 120
CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5  # and so long a requeued job waits
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
PropagateResourceLimits=NONE
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
SelectType=select/linear
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=120
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace}
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF
"""


def missing() -> list[str]:
    """Programs that would have to be installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=PLACES) is None]


class Slurm:
    """The cluster, for one who has an account on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH"))}
        self.environment |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": PLACES}

    def run(self, *command: str, **more: str) -> str:
        """The standard output of a command."""
        done = subprocess.run(
            command, env=self.environment | more, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """As in RUNNING, COMPLETED, CANCELLED."""
        return dict(part.split("=", 1) for part in self.run("scontrol", "show", "job", job).split() if "=" in part)[
            "JobState"
        ]

    def restarts(self, job: str) -> int:
        """How often a job has gone back into the queue."""
        shown = self.run("scontrol", "show", "job", job)
        return int(shown.split("Restarts=")[1].split()[0])

    def wait(self, what: Callable[[], bool], description: str) -> None:
        """Until `what` is true; looked at ten times a second."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not what():
            assert time.monotonic() < deadline, f"{description}: not in {DEADLINE_SECONDS} s\n{self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        """The last lines of the daemons'."""
        found = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{path.name}:\n" + "\n".join(path.read_text().splitlines()[-15:]) for path in found)


@contextmanager
def private_slurm() -> Iterator[Slurm]:
    """Start the cluster; at its end nothing of it runs."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as stack:  # a short path: sockets lie there
        folder = Path(name)
        for part in ("state", "spool"):
            (folder / part).mkdir()
        values = {
            "host": socket.gethostname().partition(".")[0], "user": getpass.getuser(), "folder": folder,
            "grace": GRACE_SECONDS,
        }  # fmt: skip
        values["ctld_port"], values["slurmd_port"] = _free_ports()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        slurm = Slurm(folder)
        files = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        stack.enter_context(_daemon(slurm, ["munged", "--foreground", "--force", "--num-threads=2", *options]))
        slurm.wait(lambda: (folder / "munge.sock").exists(), "munged")
        stack.enter_context(_daemon(slurm, ["slurmctld", "-D"]))
        stack.enter_context(_daemon(slurm, ["slurmd", "-D"]))
        slurm.wait(lambda: _answers(slurm), "slurmctld and slurmd")
        stack.callback(_end_jobs, slurm)
        yield slurm


@contextmanager
def _daemon(slurm: Slurm, command: Sequence[str]) -> Iterator[None]:
    program = shutil.which(command[0], path=PLACES)
    assert program is not None
    with open(slurm.folder / f"{command[0]}.out.log", "wb") as log:
        process = subprocess.Popen([program, *command[1:]], env=slurm.environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(slurm: Slurm) -> bool:
    done = subprocess.run(
        ["sinfo", "--noheader", "--format=%T"], env=slurm.environment, capture_output=True, text=True, check=False
    )
    return done.stdout.split() == ["idle"]  # once, for both partitions


def _end_jobs(slurm: Slurm) -> None:
    """No rank outlives the cluster."""
    jobs = slurm.run("squeue", "--noheader", "--format=%i").split()
    for job in jobs:
        subprocess.run(["scancel", "--signal=KILL", "--full", job], env=slurm.environment, check=False)
        subprocess.run(["scancel", job], env=slurm.environment, check=False)
    slurm.wait(lambda: not slurm.run("squeue", "--noheader"), "the end of the jobs")


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]

"""The cluster examples are shell and YAML that parse, and name options that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = ["tools/ray/submit.sh", "tools/slurm/array.sbatch"]
TRAINING = "tools/slurm/train.sbatch"
SRUN = """#!/bin/sh
test "$1" = --kill-on-bad-exit=1 && shift
for rank in 0 1 2 3; do SLURM_PROCID=$rank SLURM_LOCALID=$((rank % 2)) "$@"; done
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_parses_and_its_options_exist(repository: Path, script: str) -> None:
    subprocess.run(["sh", "-n", str(repository / script)], check=True)
    commands = re.findall(r"python -m (corpus|tokenizer) run (.*)", (repository / script).read_text())
    assert {package for package, _ in commands} == {"corpus", "tokenizer"}
    for package, rest in commands:
        command = [sys.executable, "-m", package, "run", "--help"]
        offered = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"--[a-z]+", rest)) <= set(re.findall(r"--[a-z]+", offered))


def test_a_script_without_its_variables_says_so(repository: Path) -> None:
    for script, variable in [*((script, "RECIPE") for script in SCRIPTS), (TRAINING, "CONFIG")]:
        done = subprocess.run(["sh", str(repository / script)], env={}, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and variable in done.stderr


def test_the_training_script_starts_each_rank_with_its_number(repository: Path, tmp_path: Path) -> None:
    """Under stand-ins for Slurm's commands, and for Python one that says what it was given."""
    stand_ins = {
        "srun": SRUN,
        "scontrol": "#!/bin/sh\necho node3\necho node4\n",
        "python": '#!/bin/sh\necho "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT: $*"\n',
    }
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text(f"PATH={tmp_path}:$PATH\n")
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"], "CONFIG": "yuan-13b", "DATA": "my data", "OUT": "run", "SLURM_NTASKS": "4",
        "SET": "parallel.tp=2 parallel.pp=2", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_NODELIST": "node[3-4]",
        "SLURM_JOB_ID": "40007",
    }  # fmt: skip
    command = ["sh", str(repository / TRAINING)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rest = "--config yuan-13b --data my data --out run --set parallel.tp=2 --set parallel.pp=2"
    assert done.stdout.splitlines() == [
        f"{rank} {rank % 2} 4 node3 20007: -m pretrain train {rest}" for rank in range(4)
    ]


def test_ray_accepts_the_cluster_file(repository: Path) -> None:
    pytest.importorskip("ray")
    code = (
        "import sys, yaml; from ray.autoscaler._private.util import prepare_config, validate_config; "
        "validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(repository / "tools/ray/cluster.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr

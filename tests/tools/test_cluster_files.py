"""The cluster examples are shell and YAML that parse, and name options that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = ["tools/ray/submit.sh", "tools/slurm/array.sbatch"]


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
    for script in SCRIPTS:
        done = subprocess.run(["sh", str(repository / script)], env={}, capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "RECIPE" in done.stderr


def test_ray_accepts_the_cluster_file(repository: Path) -> None:
    pytest.importorskip("ray")
    code = (
        "import sys, yaml; from ray.autoscaler._private.util import prepare_config, validate_config; "
        "validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, str(repository / "tools/ray/cluster.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr

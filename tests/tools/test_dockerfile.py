"""Deployment files, read as text: what the Dockerfile copies is there and let in, what it installs exists, and it does
not run as root; the cluster examples are shell and YAML that parse, and name options that exist.

No image is built here: `docker build` needs a daemon and a base image from outside.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.contracts.helps import help_of

Instruction = tuple[str, str]


@pytest.fixture
def instructions(repository: Path) -> list[Instruction]:
    """(name, rest) of each, comments dropped and continued lines joined."""
    text = (repository / "tools/Dockerfile").read_text()
    joined = re.sub(r"\\\n", "", "".join(line for line in text.splitlines(True) if not line.startswith("#")))
    lines = [line for line in joined.splitlines() if line.strip()]
    found = [line.split(maxsplit=1) for line in lines]
    assert all(re.fullmatch("FROM|ARG|ENV|RUN|COPY|LABEL|USER|WORKDIR|ENTRYPOINT|CMD", words[0]) for words in found)
    return [(words[0], words[1]) for words in found]


def test_what_is_copied_is_there_and_nothing_else_is_let_in(repository: Path, instructions: list[Instruction]) -> None:
    copied = {
        word
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from")
        for word in rest.split()[:-1]
    }
    assert {"corpus", "tokenizer", "pretrain", "pyproject.toml", "constraints.txt"} <= copied
    ignored = [line for line in (repository / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    for name in copied:
        assert (repository / name).exists()


def test_the_package_says_what_it_is_made_of(repository: Path, instructions: list[Instruction]) -> None:
    """A file that its metadata names and the image does not copy would end the build."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    [extras] = [rest.partition("=")[2].split(",") for name, rest in instructions if name == "ARG" and "EXTRAS" in rest]
    assert extras == ["pretrain", "s3"] and set(extras) <= set(project["optional-dependencies"])
    [listed] = [rest for name, rest in instructions if name == "COPY" and "pyproject.toml" in rest]
    assert {project["readme"], *project["license-files"]} <= set(listed.split())


def test_each_command_parses_and_versions_are_pinned(instructions: list[Instruction]) -> None:
    commands = [rest for name, rest in instructions if name == "RUN"]
    for command in commands:
        subprocess.run(["sh", "-n", "-c", command], check=True)
        assert "apt-get install" not in command or "--no-install-recommends" in command
    assert any("PIP_CONSTRAINT=/src/constraints.txt" in rest for name, rest in instructions if name == "ENV")


def test_it_runs_python_as_somebody(instructions: list[Instruction]) -> None:
    names = [name for name, _ in instructions]
    last = dict(instructions)
    assert last["ENTRYPOINT"] == '["python", "-m"]' and last["CMD"].startswith('["pretrain"')
    assert last["USER"] == "wenhai" and names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")
    labels = {word.partition("=")[0] for word in shlex.split(last["LABEL"])}
    assert {f"org.opencontainers.image.{what}" for what in ("title", "description", "licenses")} == labels


# ------------------------------------------------------------------------------------------ Ray, Slurm arrays
SCRIPTS = ["tools/ray/submit.sh", "tools/slurm/array.sbatch"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_parses_and_its_options_exist(repository: Path, script: str) -> None:
    subprocess.run(["sh", "-n", str(repository / script)], check=True)
    commands = re.findall(r"python -m (corpus|tokenizer) run (.*)", (repository / script).read_text())
    assert {package for package, _ in commands} == {"corpus", "tokenizer"}
    for package, rest in commands:
        assert set(re.findall(r"--[a-z]+", rest)) <= set(re.findall(r"--[a-z]+", help_of(package, "run")))


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

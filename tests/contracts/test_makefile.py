"""The Makefile's targets: listed, quoted, in order, and kind when something is missing. Nothing is installed here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest


def make(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in the checkout, deaf to the variables of a make that may have started us."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=250, check=False
    )


def phony(repository: Path) -> set[str]:
    [line] = re.findall(r"^\.PHONY: (.*)$", (repository / "Makefile").read_text(), re.MULTILINE)
    return set(line.split())


def test_make_alone_lists_every_target_on_one_line(repository: Path) -> None:
    done = make(repository)
    assert done.returncode == 0
    listed = re.findall(r"^  make ([a-z-]+) +\S.*$", done.stdout, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == phony(repository) - {"have-arms", "have-data", "have-model", "have-seeds"}


def test_the_help_names_every_variable(repository: Path) -> None:
    text = (repository / "Makefile").read_text()
    used = set(re.findall(r"\$\((?:if )?\$?\(?([A-Z_]{2,})\)", text)) - {"VENV", "RUN", "PIP", "TORCH"}
    used -= {"PYTEST", "SOURCE", "SUBMIT", "TRAIN", "MAKECMDGOALS", "ASK"}
    assert {"INPUT", "OUT", "RECIPE", "TORCH_INDEX", "STEPS"} <= used
    told = set(re.findall(r"^    ([A-Z_]+)=", make(repository).stdout, re.MULTILINE))
    assert used <= told


def test_a_glob_reaches_the_program_unexpanded(repository: Path) -> None:
    done = make(repository, "-n", "corpus", "INPUT=data/*.jsonl.zst", "OUT=build/my own", "WORKERS=3")
    assert "--input 'data/*.jsonl.zst' --out 'build/my own' --workers 3" in done.stdout
    assert "--recipe 'web_zh'" in done.stdout
    assert "demo_input" not in done.stdout


def test_the_demo_comes_first_and_corpus_before_pretrain(repository: Path) -> None:
    done = make(repository, "-n", "-j4", "corpus", "pretrain", "DEMO_NEWS=1", "STEPS=7", "NPROC=3")
    steps = ["tools.demo.input --out 'build/demo-news-input' --news", "corpus run", "tokenizer run", "pretrain train"]
    places = [done.stdout.index(step) for step in steps]
    assert places == sorted(places)
    assert "--nproc 3" in done.stdout
    assert "--set training.num_steps=7" in done.stdout
    assert "--data 'build/demo-news' --out 'build/demo-news/pretrain'" in done.stdout


def test_the_order_holds_with_parallel_jobs(repository: Path, tmp_path: Path) -> None:
    """A stand-in for .venv/bin/python notes its calls; its `corpus run` takes a while and leaves the dataset behind."""
    fake = tmp_path / "venv/bin/python"
    fake.parent.mkdir(parents=True)
    fake.write_text(
        f'#!/bin/sh\necho "$2 $3" >> {tmp_path}/calls\n'
        f'if test "$2 $3" = "corpus run"; then sleep 0.3; mkdir -p {tmp_path}/out; touch {tmp_path}/out/run.json; fi\n'
    )
    fake.chmod(0o755)
    for stamp in (".corpus-stamp", ".pretrain-stamp"):
        (tmp_path / "venv" / stamp).touch()
    done = make(repository, "-j4", "corpus", "pretrain", f"VENV={tmp_path}/venv", f"OUT={tmp_path}/out", "INPUT=x")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["tokenizer check", "corpus run", "tokenizer run", "corpus report", "pretrain train"]


def test_corpus_alone_installs_no_torch(repository: Path, tmp_path: Path) -> None:
    done = make(repository, "-n", "corpus", f"VENV={tmp_path}/venv")
    assert "-e '.[corpus,documents,ledger]'" in done.stdout
    assert "[pretrain]" not in done.stdout
    assert "torch==" not in done.stdout


def test_a_recipe_of_ones_own_may_name_its_files(repository: Path, tmp_path: Path) -> None:
    own = make(repository, "-n", "corpus", "RECIPE=my.toml", f"VENV={tmp_path}/venv").stdout
    assert "corpus run --recipe 'my.toml'  --out 'build/corpus'" in own and "tools.demo" not in own
    both = make(repository, "-n", "corpus", "RECIPE=my.toml", "INPUT=in/*", f"VENV={tmp_path}/venv").stdout
    assert "corpus run --recipe 'my.toml' --input 'in/*' --out 'build/corpus'" in both


def test_another_index_is_for_torch_only(repository: Path, tmp_path: Path) -> None:
    done = make(repository, "-n", "setup", f"VENV={tmp_path}/venv", "TORCH_INDEX=https://wheels.invalid/cpu")
    [line] = [line for line in done.stdout.splitlines() if "--index-url" in line]
    assert "--no-deps --index-url 'https://wheels.invalid/cpu' 'torch==2.13.0'" in line


@pytest.mark.parametrize("target", ["pretrain", "report", "status", "verify"])
def test_without_a_dataset_the_message_says_how_to_make_one(repository: Path, tmp_path: Path, target: str) -> None:
    done = make(repository, target, f"OUT={tmp_path}/none", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert f"no dataset in '{tmp_path}/none'" in done.stderr
    assert f"make {target} DATA=" in done.stderr
    assert not (tmp_path / "venv").exists()  # told before anything was installed


def test_generate_takes_the_newest_finished_checkpoint(repository: Path, tmp_path: Path) -> None:
    done = make(repository, "generate", f"DATA={tmp_path}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert f"no trained model below '{tmp_path}/pretrain'" in done.stderr
    for step in ("step-00000900", "step-00001000", "step-00001100"):
        (tmp_path / "pretrain/checkpoints" / step).mkdir(parents=True)
        if step != "step-00001100":  # killed before it was committed
            (tmp_path / "pretrain/checkpoints" / step / "COMMIT.json").touch()
    done = make(repository, "-n", "generate", f"DATA={tmp_path}", "PROMPT=学而")
    assert f"--checkpoint '{tmp_path}/pretrain/checkpoints/step-00001000' --prompt '学而'" in done.stdout


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ('case "$*" in *version_info*) exit 1;; -V) echo Python 3.9.2;; esac', "needs Python 3.11 or newer, and"),
        ('case "$*" in *ensurepip*) exit 1;; esac', "apt-get install python3-venv"),
    ],
)
def test_an_unfit_python_is_named(repository: Path, tmp_path: Path, script: str, told: str) -> None:
    fake = tmp_path / "python3"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    done = make(repository, "corpus", f"VENV={tmp_path}/venv", f"PYTHON={fake}")
    assert done.returncode != 0
    assert told in done.stderr
    assert "Traceback" not in done.stderr

"""Files in, a trained model out: the three command lines one after another, as the Makefile calls them.

Small (three hundred documents, a model of a few thousand parameters), but nothing is replaced: WARC-less JSONL is
filtered, deduplicated, tokenized, trained on with two processes, killed, resumed, traced and continued.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpus.__main__ import main as corpus
from tests.corpus.texts import document
from tests.pretrain.texts import losses
from tokenizer.__main__ import main as tokenizer

NUM_DOCUMENTS = 300
STEPS = 12
MODEL = {
    "model.num_layers": "1",
    "model.hidden_size": "32",
    "model.num_heads": "2",
    "model.sequence_length": "64",
    "model.padded_vocab_size": "1024",
    "training.num_steps": str(STEPS),
    "schedule.warmup_steps": "2",
    "checkpoint.every_steps": "4",
    "metrics.every_steps": "1",
    "evaluation.sample_tokens": "8",
}
TOKENIZER = ["--set", "tokenizer.vocab_size=800", "--set", "tokenizer.validation_ratio=0.1"]


def call(*arguments: str, timeout: float = 300) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def overrides(values: dict[str, str]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def train_arguments(data: Path, out: Path) -> list[str]:
    return [
        "pretrain",
        "train",
        "--config",
        "demo",
        "--data",
        str(data),
        "--out",
        str(out),
        "--nproc",
        "2",
        *overrides(MODEL),
    ]


def build(inputs: Path, out: Path, workers: int) -> None:
    shards = ["--set", "input.task_bytes=20000"]
    words = ["--out", str(out), "--workers", str(workers), "--quiet"]
    assert corpus(["run", "--recipe", "web_zh", "--input", str(inputs / "*.jsonl"), *words, *shards]) == 0
    assert tokenizer(["run", "--recipe", "web_zh", *words, *TOKENIZER]) == 0


def shard_digests(out: Path) -> dict[str, str]:
    files = [path for path in out.glob("tokens-*/data/*") if path.suffix in {".bin", ".idx", ".json", ".parquet"}]
    assert files
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prose")
    for part in range(6):
        lines = [
            json.dumps({"text": document(seed), "url": f"https://example.org/{seed}"}, ensure_ascii=False)
            for seed in range(part, NUM_DOCUMENTS, 6)
        ]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="session")
def data(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dataset")
    build(inputs, out, workers=1)
    return out


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    call(*train_arguments(data, out))
    return out


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 4])
def test_token_shards_are_the_same_bytes_for_any_number_of_workers(
    inputs: Path, data: Path, tmp_path: Path, workers: int
) -> None:
    build(inputs, tmp_path, workers)
    assert shard_digests(tmp_path) == shard_digests(data)


def test_the_model_learns_and_says_so(trained: Path) -> None:
    curve = losses(trained)
    assert sorted(curve) == list(range(1, STEPS + 1))
    assert curve[STEPS] < curve[1] - 0.5
    summary = json.loads((trained / "summary.json").read_text())
    assert 0 < summary["held_out_bits_per_character"] < 20
    assert 0 < summary["bigram_bits_per_character"] < summary["unigram_bits_per_character"] < 20


@pytest.mark.long
def test_a_killed_training_goes_on_bit_for_bit(data: Path, trained: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", *train_arguments(data, tmp_path)]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 200
    while not list(tmp_path.rglob("step-*4/COMMIT.json")):
        assert time.monotonic() < deadline and not process.poll()  # a run that is done meanwhile is no failure
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    call(*train_arguments(data, tmp_path))
    assert losses(tmp_path) == losses(trained)


@pytest.mark.long
def test_a_step_is_traced_to_its_documents(data: Path, trained: Path) -> None:
    (checkpoint,) = trained.rglob(f"step-*{STEPS}")
    output = call("pretrain", "trace", "--checkpoint", str(checkpoint), "--data", str(data), "--step", "3")
    assert output.count("https://example.org/") >= 2


@pytest.mark.long
def test_the_model_continues_a_prompt(trained: Path) -> None:
    (checkpoint,) = trained.rglob(f"step-*{STEPS}")
    arguments = ["pretrain", "generate", "--checkpoint", str(checkpoint), "--prompt", "清晨，", "--max-tokens", "6"]
    first, second = call(*arguments), call(*arguments)
    assert first == second
    assert first.startswith("清晨，") and len(first) > 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_torchrun_trains_the_same_model_and_a_killed_rank_ends_the_job(
    data: Path, trained: Path, tmp_path: Path
) -> None:
    words = train_arguments(data, tmp_path)
    nproc = words.index("--nproc")
    words = words[:nproc] + words[nproc + 2 :]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    process = subprocess.Popen(launcher, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(tmp_path.rglob("step-*4/COMMIT.json")):
        assert time.monotonic() < deadline and not process.poll()  # a run that is done meanwhile is no failure
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    assert process.wait(200) != 0
    assert subprocess.run(launcher, env=environment, capture_output=True, timeout=300).returncode == 0
    assert losses(tmp_path) == losses(trained)

"""An ablation from end to end: what is trained and measured once, what is refused, and how it goes on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from corpus.engine.durable import RunLock, read_json
from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain.__main__ import main
from pretrain.ablation import experiment as room
from pretrain.ablation.experiment import experiment
from pretrain.ablation.measuring import Measured, Questions
from pretrain.ablation.plan import Plan, Run, new_plan
from pretrain.config import with_vocab_size
from pretrain.data import data_digest
from tests.pretrain.ablation.builds import prose
from tests.pretrain.texts import save_checkpoint
from tokenizer.model import Tokenizer

ASKED = Questions((), 10_000, None, "cpu")


@pytest.fixture
def plan(arms: list[str], config: str) -> Plan:
    return new_plan(arms, config, [], num_seeds=2, points=2)


def command(arms: list[str], config: str, out: Path, *words: str) -> list[str]:
    named = [word for arm in arms for word in ("--arm", arm)]
    return ["ablate", *named, "--config", config, "--out", str(out), "--seeds", "2", "--device", "cpu", *words]


class Fakes:
    """Instead of training and measuring: notes what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends_at: str = "") -> None:
        self.done: list[str] = []
        self.trained: set[str] = set()
        self.ends_at = ends_at
        for name in ("_train", "_is_trained", "measure_run"):
            monkeypatch.setattr(room, name, getattr(self, name))

    def _train(self, plan: Plan, run: Run, out: Path, num_ranks: int) -> None:
        if run.name == self.ends_at:
            self.ends_at = ""
            raise Stopped("stopped")
        self.done.append(f"train {run.name} on {num_ranks}")
        self.trained.add(run.name)

    def _is_trained(self, run: Run, out: Path, config: Any, data: str) -> bool:
        assert config.training.seed == run.seed
        assert data == data_digest(list(run.arm.shards))
        return run.name in self.trained

    def measure_run(self, out: Path, name: str, steps: list[int], questions: Any) -> Measured:
        assert steps[-1] == 6
        self.done.append(f"measure {name}")
        bits = {held.key: 5.0 for held in questions.held}
        return Measured(of="", bits_per_character=bits, curves={}, accuracy={})


def test_every_run_is_trained_once_and_results_come_with_every_seed(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes, out = Fakes(monkeypatch, ends_at="other-seed8"), tmp_path / "out"
    with pytest.raises(Stopped):
        experiment(plan, out, ASKED, 2)
    names = ["one-seed7", "other-seed7", "one-seed8"]
    assert fakes.done == [word for name in names for word in (f"train {name} on 2", f"measure {name}")]
    assert read_json(out / "results.json")["seeds"] == [7]  # what can be compared so far
    fakes.done.clear()
    results = experiment(plan, out, ASKED, 2)
    assert [done for done in fakes.done if done.startswith("train")] == ["train other-seed8 on 2"]
    assert results.seeds == (7, 8)
    assert read_json(out / "results.json")["seeds"] == [7, 8]
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_folder_is_one_commands_at_a_time(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Fakes(monkeypatch)
    with RunLock(tmp_path / "out"):
        assert main(command([f"{a.name}={a.folder}" for a in plan.arms], plan.config_name, tmp_path / "out")) == 3


def test_a_changed_setting_is_refused(
    arms: list[str], config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes = Fakes(monkeypatch)
    assert main(command(arms, config, tmp_path / "out")) == 0
    fakes.done.clear()
    assert main(command(arms, config, tmp_path / "out", "--set", "optimizer.learning_rate=0.5")) == 2
    assert "another optimizer.learning_rate" in capsys.readouterr().err
    assert main(command(arms, config, tmp_path / "out", "--steps", "7")) == 2
    assert "training.num_steps" in capsys.readouterr().err
    assert fakes.done == []


def test_a_run_that_was_trained_otherwise_is_refused(plan: Plan, tmp_path: Path, tokenizer: Tokenizer) -> None:
    from pretrain.training.state import State

    config = with_vocab_size(plan.config, tokenizer.vocab_size)
    one, other = plan.arms
    run, data = Run(one, 7), data_digest(list(one.shards))
    assert not room._is_trained(run, tmp_path, config, data)
    save_checkpoint(tmp_path / "runs" / run.name, config, one.folder, tokenizer, State(step=plan.num_steps))
    assert room._is_trained(run, tmp_path, config, data)
    parallel = config.model_copy(update={"parallel": config.parallel.model_copy(update={"zero": 1})})
    assert room._is_trained(run, tmp_path, parallel, data)
    faster = config.model_copy(update={"optimizer": config.optimizer.model_copy(update={"learning_rate": 0.5})})
    with pytest.raises(UsageError, match="trained with other settings"):
        room._is_trained(run, tmp_path, faster, data)
    with pytest.raises(UsageError, match="on other text"):
        room._is_trained(run, tmp_path, config, data_digest(list(other.shards)))


def test_a_run_without_its_last_checkpoint_is_not_measured(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_train", lambda *anything: None)
    with pytest.raises(WenhaiError, match="one-seed7: ended without its last checkpoint"):
        experiment(plan, tmp_path / "out", ASKED, 1)


def test_a_run_that_fails_shows_the_end_of_its_log(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []

    def launch(command: list[str], num_ranks: int, *, outputs: list[Path]) -> int:
        told.append(command)
        outputs[0].write_text("\n".join(f"line {number}" for number in range(100)))
        return code

    monkeypatch.setattr(room, "launch", launch)
    code = 1
    with pytest.raises(WenhaiError, match=r"exit code 1[^$]*line 80\n[^$]*line 99$"):
        room._train(plan, plan.runs[0], tmp_path, 2)
    assert told[0][1:6] == ["-m", "pretrain", "train", "--config", plan.config_name]
    assert "training.seed=7" in told[0]
    code = 75
    with pytest.raises(Stopped):
        room._train(plan, plan.runs[0], tmp_path, 2)
    code = 0
    room._train(plan, plan.runs[0], tmp_path, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nproc", "0"], "1 or more"),
        (["--limit", "3"], "--tasks FOLDER"),
        (["--tokens", "many"], "write a number of tokens"),
        (["--text", "nowhere.jsonl"], "no such file"),
        (["--tasks", "nowhere"], "none of test_public.json is there"),
        (["--tasks", "nowhere", "--task", "poems"], "task poems: there is none"),
    ],
)
def test_mistakes_end_with_2(
    arms: list[str], config: str, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(arms, config, tmp_path / "out", *words)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_ablation_goes_on_after_a_kill(arms: list[str], config: str, tmp_path: Path) -> None:
    out, text = tmp_path / "out", tmp_path / "prose.jsonl"
    text.write_text("".join(json.dumps({"text": prose(seed)}) + "\n" for seed in range(300, 303)))
    words = command(arms, config, out, "--points", "2", "--text", str(text), "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "pretrain", *words], stdout=subprocess.PIPE, start_new_session=True
    )
    first = out / "measured" / "one-seed7.json"
    while not first.exists():
        assert process.poll() is None, "ended before it was killed"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = first.stat().st_mtime_ns

    done = subprocess.run(
        [sys.executable, "-m", "pretrain", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "one-seed7" not in done.stderr  # neither trained nor measured again
    assert first.stat().st_mtime_ns == before
    results = json.loads(done.stdout)
    assert results == read_json(out / "results.json")
    assert results["seeds"] == [7, 8]
    assert [(m["kind"], m["name"]) for m in results["metrics"]] == [
        ("held out", "one"), ("held out", "other"), ("text", "prose.jsonl"),
    ]  # fmt: skip
    assert list(results["curves"]["held out/one"]["one"]) == ["3", "6"]
    for metric in results["metrics"]:
        for arm in metric["arms"].values():
            assert len(set(arm["values"])) == 2  # seeds differ
            assert all(0 < value < 20 for value in arm["values"])
    summary = read_json(out / "runs" / "one-seed7" / "summary.json")
    held = next(m for m in results["metrics"] if (m["kind"], m["name"]) == ("held out", "one"))
    assert held["arms"]["one"]["values"][0] == pytest.approx(summary["held_out_bits_per_character"], rel=1e-4)

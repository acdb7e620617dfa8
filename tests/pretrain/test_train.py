"""Whole runs: from token shards to a summary, through a signal, a damaged shard, a poisoned batch and a rank that
dies."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tomlkit

from corpus.engine.durable import RunLock
from corpus.engine.errors import LockHeld, Stopped, UsageError, WenhaiError
from pretrain import checkpoint
from pretrain.checkpoint import saving
from pretrain.checkpoint.shards import write_shard
from pretrain.config import RunConfig, load_config, to_json
from pretrain.corpora import order_from
from pretrain.parallel.engine import compose
from pretrain.run import evaluation, train
from pretrain.training import step
from pretrain.training.optim import GradNorms
from pretrain.training.state import Order
from pretrain.training.step import StepResult, note_order, train_step
from tests.pretrain.ranks import RanksFailed, reused_ranks, run_ranks
from tests.pretrain.texts import losses, recorded, small_tokenizer, text_folder
from tests.pretrain.tiny import tiny_config, tiny_run, train_steps
from tests.tokenizer.texts import documents
from tokenizer.model import Tokenizer

NUM_STEPS = 12
NOT_FINITE = GradNorms(math.nan, {}, is_finite_here=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    tokenizer = small_tokenizer(folder / "tokenizer.model")
    shards = {
        "00000-00-train": documents(120),
        "00001-00-train": documents(180)[120:],
        "00000-00-validation": documents(190)[180:],
    }
    text_folder(folder / "tokens", tokenizer, shards)
    return folder


def run_config(**sections: Any) -> RunConfig:
    sections = (
        dict[str, Any](
            {
                "model": {"vocab_size": None, "padded_vocab_size": 512},
                "training": {"num_steps": NUM_STEPS},
                "checkpoint": {"every_steps": 4},
                "metrics": {"every_steps": 1},
                "evaluation": {"every_steps": 4, "sample_tokens": 8, "prompt": "学而"},
            }
        )
        | sections
    )
    return tiny_config(**sections)


def train_here(config: RunConfig, data: Path, out: Path) -> None:
    train.train(config, data / "tokens", out, data / "tokenizer.model")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run on two ranks."""
    out = tmp_path_factory.mktemp("whole")
    reused_ranks(train_here, 2, run_config(metrics={"every_steps": 1, "tensorboard": True}), data, out)
    return out


def test_a_run_leaves_its_summary_metrics_and_checkpoints(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_bytes())
    assert summary["steps"] == NUM_STEPS
    assert summary["tokens"] == NUM_STEPS * 8 * 16
    assert summary["sample"].startswith("学而")
    assert 0 < summary["bigram_bits_per_character"] < summary["unigram_bits_per_character"]
    lines = recorded(whole)
    assert list(lines) == list(range(1, NUM_STEPS + 1))
    assert lines[1]["loss"] == pytest.approx(math.log(500), rel=0.05)
    assert lines[NUM_STEPS]["loss"] < lines[1]["loss"] - 0.5
    assert lines[1]["mfu"] is None and lines[1]["tokens_per_second"] > 0
    validation = recorded(whole, "validation")
    assert list(validation) == [4, 8, 12]
    assert summary["held_out_bits_per_character"] == validation[12]["bits_per_character"]
    assert summary["sources"] == summary["corpora"] == {}, "where there is one"
    assert [folder.name for folder in checkpoint.committed_checkpoints(whole)] == ["step-00000008", "step-00000012"]
    assert list((whole / "tensorboard").iterdir())


def test_a_run_says_what_it_is_and_where_its_time_goes(whole: Path) -> None:
    start, end = recorded(whole, "start")[0], recorded(whole, "end")[NUM_STEPS]
    assert (start["ranks"], start["layout"], start["precision"], start["device"]) == (2, "dp 2, zero 2", "fp32", "cpu")
    assert start["parameters"] > 0 and start["resumed_from"] is None and len(start["config_digest"]) == 64
    assert 0 < end["seconds"] <= end["at"] - start["at"] + 1
    for line in recorded(whole).values():
        assert sum(line["phases"].values()) == pytest.approx(1)
        assert line["bubble"] is None
        assert set(line["grad_norms"]) == {"embedding", "attention", "mlp", "norm"}
        assert math.hypot(*line["grad_norms"].values()) == pytest.approx(line["grad_norm"], rel=1e-5)
    fifth, sixth = recorded(whole)[5], recorded(whole)[6]  # an evaluation, and the copy for a save, follow step 4
    assert fifth["phases"]["evaluate"] > 0 and fifth["phases"]["save"] > 0
    assert sixth["phases"]["evaluate"] == sixth["phases"]["save"] == 0


def test_steps_are_profiled_when_asked_for(data: Path, tmp_path: Path) -> None:
    config = run_config(training={"num_steps": 4}, metrics={"every_steps": 1, "profile_step": 4, "profile_steps": 1})
    (tmp_path / "profile.now").touch()  # seen after step 1
    with redirect_stdout(io.StringIO()):
        train_here(config, data, tmp_path)
    names = sorted(path.name for path in (tmp_path / "profile").iterdir())
    assert names == ["step-00000002-rank-00000.json.gz", "step-00000004-rank-00000.json.gz"]
    assert not (tmp_path / "profile.now").exists()


def test_a_finished_run_started_again_changes_no_checkpoint(whole: Path, data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (whole / "checkpoints").rglob("*")}
    summary = (whole / "summary.json").read_bytes()
    reused_ranks(train_here, 2, run_config(), data, whole)
    assert {path: path.stat().st_mtime_ns for path in (whole / "checkpoints").rglob("*")} == before
    assert (whole / "summary.json").read_bytes() == summary


@pytest.mark.parametrize(
    ("schedule", "was", "now", "words"),
    [
        ({}, 6, 6, ()),
        ({}, 6, 2, ()),
        ({"kind": "constant"}, 6, 9, ()),
        ({"decay_steps": 4}, 6, 9, ()),
        ({"kind": "wsd"}, 6, 9, ("was 6 and is 9", "the wsd schedule", "step 3 ")),
        ({}, 6, 4, ("was 6 and is 4", "the cosine schedule", "step 3 ", "it was to have ")),
        ({"warmup_steps": 2}, 2, 9, ("was 2 and is 9", "the run was to end before it")),
    ],
)
def test_what_is_left_of_a_schedule_is_told_where_it_changes(
    schedule: dict[str, Any], was: int, now: int, words: tuple[str, ...]
) -> None:
    planned, config = (tiny_config(training={"num_steps": number}, schedule=schedule) for number in (was, now))
    lines = list(train._reshaped(planned, config, step=2))
    assert len(lines) == bool(words) and all(word in lines[0] for word in words)


def test_evaluation_and_sample_do_not_disturb_training(data: Path, whole: Path, tmp_path: Path) -> None:
    quiet = run_config(evaluation={"every_steps": 100, "sample_tokens": 0}, checkpoint={"every_steps": 100})
    reused_ranks(train_here, 2, quiet, data, tmp_path)
    assert losses(tmp_path) == losses(whole)


def test_a_run_on_two_corpora_while_its_batch_grows(data: Path, tmp_path: Path) -> None:
    """From the configuration alone, stopped and gone on with: shares, batches and what is said of both."""
    more = documents(320)
    shards = {"00001-00-train": more[200:310], "00001-00-validation": more[310:]}
    text_folder(tmp_path / "more", Tokenizer(data / "tokenizer.model"), shards)
    corpora = [{"path": str(data / "tokens"), "weight": 3.0}, {"path": str(tmp_path / "more"), "weight": 1.0}]
    config = run_config(
        data={"corpora": corpora},
        training={"num_steps": 6, "rampup": {"start": 4, "increment": 2, "num_samples": 16}},
        checkpoint={"every_steps": 2},
    )
    ((first, second, printed),) = reused_ranks(
        stopped_and_resumed, 1, config, tmp_path / "out", data / "tokenizer.model"
    )
    lines = recorded(tmp_path / "out")
    assert [line["batch_size"] for line in lines.values()] == [4, 4, 6, 6, 8, 8]
    summary = json.loads((tmp_path / "out" / "summary.json").read_bytes())
    assert summary["samples"] == 36
    last = recorded(tmp_path / "out", "validation")[6]
    assert summary["corpora"] == {name: last[f"bits_per_character/{name}"] for name in ("tokens", "more")}
    by_corpus = {"00000": summary["corpora"]["tokens"], "00001": summary["corpora"]["more"]}
    assert summary["sources"] == pytest.approx(by_corpus)
    assert summary["sources"] == {name: last[f"bits_per_character/source:{name}"] for name in ("00000", "00001")}
    assert last["bits_per_byte"] == summary["held_out_bits_per_byte"] < summary["held_out_bits_per_character"]
    low, high = sorted(summary["corpora"].values())
    assert low < summary["held_out_bits_per_character"] == last["bits_per_character"] < high
    assert first[0].endswith("6 steps of 4 to 8 x 16 tokens")
    assert first[1].startswith("corpus tokens: ") and "75.00% of the samples, 0.0" in first[1]
    assert second[:3] == first[:3] and second[3].startswith("resuming from ")
    assert first[3] == second[4] == "attention: causal (nothing is hidden but what comes later)"
    assert printed[0] == f"held-out bits per character: {summary['held_out_bits_per_character']:.3f}"
    assert [line.partition(":")[0] for line in printed[1:3]] == ["  of tokens", "  of more"]


def stopped_and_resumed(config: RunConfig, out: Path, tokenizer: Path) -> list[list[str]]:
    """Train without `--data` to step 2, and then to the end; what each run says, and what the second prints."""

    def stopping(run: step.Run) -> StepResult:
        result = train_step(run)
        if run.state.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    said: list[list[str]] = [[], []]
    heard = mock.patch.object(train, "log_message", said[0].append)
    with suppress(Stopped), heard, mock.patch.object(train, "train_step", stopping):
        train.train(config, None, out, tokenizer)
    del os.environ["RANK"]  # the process group of `run_ranks` is gone: the second run forms its own of one
    with mock.patch.object(train, "log_message", said[1].append), redirect_stdout(io.StringIO()) as printed:
        train.train(config, None, out, tokenizer)
    return [*said, printed.getvalue().splitlines()]


def command(data: Path, out: Path, config: Path, num_ranks: int) -> list[str]:
    folders = ["--data", str(data / "tokens"), "--out", str(out), "--tokenizer", str(data / "tokenizer.model")]
    return [sys.executable, "-m", "pretrain", "train", "--config", str(config), *folders, "--nproc", str(num_ranks)]


def test_sigterm_saves_and_the_same_command_goes_on_bit_for_bit(data: Path, whole: Path, tmp_path: Path) -> None:
    """FAULTS row 2, two processes, stopped at the command line: exit code 75, then the losses as without a stop."""
    config = run_config(checkpoint={"every_steps": 1000})
    (tmp_path / "run.toml").write_text(tomlkit.dumps(to_json(config)), encoding="utf-8")
    arguments = command(data, tmp_path / "out", tmp_path / "run.toml", 2)
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step  3/"):
            break
    process.send_signal(signal.SIGTERM)
    talk = process.stderr.read()
    process.stderr.close()
    assert process.wait(250) == 75, talk
    assert "Run the same command again" in talk
    stopped_at = int(checkpoint.committed_checkpoints(tmp_path / "out")[-1].name.removeprefix("step-"))
    assert 3 <= stopped_at < NUM_STEPS
    assert load_config(str(tmp_path / "run.toml")) == config
    reused_ranks(train_here, 2, config, data, tmp_path / "out")  # what the command does, without importing torch again
    assert losses(tmp_path / "out") == losses(whole)


def stopped_train(config: RunConfig, data: Path, out: Path, rank: int) -> str:
    """One rank alone gets the signal, after its second step."""

    def stepping(run: step.Run) -> StepResult:
        result = train_step(run)
        if run.state.step == 2 and run.world.rank == rank:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    try:
        with mock.patch.object(train, "train_step", stepping):
            train_here(config, data, out)
    except Stopped as stopped:
        return str(stopped)
    return "went on"


def test_a_signal_on_one_rank_stops_all_after_the_same_step(data: Path, tmp_path: Path) -> None:
    messages = reused_ranks(stopped_train, 2, run_config(), data, tmp_path, 1)
    assert messages == ["stopped after step 2, saved. Run the same command again to go on from there."] * 2
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == ["step-00000002"]


def told(config: RunConfig, data: Path, out: Path) -> list[str]:
    """What this rank says while it trains."""
    words: list[str] = []
    with (
        mock.patch.object(train, "log_message", words.append),
        mock.patch.object(evaluation, "log_message", words.append),
    ):
        train_here(config, data, out)
    return words


@pytest.mark.long
def test_a_run_on_tensor_and_pipeline_ranks_stops_and_goes_on(data: Path, whole: Path, tmp_path: Path) -> None:
    """Its losses and held-out bits are those of two data-parallel ranks, within rounding."""
    config = run_config(parallel={"tp": 2, "pp": 2})
    assert len(set(reused_ranks(stopped_train, 4, config, data, tmp_path, 3))) == 1
    said, *silent = reused_ranks(told, 4, config, data, tmp_path)
    assert "4 x cpu, fp32, tp 2 x pp 2, 1f1b, zero 2 as 1: one rank shards; " in said[0]
    assert said[1].startswith("resuming from ") and said[1].endswith("(step 2)")
    assert silent == [[], [], []]
    assert losses(tmp_path) == pytest.approx(losses(whole), rel=1e-3)
    ours, theirs = (recorded(out, "validation") for out in (tmp_path, whole))
    assert list(ours) == list(theirs)
    for step_number, line in theirs.items():
        assert ours[step_number]["bits_per_character"] == pytest.approx(line["bits_per_character"], rel=1e-3)
    summary = json.loads((tmp_path / "summary.json").read_bytes())
    assert summary["tokens"] == NUM_STEPS * 8 * 16
    assert summary["sample"].startswith("学而")


def failing_save(config: RunConfig, data: Path, out: Path) -> str:
    """The disk refuses the save of step 4 on rank 1, and only that."""

    def refusing(path: Path, parts: Any) -> Any:
        if path.parent.name == "step-00000004" and os.environ["RANK"] == "1":
            raise OSError(28, "No space left on device", str(path))
        return write_shard(path, parts)

    with mock.patch.object(saving, "write_shard", refusing):
        train_here(config, data, out)
    return "went on"


def test_a_disk_that_is_full_for_a_while_does_not_stop_training(data: Path, whole: Path, tmp_path: Path) -> None:
    """FAULTS row 3."""
    assert reused_ranks(failing_save, 2, run_config(), data, tmp_path) == ["went on"] * 2
    assert list(recorded(tmp_path, "save_failed")) == [4]
    assert losses(tmp_path) == losses(whole)


def test_a_damaged_token_shard_is_named_by_every_rank(data: Path, tmp_path: Path) -> None:
    """FAULTS row 7: the flipped bit is met by whichever rank reads it."""
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data/tokens/data/00000-00-train.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(RanksFailed, match=r"rank 0: (?s:.)*checksum(?s:.)*rank 1: (?s:.)*checksum"):
        run_ranks(train_here, 2, run_config(), tmp_path / "data", tmp_path / "out")


def refused_train(config: RunConfig, data: Path, out: Path) -> int:
    try:
        train_here(config, data, out)
    except WenhaiError as error:
        return error.exit_code
    return 0


def test_all_ranks_say_with_their_exit_code_that_the_folder_is_in_use(data: Path, tmp_path: Path) -> None:
    """The launcher gives that of the first rank to end."""
    with RunLock(tmp_path):
        assert reused_ranks(refused_train, 2, run_config(), data, tmp_path) == [LockHeld.exit_code] * 2


def skipped_and_stopped(config: RunConfig, data: Path, out: Path) -> None:
    """The first step changes nothing, and a signal comes."""
    stopping = mock.patch.object(train, "stop_on_signal", lambda: nullcontext(lambda: True))
    with suppress(Stopped), stopping, mock.patch.object(step, "clip_grad_norm", lambda *_: NOT_FINITE):
        train_here(config, data, out)


def resumed(config: RunConfig, data: Path, out: Path) -> None:
    """Without first weights, which the checkpoint's would replace."""
    with mock.patch.object(compose, "init_parameters", side_effect=AssertionError):
        train_here(config, data, out)


def test_a_checkpoint_before_the_first_good_step_is_resumed(data: Path, tmp_path: Path) -> None:
    """With any choice of `training.compile`, and of `parallel.zero`."""
    reused_ranks(skipped_and_stopped, 1, run_config(), data, tmp_path)
    assert [folder.name for folder in checkpoint.committed_checkpoints(tmp_path)] == ["step-00000001"]
    training = {"num_steps": NUM_STEPS, "compile": False}
    reused_ranks(resumed, 1, run_config(training=training, parallel={"zero": 1}), data, tmp_path)
    assert list(recorded(tmp_path)) == list(range(1, NUM_STEPS + 1))


def test_a_changed_batch_and_seed_start_a_new_order() -> None:
    """`trace` has to know which samples the steps before the change took."""
    changed = tiny_config(training={"global_batch_size": 4, "micro_batch_size": 2, "seed": 9})
    with tiny_run(tiny_config()) as run:
        train_steps(run, 2)
        run.config = changed
        note_order(run.state, order_from(changed))
        note_order(run.state, order_from(changed))
        train_steps(run, 1)
        assert run.state.orders == [
            Order(step=0, num_samples=0, global_batch_size=8, seed=1234),
            Order(step=2, num_samples=16, global_batch_size=4, seed=9),
        ]
        assert run.state.num_samples == 20


def test_a_layout_that_is_still_to_be_chosen_is_refused(tmp_path: Path) -> None:
    config = tiny_config(parallel={"auto": True})
    with pytest.raises(UsageError, match="`python -m pretrain train` chooses it"):
        train.train(config, None, tmp_path)
    assert not list(tmp_path.iterdir())

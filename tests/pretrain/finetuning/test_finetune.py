"""Fine-tuning from end to end: it learns answers and where they end, goes on after any end, and alike on any ranks."""

from __future__ import annotations

import argparse
import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain import checkpoint
from pretrain.__main__ import main, planner
from pretrain.chat.conversations import Message
from pretrain.chat.templates import load_template, render, template_of
from pretrain.config import load_config
from pretrain.corpora import corpus_shares
from pretrain.data import IGNORED_TARGET
from pretrain.evaluation.answers import HeldOutAnswers, evaluate_answers
from pretrain.finetuning import command
from pretrain.finetuning.start import rows_a_step, settings
from pretrain.generation import command as generation
from pretrain.hf.export import weights_of
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.parallel.base import mesh
from pretrain.run.datasets import open_datasets
from pretrain.run.trace import Trace
from pretrain.run.train import train
from tests.pretrain.finetuning.made import (
    EIGHT,
    QUICK,
    arguments,
    base_config,
    finetune,
    tokenizer_of,
    write_lines,
)
from tests.pretrain.ranks import reused_ranks
from tests.pretrain.texts import text_folder
from tests.tokenizer.texts import documents


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("lines") / "eight.jsonl", EIGHT)


@pytest.fixture(scope="module")
def tuned(base: Path, lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "sft"
    finetune(base, lines, out)
    return out


def losses(out: Path) -> dict[int, float]:
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in found if line["kind"] == "train"}


@torch.no_grad()
def answer(checkpoint_folder: Path, prompt: str) -> str:
    """What a model says, always the most probable token, up to the end of the document."""
    model, config = checkpoint.load_model(checkpoint_folder)
    tokenizer = tokenizer_of(checkpoint_folder)
    batcher = EvaluationBatcher.of(config, tokenizer.eod)
    tokens = [tokenizer.eod, *tokenizer.encode(prompt)]
    length = len(tokens)
    while len(tokens) < config.model.sequence_length and (tokens[-1] != tokenizer.eod or len(tokens) == 1):
        row = np.array([tokens])
        batch = batcher.micro_batch(row, row, prefix_lengths_B=np.array([length]))
        tokens.append(int(model(*batch.inputs)[0, -1].argmax()))
    assert tokens[-1] == tokenizer.eod, "the end is learned"
    return tokenizer.decode(tokens[length:])


def test_eight_answers_are_learned_with_their_ends(tuned: Path) -> None:
    template = load_template(tuned / "template.toml")
    assert template == load_template("dialogue")
    newest = checkpoint.newest(tuned)
    assert newest is not None and template_of(newest) == template
    for asked, said in EIGHT:
        assert answer(newest, render(template, [Message("user", asked)])) == said
    summary = json.loads((tuned / "summary.json").read_bytes())
    assert summary["held_out_bits_per_character"] < 0.5
    assert "unigram_bits_per_character" not in summary


def test_where_a_run_comes_from_and_how_it_is_set(base: Path, tuned: Path) -> None:
    config = load_config(str(tuned / "config.toml"))
    theirs = checkpoint.read_saved(base).config
    assert config.model == theirs.model.model_copy(update={"document_mask": True})
    assert config.data.reset_positions and not config.data.prefix_lm
    num_packs = -(-config.training.num_steps * 2 // 30)
    assert config.training.num_steps * 2 / num_packs == pytest.approx(30, abs=1)
    assert config.schedule.warmup_steps == -(-config.training.num_steps * 6 // 100)
    origin = json.loads((tuned / "finetuning.json").read_bytes())
    assert origin["asked"]["checkpoint"] == checkpoint.read_commit(base).digest
    assert origin["examples"]["splits"]["train"]["examples"] == 8


def test_the_first_checkpoint_has_the_base_s_weights(base: Path, lines: Path, tmp_path: Path) -> None:
    args = arguments(base, lines, tmp_path, "--prepare", *QUICK)
    said = StringIO()
    with redirect_stdout(said):
        command.main(args, planner())
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        command.main(args, planner())
    assert said.getvalue().count(f"train --config {tmp_path / 'config.toml'} --data {tmp_path / 'examples'}") == 2
    assert {path for path, time in before.items() if path.stat().st_mtime_ns != time} <= {tmp_path / ".lock"}
    first = tmp_path / "checkpoints" / "step-00000000"
    ours, theirs = (weights_of(checkpoint.load_model(folder)[0]) for folder in (first, base))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    config = load_config(str(tmp_path / "config.toml"))
    assert config.optimizer.learning_rate == pytest.approx(1e-3)
    assert checkpoint.read_state(first).step == 0


def test_a_run_that_was_ended_goes_on_bit_for_bit(base: Path, lines: Path, tuned: Path, tmp_path: Path) -> None:
    """After the examples, after the first checkpoint, and in the middle of training."""
    whole = losses(tuned)
    write_json = durable.write_json

    class Died(Exception):
        pass

    def die(path: Path, value: Any) -> None:
        if path.name == "finetuning.json":
            raise Died
        write_json(path, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "write_json", die)
        with pytest.raises(Died):
            finetune(base, lines, tmp_path)
    assert (tmp_path / "examples" / "MANIFEST.json").exists() and checkpoint.newest(tmp_path) is None
    finetune(base, lines, tmp_path, "--prepare")
    middle = next(step for step in sorted(whole) if step >= len(whole) // 2)
    original = checkpoint.Saver.save

    def stop(saver: Any, state: Any, must: bool) -> None:
        original(saver, state, True)
        if state.step >= middle:
            raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint.Saver, "save", stop)
        with pytest.raises(Died):
            finetune(base, lines, tmp_path)
    finetune(base, lines, tmp_path)
    assert losses(tmp_path) == whole
    with pytest.raises(UsageError, match="began with other epochs and template"):
        finetune(base, lines, tmp_path, "--epochs", "3", "--template", "plain")


def test_a_run_goes_on_with_its_own_examples_and_configuration_only(
    base: Path, lines: Path, tuned: Path, tmp_path: Path
) -> None:
    others = write_lines(tmp_path / "eight.jsonl", [*EIGHT[:7], ("上", "天")])
    config = tmp_path / "mine.toml"
    config.write_text('[schedule]\nkind = "cosine"\n')
    for problem, path, words in (
        ("other examples and held-out examples", others, []),
        ("other held-out examples", lines, ["--held-out", str(others)]),
        ("other config", lines, ["--config", str(config)]),
    ):
        with pytest.raises(UsageError, match=f"began with {problem}\\."):
            finetune(base, path, tuned, *words)
    copy = tmp_path / "moved.jsonl"
    shutil.copy(lines, copy)
    finetune(base, copy, tuned, "--held-out", str(lines), "--prepare")


def test_without_a_configuration_nothing_trains_and_a_start_is_finished(
    base: Path, lines: Path, tmp_path: Path
) -> None:
    """A start that died between its checkpoint and its last file: no run may begin there with weights of its own."""
    finetune(base, lines, tmp_path, "--prepare")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    config = (tmp_path / "config.toml").read_bytes()
    (tmp_path / "config.toml").unlink()
    with pytest.raises(UsageError, match="began with other template"):
        finetune(base, lines, tmp_path, "--prepare", "--template", "plain")
    finetune(base, lines, tmp_path, "--prepare")
    assert (tmp_path / "config.toml").read_bytes() == config
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")} == before


def test_settings_that_a_configuration_leaves_open(tmp_path: Path) -> None:
    theirs, template = base_config(), load_template("dialogue")
    path = tmp_path / "mine.toml"
    path.write_text("[data]\ntrain_split = 'train'\n[optimizer]\nlearning_rate = 1e-4\n")
    prefixes = theirs.model_copy(update={"data": theirs.data.model_copy(update={"prefix_lm": True})})
    for config in (None, str(path)):
        for base, asked, expected in ((theirs, False, False), (theirs, True, True), (prefixes, False, True)):
            data = settings(base, template, config, [], asked)["data"]
            assert (data["reset_positions"], data["prefix_lm"]) == (True, expected)
    path.write_text("[data]\nreset_positions = false\nprefix_lm = false\n")
    assert settings(prefixes, template, str(path), [], False)["data"] == {"reset_positions": False, "prefix_lm": False}
    path.write_text("data = 3\n")
    assert settings(theirs, template, str(path), [], False)["data"] == 3  # for `parse` to refuse


@pytest.mark.parametrize(
    ("num_rows", "micro_batch_size", "num_ranks", "tp", "expected"),
    [
        (10_000, 1, 1, 1, 8), (800, 1, 1, 1, 8), (799, 1, 1, 1, 4), (399, 1, 1, 1, 2), (199, 1, 1, 1, 1),
        (3, 1, 1, 1, 1), (3, 1, 2, 1, 2), (3, 4, 2, 1, 8), (10_000, 1, 3, 1, 9),
        (3, 1, 4, 2, 2), (10_000, 1, 16, 1, 16),
    ],
)  # fmt: skip
def test_few_rows_are_enough_steps(
    num_rows: int, micro_batch_size: int, num_ranks: int, tp: int, expected: int
) -> None:
    config = base_config()
    training = config.training.model_copy(update={"micro_batch_size": micro_batch_size})
    parallel = config.parallel.model_copy(update={"tp": tp})
    config = config.model_copy(update={"training": training, "parallel": parallel})
    assert rows_a_step(num_rows, config, num_ranks) == expected


def train_here(out: Path) -> None:
    with redirect_stdout(StringIO()):
        train(load_config(str(out / "config.toml")), out / "examples", out)


@pytest.mark.long
def test_two_ranks_equal_one(base: Path, lines: Path, tmp_path: Path) -> None:
    few = ("--epochs", "2", "--set", "training.precision=fp64")
    finetune(base, lines, tmp_path / "one", *few)
    finetune(base, lines, tmp_path / "two", *few, "--prepare")
    reused_ranks(train_here, 2, tmp_path / "two")
    ours, theirs = losses(tmp_path / "two"), losses(tmp_path / "one")
    assert len(ours) >= 4 and ours.keys() == theirs.keys()
    assert list(ours.values()) == pytest.approx(list(theirs.values()), rel=1e-9)
    bits = [
        json.loads((tmp_path / name / "summary.json").read_bytes())["held_out_bits_per_character"]
        for name in ("one", "two")
    ]
    assert bits[0] == pytest.approx(bits[1], rel=1e-9)


def test_what_is_held_out_is_the_answers(tuned: Path, lines: Path) -> None:
    """Their loss is that of each example alone, read as at use; their characters are those of the answers."""
    newest = checkpoint.newest(tuned)
    assert newest is not None
    model, config = checkpoint.load_model(newest)
    tokenizer, template = tokenizer_of(newest), load_template("dialogue")
    batcher = EvaluationBatcher.of(config, tokenizer.eod)
    total, num_tokens = 0.0, 0
    for asked, said in EIGHT:
        prompt, rest = tokenizer.encode(render(template, [Message("user", asked)])), tokenizer.encode(said)
        tokens = np.array([[tokenizer.eod, *prompt, *rest]])
        targets = np.array([[*[IGNORED_TARGET] * len(prompt), *rest, tokenizer.eod]])
        total += float(model.token_losses(batcher.micro_batch(tokens, targets)).sum())
        num_tokens += len(rest) + 1
    with mesh.start(config.parallel, "cpu", 1.0) as world:
        corpora = open_datasets(config, tuned / "examples", None)
        (held_out,) = corpora.held_out.values()
        assert isinstance(held_out, HeldOutAnswers)
        assert held_out.num_samples % 2 == 1  # so that a batch of two has one that is padding
        found, by_pairs = (evaluate_answers(model, held_out, config, size, world.device, world) for size in (1, 2))
        assert by_pairs.loss == pytest.approx(found.loss, rel=1e-4)
    assert (found.num_tokens, found.num_characters) == (num_tokens, sum(len(said) for _, said in EIGHT))
    assert found.num_bytes == sum(len(said.encode()) for _, said in EIGHT)
    assert found.loss == pytest.approx(total / num_tokens, rel=1e-4)


def test_evaluate_scores_answers_as_the_run_does(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = checkpoint.newest(tuned)
    options = ["evaluate", "--checkpoint", str(newest), "--data", str(tuned / "examples"), "--device", "cpu"]
    assert main([*options, "--micro-batch-size", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    summary = json.loads((tuned / "summary.json").read_bytes())
    assert found["bits_per_character"] == pytest.approx(summary["held_out_bits_per_character"], rel=1e-4)
    assert found["num_characters"] == sum(len(said) for _, said in EIGHT)
    assert not any("gram" in name for name in found), "no character model is asked for answers"
    for option in (["--stride", "4"], ["--per-document"]):
        assert main([*options, *option]) == 2
        assert "whose answers are read as in training" in capsys.readouterr().err


def test_generate_asks_in_the_run_s_template(tuned: Path, tmp_path: Path) -> None:
    newest = checkpoint.newest(tuned)
    questions = tmp_path / "questions.txt"
    questions.write_text("".join(f"{asked}\n" for asked, _ in EIGHT[:3]))
    parser = argparse.ArgumentParser()
    generation.add_arguments(parser)
    words = [
        "--checkpoint",
        str(newest),
        "--prompts",
        str(questions),
        "--temperature",
        "0",
        "--max-tokens",
        "20",
        "--json",
    ]
    for template in (["--template"], ["--template", "dialogue"]):
        said = StringIO()
        with redirect_stdout(said):
            generation.main(parser.parse_args([*words, *template]))
        answers = [json.loads(line)["text"] for line in said.getvalue().splitlines()]
        assert [
            answer.removeprefix(f"问：{asked}\n答：") for answer, (asked, _) in zip(answers, EIGHT, strict=False)
        ] == [said for _, said in EIGHT[:3]]


def test_trace_finds_the_steps_that_saw_an_example(tuned: Path) -> None:
    newest = checkpoint.newest(tuned)
    assert newest is not None
    trace = Trace.of_checkpoint(newest, {"examples": tuned / "examples"})
    state = checkpoint.read_state(newest)
    (order,) = state.orders
    num_packs = open_datasets(
        checkpoint.read_saved(newest).config, tuned / "examples", None
    ).loader.num_samples_per_epoch
    parts = trace.documents("url", "eight.jsonl:3")
    assert [part.sample // num_packs for part in parts] == list(range(state.num_samples // num_packs))
    assert {(part.start, part.stop) for part in parts} == {(0, part.shard.lengths[part.sequence]) for part in parts}
    (sighting,) = trace.sightings(parts[:1], with_text=True)
    assert (sighting.text, sighting.source) == ("问：人\n答：口", "eight.jsonl")
    assert parts[0] in trace.step(parts[0].step) and order.global_batch_size == 2


def test_examples_blend_with_text_by_their_shares(tuned: Path, tmp_path: Path) -> None:
    """Answers and text are held out side by side, and a record gone makes another corpus of it, which is refused."""
    tokenizer = tokenizer_of(tuned / "examples" / "model")
    shards = {"00000-00-train": documents(40), "00000-00-validation": documents(45)[40:]}
    text_folder(tmp_path / "text", tokenizer, shards)
    config = load_config(str(tuned / "config.toml"))
    corpora = [{"path": str(tuned / "examples"), "epochs": 2.0}, {"path": str(tmp_path / "text"), "weight": 1.0}]
    blended = config.model_copy(
        update={"data": config.data.model_validate({"reset_positions": True, "corpora": corpora})}
    )
    found = open_datasets(blended, None, tokenizer.path)
    shares = {share.name: share for share in corpus_shares(found.loader, config.training.num_steps * 2)}
    assert shares["examples"].epochs == pytest.approx(2.0)
    assert {name: type(each).__name__ for name, each in found.held_out.items()} == {
        "examples": "HeldOutAnswers",
        "text": "HeldOut",
    }
    assert found.train_texts()
    copy = shutil.copytree(tuned / "examples", tmp_path / "examples")
    (copy / "EXAMPLES.json").unlink()
    newest = checkpoint.newest(tuned)
    assert newest is not None
    with pytest.raises(UsageError, match=r"is not what .* was trained on"):
        Trace.of_checkpoint(newest, {"examples": copy})


def test_options_that_fit_nothing_are_refused(base: Path, lines: Path, tuned: Path, tmp_path: Path) -> None:
    cases = {
        "a share lies between 0 and 1": ["--held-out", "1.5"],
        "--epochs 0": ["--epochs", "0"],
        r"model\.hidden_size: is 128 here and 64": ["--set", "model.hidden_size=128"],
        "give --examples FILE or --task NAME": ["--task", "tnews"],
        "megatron": ["--set", "data.order=megatron"],
        "--task-data fewclue: goes with --task": ["--task-data", "fewclue"],
    }
    for problem, words in cases.items():
        with pytest.raises(UsageError, match=problem):
            command.main(arguments(base, lines, tmp_path / problem[:4], *words), planner())
    (tuned.parent / "other").mkdir()
    (tuned.parent / "other" / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match="a run that is no fine-tuning"):
        command.main(arguments(base, lines, tuned.parent / "other"), planner())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANK", "1")
        with pytest.raises(UsageError, match="--prepare"):
            command.main(arguments(base, lines, tmp_path), planner())

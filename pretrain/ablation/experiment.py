"""Runs an ablation: trains and measures one run after the other, and writes what is known after each.

    OUT/ablation.json                 what must stay as it is: configuration and text
    OUT/runs/ARM-seedK/               a training run like any other (`python -m pretrain report` draws it)
    OUT/logs/ARM-seedK.txt            what it said
    OUT/measured/ARM-seedK.json       what held-out text and tasks cost it
    OUT/results.json, report.html     all arms side by side

The same command goes on after any end: a finished run is not trained again, one that was cut off goes on from its
newest checkpoint, and a run is measured again only where the questions have changed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import Stopped, UsageError, WenhaiError
from pretrain.ablation import page
from pretrain.ablation.measuring import Measured, Questions, measure_run
from pretrain.ablation.plan import RECORD, Plan, Run, check_record, record
from pretrain.ablation.results import RESULTS, Results, arm_lines, collect, exclusion_lines, to_json
from pretrain.ablation.unseen import read_held
from pretrain.checkpoint import COMMIT, read_saved, step_folder
from pretrain.config import RunConfig, with_vocab_size
from pretrain.config import to_json as config_json
from pretrain.console import log_message
from pretrain.data import data_digest
from pretrain.launch import launch
from tokenizer.model import Tokenizer

LOG_LINES = 20  # of a run that failed


def experiment(plan: Plan, out: Path, asked: Questions, num_ranks: int) -> Results:
    """Train and measure what is missing; returns what was found. What is held out of the arms joins what is `asked`.

    Raises:
        UsageError: `out` holds an ablation of other settings or text, or there is nothing to compare models on.
        LockHeld: another command works on `out`.
        Stopped: a signal asked for it; the same command goes on.
        WenhaiError: a run failed; the end of its log is in the message.
    """
    tokenizer = Tokenizer(plan.arms[0].folder)
    config = with_vocab_size(plan.config, tokenizer.vocab_size)
    data = {arm.name: data_digest(list(arm.shards)) for arm in plan.arms}
    with durable.RunLock(out):
        durable.sweep(out)
        durable.write_json(out / RECORD, check_record(out / RECORD, record(plan, data)))
        split = config.data.validation_split
        held = read_held(plan.arms, asked.texts, asked.by, tokenizer, split, asked.max_tokens)
        questions = replace(asked, held=tuple(each for each in held if each.documents))
        for line in (*arm_lines(plan), *exclusion_lines(held)):
            log_message(line)
        found: dict[str, Measured] = {}
        results: Results | None = None
        for number, run in enumerate(plan.runs, start=1):
            wanted = config.model_copy(update={"training": config.training.model_copy(update={"seed": run.seed})})
            if not _is_trained(run, out, wanted, data[run.arm.name]):
                log_message(f"run {number} of {len(plan.runs)}: {run.name}")
                _train(plan, run, out, num_ranks)
                if not _is_trained(run, out, wanted, data[run.arm.name]):
                    raise WenhaiError(f"{run.name}: ended without its last checkpoint. Run the same command again.")
            found[run.name] = measure_run(out, run.name, plan.measured_steps, questions)
            if number % len(plan.arms) == 0:
                results = collect(plan, held, found)
                durable.write_json(out / RESULTS, to_json(results))
                durable.write_bytes(out / page.NAME, page.render(results).encode())
    assert results is not None
    return results


def _is_trained(run: Run, out: Path, config: RunConfig, data: str) -> bool:
    """Whether the last checkpoint of a run is there.

    Raises:
        UsageError: it is there, and was trained otherwise.
    """
    folder = step_folder(out / "runs" / run.name, config.training.num_steps)
    if not (folder / COMMIT).exists():
        return False
    saved = read_saved(folder)
    if saved.data != data or _what_counts(saved.config) != _what_counts(config):
        raise UsageError(
            f"{folder}: was trained with other settings or on other text than this ablation says. Give another --out"
        )
    return True


def _what_counts(config: RunConfig) -> dict[str, Any]:
    """Without the layout over ranks, which changes no result beyond rounding."""
    values = config_json(config)
    values.pop("parallel", None)
    values["training"].pop("micro_batch_size", None)
    return values


def _train(plan: Plan, run: Run, out: Path, num_ranks: int) -> None:
    """Train a run to its end, or go on with it, in processes of its own."""
    logs = [out / "logs" / f"{run.name}{f'-rank{rank}' * (rank > 0)}.txt" for rank in range(num_ranks)]
    logs[0].parent.mkdir(exist_ok=True)
    words = [word for override in plan.overrides_of(run) for word in ("--set", override)]
    folders = ["--data", str(run.arm.folder), "--out", str(out / "runs" / run.name)]
    command = [sys.executable, "-m", "pretrain", "train", "--config", plan.config_name, *folders, *words]
    code = launch(command, num_ranks, outputs=logs)
    if code == Stopped.exit_code:
        raise Stopped(f"{run.name}: stopped. Run the same command again to go on from there.")
    if code:
        end = "\n".join(logs[0].read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])
        raise WenhaiError(f"{run.name}: failed with exit code {code}. The end of {logs[0]}:\n{end}")

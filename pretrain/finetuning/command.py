"""`python -m pretrain finetune`: examples and a checkpoint become a run, which is trained as any other.

The same command goes on, whatever ended it: what is written stays, and training resumes from its newest checkpoint.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.errors import UsageError
from pretrain.chat.templates import TEMPLATE, load_template, named_templates
from pretrain.console import log_message
from pretrain.finetuning.sources import Files, Source, TaskItems, survey
from pretrain.finetuning.store import CONFIG, EXAMPLES, ORIGIN, Fit, Plan, write_examples
from pretrain.run import command

SHARE = 0.05
EPOCHS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m pretrain finetune`."""
    parser.add_argument("--checkpoint", required=True, help="a step-... folder or URL: the weights to begin with")
    parser.add_argument(
        "--examples", action="append", default=[], metavar="FILE", help="JSONL, several times if need be"
    )
    parser.add_argument("--task", help="train on the items of a task instead (see `python -m pretrain tasks`)")
    parser.add_argument("--task-data", type=Path, metavar="FOLDER", help="with --task: the folder of its data")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; a run in it goes on")
    parser.add_argument(
        "--held-out",
        metavar="FILE|SHARE",
        help=f"examples to measure with: a file, or a share of --examples (default {SHARE}); of a task its dev split",
    )
    names = ", ".join(named_templates())
    parser.add_argument("--template", help=f"a TOML file, or one of: {names} (default: dialogue; of a task plain)")
    parser.add_argument("--epochs", type=float, default=EPOCHS, metavar="E", help=f"default {EPOCHS:g}")
    parser.add_argument(
        "--too-long",
        choices=("error", "drop", "cut"),
        default="error",
        help="examples longer than the window: refuse them (default), leave them out, or cut the prompt's beginning",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out and count lines that are no examples")
    parser.add_argument(
        "--prefix-lm", action="store_true", help="prompts are read both ways, as they are where the base was"
    )
    parser.add_argument("--config", help="of the run: all but its [model] (default: the base's at a tenth of its rate)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="change one setting of the run")
    parser.add_argument("--nproc", type=int, default=1, metavar="N", help="processes to train with (default 1)")
    parser.add_argument("--prepare", action="store_true", help="write examples and first checkpoint, and end")


def main(args: argparse.Namespace, planner: command.Planner) -> None:
    """Prepare the run in `--out` if that is not done, and train it."""
    if "RANK" in os.environ:
        raise UsageError(
            "finetune prepares a run in one process. Do that with --prepare, and start the ranks with the command it "
            "prints."
        )
    if not 0 < args.epochs < float("inf"):
        raise UsageError(f"--epochs {args.epochs:g}: it must be above 0")
    prepare(args)
    words = ["--config", str(args.out / CONFIG), "--data", str(args.out / EXAMPLES), "--out", str(args.out)]
    words += [word for value in args.set for word in ("--set", value)]
    if args.prepare:
        print("python -m pretrain train", *words)
        return
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    command.main(parser.parse_args([*words, "--nproc", str(args.nproc)]), planner)


def prepare(args: argparse.Namespace) -> None:
    """Write what a run begins with, or find it written.

    Raises:
        UsageError: the folder holds a run of something else, or what was asked for makes no run.
    """
    source, held_out, share = _sources(args)  # before torch is loaded: mistakes are told at once
    template = load_template(args.template or ("plain" if args.task else "dialogue"))

    from corpus.engine.toml import dump
    from pretrain import checkpoint
    from pretrain.checkpoint import TOKENIZER
    from pretrain.config import read_config
    from pretrain.finetuning import start
    from tokenizer.model import Tokenizer

    base = checkpoint.local_folder(args.checkpoint)
    commit, saved = checkpoint.read_commit(base), checkpoint.read_saved(base)
    values = start.settings(saved.config, template, args.config, args.set, args.prefix_lm)
    fit = Fit(start.sequence_length(values, saved.config), args.too_long)
    found, of_held_out = survey(source, share), None if held_out is None else (held_out, survey(held_out))
    if not found.num_examples:
        raise UsageError(f"{' '.join(args.examples) or args.task}: holds no example.")
    asked = {
        "checkpoint": commit.digest,
        "config": durable.digest(read_config(args.config)[0]) if args.config else None,
        "examples": found.digest,
        "held-out examples": of_held_out[1].digest if of_held_out else found.last_held_out,
        "epochs": args.epochs,
        "template": template.model_dump(exclude={"description"}),
        "prefix_lm": args.prefix_lm,
        "too_long": args.too_long,
    }
    with durable.RunLock(args.out):
        if _is_prepared(args.out, asked):
            return
        durable.sweep(args.out)
        plan = Plan(source, found, of_held_out, template, Tokenizer(base / TOKENIZER), fit)
        record = write_examples(args.out / EXAMPLES, plan)
        train, validation = record.splits["train"], record.splits["validation"]
        log_message(
            f"{record.lines:,} lines: {train.examples:,} examples to train on, of {train.tokens:,} tokens of which "
            f"{train.counted_tokens:,} count; {validation.examples:,} held out, {record.skipped:,} lines skipped, "
            f"{record.dropped:,} examples dropped, {record.cut:,} cut"
        )
        durable.write_bytes(args.out / TEMPLATE, f"{dump(template.model_dump())}\n".encode())
        config = start.complete(values, args.out / EXAMPLES, args.epochs, args.nproc)
        training = config.training
        log_message(f"{training.num_steps:,} steps of {training.global_batch_size:,} rows of {fit.num_tokens:,} tokens")
        origin = {
            "asked": asked,
            "checkpoint": str(args.checkpoint),
            "step": commit.step,
            "examples": record.model_dump(mode="json"),
        }
        start.write_start(args.out, base, config, origin)


def _is_prepared(out: Path, asked: dict[str, Any]) -> bool:
    """Whether the run is there, of what is asked for.

    Raises:
        UsageError: it is of something else.
    """
    from pretrain import checkpoint

    if checkpoint.newest(out) is None and not (out / "metrics.jsonl").exists():
        return False
    if not (out / ORIGIN).is_file():
        raise UsageError(f"{out}: holds a run that is no fine-tuning. Name another folder.")
    there = durable.read_json(out / ORIGIN).get("asked", {})
    if changed := [key for key, value in asked.items() if there.get(key) != value]:
        raise UsageError(
            f"{out}: holds a run that began with other {' and '.join(changed)}. Give the options it began with, or "
            "another --out."
        )
    return (out / CONFIG).is_file()


def _sources(args: argparse.Namespace) -> tuple[Source, Source | None, float]:
    """What is trained on, what is held out, or else the share of the former that is."""
    if bool(args.examples) == bool(args.task):
        raise UsageError("give --examples FILE or --task NAME: what to train on.")
    if args.task:
        if args.task_data is None:
            raise UsageError("--task-data FOLDER: where the items of --task lie.")
        if args.held_out is not None:
            raise UsageError(f"--held-out {args.held_out}: of a task the dev split is held out. Leave one of them out.")
        return TaskItems(args.task, "train", args.task_data), TaskItems(args.task, "dev", args.task_data), 0.0
    if args.task_data is not None:
        raise UsageError(f"--task-data {args.task_data}: goes with --task.")
    source = Files(args.examples, args.skip_bad)
    try:
        share = SHARE if args.held_out is None else float(args.held_out)
    except ValueError:
        return source, Files([args.held_out], args.skip_bad), 0.0
    if not 0 < share < 1:
        raise UsageError(f"--held-out {args.held_out}: a share lies between 0 and 1; or name a file.")
    return source, None, share

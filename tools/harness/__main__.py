"""Our evaluation beside lm-evaluation-harness: one model, as a checkpoint and as the folder that was exported from it.

    python -m pretrain export --checkpoint runs/a/checkpoints/step-00001000 --out build/a-hf
    python -m tools.harness --model build/a-hf --checkpoint runs/a/checkpoints/step-00001000 \\
        --tasks FewCLUE/datasets --limit 100
    python -m tools.harness --model build/a-hf --checkpoint runs/a/checkpoints/step-00001000 --text texts.jsonl

Writes task files of the harness, runs it on the folder in a process of its own, asks our model the same of the
checkpoint, and prints both beside each other. The exit code is 1 where they differ by more than rounding. All computes
in fp32 on the CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.engine import durable
from corpus.engine.cli import run_command
from corpus.engine.errors import UsageError, WenhaiError
from pretrain.checkpoint import TOKENIZER, load_model, local_folder
from pretrain.evaluation.texts import read_texts
from pretrain.inference.batcher import EvaluationBatcher
from pretrain.tasks.definition import NINE, load_tasks
from pretrain.tasks.items import read_items
from pretrain.tasks.prompts import Prompter
from pretrain.tasks.run import sample
from tokenizer.model import Tokenizer
from tools.harness import environment
from tools.harness.agreement import (
    BOUND,
    ChoiceAgreement,
    TextAgreement,
    compare_choices,
    compare_texts,
    disagreements,
    plain,
)
from tools.harness.pairs import Questions, questions, write_choices, write_texts


def main(argv: Sequence[str] | None = None) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.harness", description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="the folder that python -m pretrain export wrote")
    parser.add_argument("--checkpoint", required=True, help="the checkpoint that it was exported from")
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="the folder with a folder for each task")
    parser.add_argument(
        "--task", nargs="+", default=list(NINE), metavar="NAME", help="which of them (default: all nine)"
    )
    parser.add_argument("--method", metavar="NAME", help="a prompt of the tasks (default: each task's)")
    parser.add_argument("--limit", type=int, metavar="N", help="a sample of N items of each task")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument(
        "--text", nargs="+", metavar="FILE", help="texts, as python -m pretrain evaluate --text takes them"
    )
    parser.add_argument("--out", type=Path, default=Path("build/harness"), help="of all files (default: build/harness)")
    parser.add_argument("--batch-size", type=int, default=8, metavar="B", help="of the harness (default 8)")
    parser.add_argument(
        "--python", type=Path, help="an interpreter that has lm_eval and transformers (default: found or made)"
    )
    parser.set_defaults(command=command)
    return run_command("tools.harness", parser, list(sys.argv[1:] if argv is None else argv))


def command(args: argparse.Namespace) -> None:
    """Write, ask both, compare.

    Raises:
        UsageError: the folder is not the checkpoint's, or there is nothing to ask.
        WenhaiError: the harness failed, or says something else than we do.
    """
    if not (args.tasks or args.text):
        raise UsageError("name what is asked: --tasks FOLDER, --text FILE ..., or both")
    for option in ("limit", "batch_size"):
        if getattr(args, option) is not None and getattr(args, option) < 1:
            raise UsageError(f"--{option.replace('_', '-')} {getattr(args, option)}: it must be 1 or more")
    checkpoint = local_folder(args.checkpoint)
    tokenizer = Tokenizer(checkpoint / TOKENIZER)
    check_folder(args.model, tokenizer)
    model, config = load_model(checkpoint)
    batcher = EvaluationBatcher.of(config, tokenizer.eod)
    asked = _questions(args, tokenizer, batcher)
    texts = [text.text for text in read_texts(args.text)] if args.text else []

    tasks = args.out / "tasks"
    for path in (*tasks.glob("wenhai_*.yaml"), *tasks.glob("wenhai_*.jsonl")):
        path.unlink()  # of an earlier run
    tasks.mkdir(parents=True, exist_ok=True)
    names = {write_choices(tasks, found): found for found in asked}
    if texts:
        write_texts(tasks, texts)
    python = args.python or environment.interpreter()
    theirs = environment.run_script(python, args.model.resolve(), tasks, args.out / "harness.json", args.batch_size)
    if theirs["max_length"] != batcher.sequence_length:
        lengths = f"the harness reads {theirs['max_length']:,} tokens, and the model {batcher.sequence_length:,}"
        raise WenhaiError(f"{lengths}. Export it again.")
    model, answers = model.float(), theirs["tasks"]
    agreements: list[ChoiceAgreement | TextAgreement] = [
        compare_choices(found, answers[name], model, batcher) for name, found in names.items()
    ]
    if texts:
        agreements.append(compare_texts(texts, answers["wenhai_texts"], model, batcher, tokenizer))
    told = {"versions": theirs["versions"], "bound": BOUND, "agreements": list(map(dataclasses.asdict, agreements))}
    words = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    durable.write_bytes(args.out / "agreement.json", words.encode())
    print("\n".join(table(agreements, theirs["versions"], batcher)))
    if apart := disagreements(agreements, batcher):
        raise WenhaiError(f"the harness and our evaluation disagree: {'; '.join(apart)} (rounding: {BOUND:.0e}).")


def check_folder(folder: Path, tokenizer: Tokenizer) -> None:
    """Raises `UsageError` where a folder is not the export of a checkpoint with this tokenizer in fp32."""
    path = folder / TOKENIZER
    if not path.is_file() or Tokenizer(path).sha256 != tokenizer.sha256:
        raise UsageError(
            f"{folder}: was not exported from this checkpoint (its tokenizer is another one). Export it again."
        )
    dtype = durable.read_json(folder / "config.json").get("dtype")
    if dtype != "float32":
        raise UsageError(f"{folder}: has weights rounded to {dtype}. Export it with --dtype float32.")


def table(found: Sequence[ChoiceAgreement | TextAgreement], versions: Any, batcher: EvaluationBatcher) -> list[str]:
    """What is printed."""
    lines = [
        f"lm_eval {versions['lm_eval']}, transformers {versions['transformers']}, torch {versions['torch']}, fp32, CPU",
        "",
    ]
    choices = [each for each in found if isinstance(each, ChoiceAgreement)]
    if choices:
        lines += [
            "                           largest difference                       accuracy",
            "task        items   pairs  same tokens        own  other tokens  harness  same tokens    own  other "
            "answers  left out",
        ]
        lines += [
            f"{each.name:10} {each.num_items:6,} {each.num_pairs:7,} {each.difference:12.1e} "
            f"{each.own_difference:10.1e} "
            f"{each.num_other_tokens:13,} {each.harness_accuracy:8.4f} {each.accuracy:12.4f} {each.own_accuracy:6.4f} "
            f"{each.num_other_answers:14,} {each.num_left_out:9,}"
            for each in choices
        ]
    for each in found:
        if isinstance(each, TextAgreement):
            lines += [
                *([""] if choices else []),
                f"{each.num_texts:,} texts, {each.num_tokens:,} tokens, {each.num_bytes:,} bytes, windows of "
                f"{batcher.sequence_length:,} tokens: largest difference {each.difference:.1e}",
                f"bits per byte: harness {each.harness_bits_per_byte:.7f}, ours {each.bits_per_byte:.7f}, own "
                f"{each.own_bits_per_byte:.7f}; {each.bits_per_character:.7f} bits per character",
            ]
    if batcher != plain(batcher):
        lines += ["", "Own: with document masks or prefixes, as it was trained, which transformers has not."]
    return lines


def _questions(args: argparse.Namespace, tokenizer: Tokenizer, batcher: EvaluationBatcher) -> list[Questions]:
    found = []
    for task in load_tasks(args.task) if args.tasks else []:
        items = read_items(task, args.tasks).items
        items = items if args.limit is None else sample(items, args.limit, args.seed)
        prompter = Prompter(task, tokenizer, batcher.sequence_length, args.method)
        asked = questions(task.name, prompter, items, tokenizer)
        if not asked.asked:
            raise UsageError(f"task {task.name}: the harness can ask none of its {len(items):,} items. Leave it out.")
        found.append(asked)
    return found


if __name__ == "__main__":
    sys.exit(main())
